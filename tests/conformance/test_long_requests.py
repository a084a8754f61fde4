"""Every array of every request with ten thousand entries, sent to a real broker: others hardly notice."""

from collections.abc import Callable, Iterator

import pytest
from tests.conformance.long_request_calls import longest_callback_ms, make_world, others_wait
from tests.conftest import Broker
from tests.long_requests import LongRequest, Naming, World, long_requests, served_apis, telling_versions

from ottla.protocol.apis import Api

pytestmark = pytest.mark.needs_ottla

ENTRIES = 10_000
OTHERS_SECONDS_MAX = 1.0  # generous: a busy machine, and a broker that may run as plain Python


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("long"), {"group.initial.rebalance.delay.ms": "0"})
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.discard()


@pytest.fixture(scope="module")
def world(own_broker: Broker) -> World:
    return make_world(own_broker.bootstrap)


@pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
def test_others_are_served_meanwhile(
    own_broker: Broker, world: World, api: Api, record_property: Callable[[str, object], None]
) -> None:
    waited = {}
    for long in in_turn(api, world):
        waited[long.label] = others_wait(own_broker.bootstrap, long)
    record_property("longest callback of the broker so far, ms", longest_callback_ms(own_broker))
    assert {label: seconds for label, seconds in waited.items() if seconds > OTHERS_SECONDS_MAX} == {}


def in_turn(api: Api, world: World) -> Iterator[LongRequest]:
    """The newest version of each array, under one way of naming after the other: `make faults` tries all of them."""
    newest = telling_versions(api)[-1]
    arrays = [each for each in long_requests(api, ENTRIES, world) if each.version == newest and each.is_array]
    for number, long in enumerate(arrays):
        if list(Naming).index(long.naming) == number // len(Naming) % len(Naming):
            yield long
