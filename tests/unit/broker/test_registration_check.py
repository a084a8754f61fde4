"""The registration check of a broker after a pause or while it is isolated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base.names import TopicPartition
from ottla.broker.cluster import registration_check
from ottla.broker.cluster.registration_check import RegistrationCheck
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.stores.store import StoreError

ME = 1


def me(epoch: int) -> BrokerImage:
    return BrokerImage(ME, {}, None, epoch)


class Stand:
    """A broker with a fake clock, registered with epoch 7."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.registered: Any = me(7)
        self.looks = 0
        self.silent_ms = 0  # since the last answer of the store
        self.partitions: dict[TopicPartition, Any] = {}
        times = {"zookeeper.session.timeout.ms": "6000", "replica.fetch.wait.max.ms": "500"}
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.node = node(times, id_=ME, clock=clock, image=MetadataImage(brokers={ME: me(7)}))
        membership: Any = SimpleNamespace(locate=self.locate, store_idle_ms=lambda: self.silent_ms)
        replicas: Any = SimpleNamespace(partitions=self.partitions)
        self.check = RegistrationCheck(self.node, membership, replicas, self.settled)
        self.check.start()

    async def locate(self, _: int) -> Any:
        self.looks += 1
        if isinstance(self.registered, Exception):
            raise self.registered
        return self.registered

    async def settled(self) -> None:
        """All roles are applied."""


def play(monkeypatch: pytest.MonkeyPatch, scene: Callable[[Stand], Awaitable[None]]) -> None:
    monkeypatch.setattr(registration_check, "RETRY_SECONDS", 0.001)

    async def whole() -> None:
        stand = Stand()
        await scene(stand)
        stand.check.close()

    virtual_time.run(whole())


def test_short_pauses_start_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stand: Stand) -> None:
        stand.now_ms += 2000
        assert not stand.check.is_pending()
        assert stand.looks == 0

    play(monkeypatch, scene)


def test_a_broker_with_its_old_registration_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stand: Stand) -> None:
        stand.now_ms += 2001
        assert stand.check.is_pending()
        await asyncio.sleep(0.01)
        assert not stand.check.is_pending()
        assert stand.looks == 1

    play(monkeypatch, scene)


@pytest.mark.parametrize("registered", [None, me(9), StoreError("no answer")])
def test_a_broker_that_lost_its_registration_waits_for_a_new_image(
    monkeypatch: pytest.MonkeyPatch, registered: Any
) -> None:
    async def scene(stand: Stand) -> None:
        stand.registered = registered
        stand.now_ms += 20_000
        assert stand.check.is_pending()
        await asyncio.sleep(0.02)
        assert stand.check.is_pending()
        stand.registered = me(9)
        stand.node.images.publish(MetadataImage(brokers={ME: me(9)}))
        await asyncio.sleep(0.02)
        assert not stand.check.is_pending()

    play(monkeypatch, scene)


def test_without_the_store_the_check_ends_after_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stand: Stand) -> None:
        stand.registered = StoreError("no answer")
        stand.now_ms += 20_000
        assert stand.check.is_pending()
        await asyncio.sleep(0.02)
        assert stand.check.is_pending()
        stand.now_ms += 6000
        await asyncio.sleep(0.02)
        assert not stand.check.is_pending()

    play(monkeypatch, scene)


@pytest.mark.parametrize("registered", [None, me(9)])
def test_a_broker_that_the_store_gave_up_stays_in_the_check(monkeypatch: pytest.MonkeyPatch, registered: Any) -> None:
    """A stopping broker does not register again: after a session it would return old offsets."""

    async def scene(stand: Stand) -> None:
        stand.registered = registered
        stand.now_ms += 20_000
        assert stand.check.is_pending()
        for _ in range(10):
            stand.now_ms += 3000
            await asyncio.sleep(0.02)
            assert stand.check.is_pending()

    play(monkeypatch, scene)


def led(topic: str, *fetched_ms: int) -> dict[TopicPartition, Any]:
    """A partition led by this broker, with the last fetch times of its followers."""
    followers = [SimpleNamespace(broker_id=2 + place, last_fetch_time_ms=at) for place, at in enumerate(fetched_ms)]
    return {TopicPartition(topic, 0): SimpleNamespace(is_leader=True, isr=(ME, 2, 3), followers=followers)}


@pytest.mark.parametrize(
    ("partitions", "is_cut_off"),
    [
        (led("__consumer_offsets", 998_000, 998_500), True),
        (led("__transaction_state", 998_000, 998_500), True),
        (led("__consumer_offsets", 998_000, 999_500), False),  # the store is unreachable for all brokers
        (led("__consumer_offsets"), False),  # no other replica is in sync or can become leader
        (led("orders", 998_000), False),
    ],
)
def test_an_isolated_broker_checks_until_its_registration_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, partitions: dict[TopicPartition, Any], is_cut_off: bool
) -> None:
    async def scene(stand: Stand) -> None:
        stand.partitions.update(partitions)
        stand.silent_ms = 2_900
        stand.check._check()
        assert not stand.check.is_pending()
        stand.silent_ms = 3_000  # half a session: no other leader is elected yet
        stand.registered = StoreError("away")
        stand.check._check()
        assert stand.check.is_pending() == is_cut_off
        for _ in range(8):  # longer than a session, still without an answer
            stand.now_ms += 1000
            stand.check._last_check_ms = stand.now_ms
            await asyncio.sleep(0.005)
        assert stand.check.is_pending() == is_cut_off
        stand.silent_ms = 0
        stand.registered = me(8)  # of the next start, which the image does not contain yet
        await asyncio.sleep(0.01)
        assert stand.check.is_pending() == is_cut_off
        stand.registered = me(7)
        await asyncio.sleep(0.01)
        assert not stand.check.is_pending()

    play(monkeypatch, scene)
