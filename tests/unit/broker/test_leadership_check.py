"""A broker that was held still asks whether it still is what it believes to be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

import virtual_time
from ottla.base.names import TopicPartition
from ottla.broker.cluster import leadership_check
from ottla.broker.cluster.leadership_check import LeadershipCheck
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.stores.store import StoreError
from unit.broker.nodes import node

ME = 1


def me(epoch: int) -> BrokerImage:
    return BrokerImage(ME, {}, None, epoch)


class Stand:
    """A broker with a clock that a test sets, registered under epoch 7."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.registered: Any = me(7)
        self.looks = 0
        self.silent_ms = 0  # of the store
        self.partitions: dict[TopicPartition, Any] = {}
        times = {"zookeeper.session.timeout.ms": "6000", "replica.fetch.wait.max.ms": "500"}
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.node = node(times, id_=ME, clock=clock, image=MetadataImage(brokers={ME: me(7)}))
        membership: Any = SimpleNamespace(locate=self.locate, store_silent_ms=lambda: self.silent_ms)
        replicas: Any = SimpleNamespace(partitions=self.partitions)
        self.check = LeadershipCheck(self.node, membership, replicas, self.settled)
        self.check.start()

    async def locate(self, _: int) -> Any:
        self.looks += 1
        if isinstance(self.registered, Exception):
            raise self.registered
        return self.registered

    async def settled(self) -> None:
        """All roles are given."""


def play(monkeypatch: pytest.MonkeyPatch, scene: Callable[[Stand], Awaitable[None]]) -> None:
    monkeypatch.setattr(leadership_check, "RETRY_SECONDS", 0.001)

    async def whole() -> None:
        stand = Stand()
        await scene(stand)
        stand.check.close()

    virtual_time.run(whole())


def test_short_pauses_raise_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stand: Stand) -> None:
        stand.now_ms += 2000
        assert not stand.check.is_pending()
        assert stand.looks == 0

    play(monkeypatch, scene)


def test_whoever_is_registered_as_before_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stand: Stand) -> None:
        stand.now_ms += 2001
        assert stand.check.is_pending()
        await asyncio.sleep(0.01)
        assert not stand.check.is_pending()
        assert stand.looks == 1

    play(monkeypatch, scene)


@pytest.mark.parametrize("registered", [None, me(9), StoreError("no answer")])
def test_whoever_has_lost_its_registration_waits_for_a_new_image(
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


def test_without_the_store_doubt_ends_after_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_whom_the_store_has_given_up_stays_in_doubt(monkeypatch: pytest.MonkeyPatch, registered: Any) -> None:
    """A broker that stops registers no more: it would tell old offsets after a session."""

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
    """A partition that this broker leads, and when its followers have fetched."""
    followers = [SimpleNamespace(broker_id=2 + place, fetched_ms=at) for place, at in enumerate(fetched_ms)]
    return {TopicPartition(topic, 0): SimpleNamespace(is_leader=True, in_sync=(ME, 2, 3), followers=followers)}


@pytest.mark.parametrize(
    ("partitions", "is_cut_off"),
    [
        (led("__consumer_offsets", 998_000, 998_500), True),
        (led("__transaction_state", 998_000, 998_500), True),
        (led("__consumer_offsets", 998_000, 999_500), False),  # the store is away from everybody
        (led("__consumer_offsets"), False),  # nobody else is in sync, so nobody else can lead
        (led("orders", 998_000), False),
    ],
)
def test_who_reaches_neither_the_store_nor_its_followers_is_in_doubt_until_it_knows(
    monkeypatch: pytest.MonkeyPatch, partitions: dict[TopicPartition, Any], is_cut_off: bool
) -> None:
    async def scene(stand: Stand) -> None:
        stand.partitions.update(partitions)
        stand.silent_ms = 2_900
        stand.check._look()
        assert not stand.check.is_pending()
        stand.silent_ms = 3_000  # half a session: nobody else is elected yet
        stand.registered = StoreError("away")
        stand.check._look()
        assert stand.check.is_pending() == is_cut_off
        for _ in range(8):  # longer than a session, and still nobody answers
            stand.now_ms += 1000
            stand.check._seen_ms = stand.now_ms
            await asyncio.sleep(0.005)
        assert stand.check.is_pending() == is_cut_off
        stand.silent_ms = 0
        stand.registered = me(8)  # of our next life, which our image does not know yet
        await asyncio.sleep(0.01)
        assert stand.check.is_pending() == is_cut_off
        stand.registered = me(7)
        await asyncio.sleep(0.01)
        assert not stand.check.is_pending()

    play(monkeypatch, scene)
