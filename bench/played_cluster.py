"""One real controller and any number of simulated brokers: they register, poll, and acknowledge the changes that
they saw.

Membership, controller, watches, upkeep, healing, feed and the encoding of what each broker is told are ottla's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

from bench.played_store import PlayedEnsemble, PlayedStore
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import SystemClock
from ottla.base.names import TopicPartition
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.encoded_deltas import encode_answer
from ottla.controller.cluster.leader_rebalance import LeaderRebalancer
from ottla.controller.cluster.membership import ClusterMembership
from ottla.controller.decisions.ottla_version import LEVEL_MAX, SUPPORTED
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage
from ottla.controller.self_balancing.healer import Healer
from ottla.controller.stores.store import CreateNode, DeleteNode, SessionStore
from ottla.protocol.messages.inter_broker import ClusterPollRequest

POLL_VERSION = 1
WAIT_MS = 3_000


class Candidate:
    """A broker with only the parts that are needed to be controller."""

    def __init__(self, store: SessionStore, number: int) -> None:
        clock = SystemClock()
        self.number = number
        self.images = MetadataCache()
        live = DynamicBrokerConfig(BrokerSettings({"broker.id": str(number), "min.insync.replicas": "2"}))
        self.controller = ClusterController(store, clock, live, live.check_topic_configs, Random(number), self.images)
        self.membership = ClusterMembership(store, clock, live, self.controller, self.images, answers)
        self._upkeep = LeaderRebalancer(
            store, self.controller, self.images, self.membership.watches, lambda: live.broker, clock
        )
        self._healing = Healer(store, self.controller, self.images, clock, lambda: live.broker, no_disks, no_refills)

    @property
    def image(self) -> MetadataImage:
        return self.images.image

    async def start(self) -> None:
        await self.membership.start(registered(self.number), None)
        await self.membership.ready.wait()

    async def stop(self) -> None:
        self._upkeep.stop()
        self._healing.stop()
        await self.membership.close()


class PlayedBroker:
    """Polls, and counts the received bytes."""

    def __init__(self, number: int, epoch: int, controller: Candidate) -> None:
        self.number = number
        self.epoch = epoch
        self._controller = controller
        feed = controller.controller.feed
        self.place = (feed.epoch, feed.sequence)  # as a broker without missed changes
        self.bytes = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def ask(self) -> bytes:
        """One poll, and its encoded answer."""
        epoch, sequence = self.place
        request = ClusterPollRequest(
            broker_id=self.number,
            broker_epoch=self.epoch,
            controller_epoch=epoch,
            sequence=sequence,
            max_wait_ms=WAIT_MS,
            level_max=LEVEL_MAX,
        )
        response = await self._controller.membership.poll(request)
        assert response.error_code == 0, response
        deltas = [await self._controller.controller.feed.encoded(delta) for delta in response.deltas]
        if response.deltas:
            self.place = (response.controller_epoch, response.deltas[-1].sequence)
        return bytes(encode_answer(response, deltas, POLL_VERSION).body)

    async def _run(self) -> None:
        while True:
            before = self.place
            data = await self.ask()
            if self.place != before:
                self.bytes += len(data)


class PlayedCluster:
    """Brokers 1 to n, of which the first is the controller."""

    def __init__(self, brokers: int) -> None:
        self.ensemble = PlayedEnsemble()
        self.size = brokers
        self.controller = Candidate(PlayedStore(self.ensemble, SystemClock()), 1)
        self.brokers: dict[int, PlayedBroker] = {}

    async def start(self) -> None:
        await self.controller.start()
        self._hearing = asyncio.get_running_loop().create_task(self._be_heard())
        for number in range(2, self.size + 1):
            self.register(number)
        await self.until(lambda: len(self.controller.image.brokers) == self.size)

    async def stop(self) -> None:
        self._hearing.cancel()
        self.end_polls()
        await self.controller.stop()

    async def _be_heard(self) -> None:
        """Keeps non-polling brokers from expiring."""
        while True:
            now_ms = SystemClock().monotonic_ms()
            for number, broker in self.controller.image.brokers.items():
                self.controller.controller.heartbeats.touch(number, broker.epoch, now_ms)
            await asyncio.sleep(1)

    def register(self, number: int) -> None:
        data = tree.encode_broker(registered(number), 0)
        self.ensemble.multi([CreateNode(tree.broker_path(number), data)])

    def remove(self, number: int) -> None:
        self.ensemble.multi([DeleteNode(tree.broker_path(number))])

    def begin_polls(self) -> None:
        for number, broker in self.controller.image.brokers.items():
            if number != self.controller.number:
                self.brokers[number] = PlayedBroker(number, broker.epoch, self.controller)
                self.brokers[number].start()

    def end_polls(self) -> None:
        for broker in self.brokers.values():
            broker.stop()
        self.brokers.clear()

    async def until(self, is_so: Callable[[], bool], seconds_max: float = 120.0) -> None:
        deadline = time.monotonic() + seconds_max
        while not is_so():
            assert time.monotonic() < deadline, "this takes too long"
            await asyncio.sleep(0.001)


def registered(number: int) -> BrokerImage:
    return BrokerImage(number, {"PLAINTEXT": Endpoint(f"broker-{number}.example", 9092)}, None, 0, features=SUPPORTED)


async def answers(_: BrokerImage) -> bool:
    """All connections succeed."""
    return True


async def no_disks(_: int) -> None:
    """No disk usage is reported: nothing is healed here."""


async def no_refills(_: int, __: object) -> frozenset[TopicPartition]:
    """So no broker has to copy anything again."""
    return frozenset()
