"""The same with a million bytes or more in every array, in every version and under every name."""

import pytest
from tests.conformance.long_request_calls import longest_callback_ms, make_world, others_wait
from tests.conftest import BrokerFactory
from tests.long_requests import long_requests, served_apis

pytestmark = pytest.mark.faults

ENTRIES = 300_000
OTHERS_SECONDS_MAX = 1.0


def test_others_are_served_whatever_is_long(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(group_initial_rebalance_delay_ms=0)
    world = make_world(broker.bootstrap)
    waited = {}
    for api in served_apis():
        for long in long_requests(api, ENTRIES, world):
            if long.is_array:
                waited[long.label] = others_wait(broker.bootstrap, long)
    print(f"longest callback {longest_callback_ms(broker)} ms, longest wait {max(waited.values()):.3f} s")
    assert {label: seconds for label, seconds in waited.items() if seconds > OTHERS_SECONDS_MAX} == {}
