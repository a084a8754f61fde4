"""The metadata poller of a broker, with a scripted controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest
from tests import virtual_time

from ottla.base.errors import Error
from ottla.broker.cluster.metadata_poller import MetadataPoller
from ottla.broker.cluster.peers import Peers
from ottla.controller.cluster.deltas import difference, snapshot
from ottla.controller.cluster.membership import ClusterMembership
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import Node, StoreAwayError
from ottla.controller.tree import PartitionState, encode_partition_state
from ottla.network.peer import PeerError
from ottla.protocol.messages.inter_broker import ClusterPollRequest, ClusterPollResponse, OfflineReplicas

Answer = ClusterPollResponse | PeerError


class FakeStore:
    """Partition 0 of topic "a", as in ZooKeeper."""

    session_timeout_ms = 6000

    def __init__(self) -> None:
        self.data = encode_partition_state(PartitionState(2, 0, (2, 1), 5))

    async def get(self, path: str) -> Node:
        assert path == "/brokers/topics/a/partitions/0/state", "the other partition has no other replica"
        return Node(self.data, 0, 0, 0)


class FakeMembership:
    """Broker 2, which follows broker 1."""

    def __init__(self, images: MetadataCache) -> None:
        self._images = images
        self.node_id = 2
        self.broker_epoch = 20
        self.controller_id = 1
        self.is_controller = False
        self.controller_changed = asyncio.Event()
        self.has_store = True
        self.suspected: list[int] = []
        self.looks = 0
        self.store = FakeStore()

    def has_session(self) -> bool:
        return self.has_store

    async def locate(self, broker_id: int) -> BrokerImage:
        if not self.has_store:
            raise StoreAwayError("no answer")
        return BrokerImage(broker_id, {"PLAINTEXT": Endpoint("h", 1)}, None, 10)

    async def suspect_controller(self, elected: int) -> None:
        self.suspected.append(elected)

    def check_registration(self) -> None:
        self.looks += 1

    def publish_image(self, image: MetadataImage) -> None:
        self._images.publish(image)


class FakePeer:
    def __init__(self, controller: FakeController) -> None:
        self._controller = controller

    async def call(self, request: ClusterPollRequest, _: type[Any], timeout_ms: int) -> ClusterPollResponse:
        assert timeout_ms > request.max_wait_ms
        return await self._controller.answer(request)

    def close(self) -> None:
        pass


class FakeController:
    """Answers one poll after the other, then stops responding."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int]] = []  # epoch and sequence of each poll
        self.offline: list[list[OfflineReplicas]] = []

    def open(self, broker_id: int, purpose: str) -> FakePeer:
        assert (broker_id, purpose) == (1, "poll")
        return FakePeer(self)

    async def call(
        self, broker_id: int, request: ClusterPollRequest, _: type[Any], *, timeout_ms: int
    ) -> ClusterPollResponse:
        assert request.max_wait_ms == 0
        assert timeout_ms > 2000, "a controller waits so long for unknown brokers"
        if broker_id != 3:
            raise PeerError("gone")
        return await self.answer(request)

    async def answer(self, request: ClusterPollRequest) -> ClusterPollResponse:
        self.asked.append((request.controller_epoch, request.sequence))
        self.offline.append(request.offline)
        if not self.answers:
            await asyncio.Event().wait()
        found = self.answers.pop(0)
        if isinstance(found, PeerError):
            raise found
        return found


def image_with(*topics: str) -> MetadataImage:
    image = MetadataImage(cluster_id="c", controller_id=1, controller_epoch=5)
    rows = [TopicImage(name, UUID(int=ord(name)), (PartitionImage(1, 0, (1,), (1,)),)) for name in topics]
    return image.with_topics(rows, configs={name: {} for name in topics})


def answer(*deltas: Any, epoch: int = 5) -> ClusterPollResponse:
    return ClusterPollResponse(controller_epoch=epoch, deltas=list(deltas))


def run(
    controller: FakeController,
    play: Callable[[FakeMembership, MetadataCache, MetadataPoller], Awaitable[None]],
    offline: Any = list,
) -> None:
    async def whole() -> None:
        images = MetadataCache()
        membership = FakeMembership(images)
        loop = MetadataPoller(cast("ClusterMembership", membership), images, cast("Peers", controller), settle, offline)
        loop.start()
        try:
            async with asyncio.timeout(60):
                await play(membership, images, loop)
        finally:
            loop.stop()

    virtual_time.run(whole())


async def settle() -> None:
    await asyncio.sleep(0)


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_snapshot_then_deltas_are_applied_and_acknowledged_by_the_next_poll() -> None:
    one, two = image_with("a"), image_with("a", "b")
    controller = FakeController(answer(snapshot(one, 7)), answer(difference(one, two, 8)), answer())

    async def play(_: FakeMembership, images: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 4)
        assert set(images.image.topics) == {"a", "b"}
        assert controller.asked == [(-1, -1), (5, 7), (5, 8), (5, 8)]

    run(controller, play)


def test_a_gap_or_a_delta_that_does_not_fit_is_repaired_by_a_snapshot() -> None:
    one, two = image_with("a"), image_with("a", "b")
    strange = difference(one, two, 8)
    strange.removed_topics = [UUID(int=77)]
    controller = FakeController(
        answer(snapshot(one, 7)), answer(difference(one, two, 9)), answer(snapshot(one, 7)), answer(strange)
    )

    async def play(_: FakeMembership, images: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 5)
        assert [sequence for _, sequence in controller.asked] == [-1, 7, -1, 7, -1]
        assert set(images.image.topics) == {"a"}

    run(controller, play)


def test_responses_of_an_older_controller_are_ignored() -> None:
    older = MetadataImage(cluster_id="c", controller_id=3, controller_epoch=4)
    controller = FakeController(answer(snapshot(image_with("a"), 1)), answer(snapshot(older, 9), epoch=4))

    async def play(_: FakeMembership, images: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 3)
        assert images.image.controller_epoch == 5

    run(controller, play)


def test_a_broken_connection_makes_the_controller_suspect_and_a_late_response_does_not() -> None:
    controller = FakeController(PeerError("late", is_timeout=True), PeerError("reset", is_refused=True))

    async def play(membership: FakeMembership, _: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 3)
        assert membership.suspected == [1]

    run(controller, play)


def test_an_unknown_broker_checks_its_registration() -> None:
    controller = FakeController(ClusterPollResponse(error_code=Error.STALE_BROKER_EPOCH))

    async def play(membership: FakeMembership, _: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 2)
        assert membership.looks == 1

    run(controller, play)


def test_a_broker_that_is_too_old_keeps_the_reason_until_it_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    refused = ClusterPollResponse(error_code=Error.UNSUPPORTED_VERSION, error_message="broker 2 is refused")
    controller = FakeController(refused, refused, answer(snapshot(image_with("a"), 1)))

    async def play(_: FakeMembership, images: MetadataCache, loop: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 2)
        assert loop.rejection == "broker 2 is refused"
        assert caplog.text.count("broker 2 is refused") == 1
        await until(lambda: "a" in images.image.topics)
        assert loop.rejection is None

    run(controller, play)


def test_an_unknown_error_code_is_an_error() -> None:
    controller = FakeController(ClusterPollResponse(error_code=9999), answer(snapshot(image_with("a"), 1)))

    async def play(_: FakeMembership, images: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: "a" in images.image.topics)

    run(controller, play)


def test_a_new_controller_stops_polling_and_starts_again_later() -> None:
    controller = FakeController(answer(snapshot(image_with("a"), 1)))

    async def play(membership: FakeMembership, _: MetadataCache, __: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 2)
        membership.is_controller = True
        membership.controller_id = 2
        membership.controller_changed.set()
        membership.controller_changed = asyncio.Event()
        await asyncio.sleep(0.01)
        assert len(controller.asked) == 2
        membership.is_controller = False
        membership.controller_id = 1
        membership.controller_changed.set()
        membership.controller_changed = asyncio.Event()
        await until(lambda: len(controller.asked) == 3)
        assert controller.asked[-1][1] == -1

    run(controller, play)


def test_a_failed_directory_is_reported_at_once() -> None:
    controller = FakeController(answer(snapshot(image_with("a"), 1)))
    offline: list[OfflineReplicas] = []

    async def play(_: FakeMembership, __: MetadataCache, loop: MetadataPoller) -> None:
        await until(lambda: len(controller.asked) == 2)
        offline.append(OfflineReplicas(topic_id=UUID(int=97), partitions=[0]))
        loop.poll_now()
        await until(lambda: len(controller.asked) == 3)
        assert controller.offline[-1] == offline

    run(controller, play, offline=lambda: list(offline))


# ---- isolated from the store


def led_by_us() -> MetadataImage:
    """Broker 2 leads two partitions; it has the only replica of one."""
    ours = TopicImage("a", UUID(int=97), (PartitionImage(2, 0, (2, 3), (2, 3)), PartitionImage(2, 0, (2,), (2,))))
    brokers = {id_: BrokerImage(id_, {"PLAINTEXT": Endpoint("h", id_)}, None, id_) for id_ in (1, 2, 3)}
    image = MetadataImage(cluster_id="c", controller_id=1, controller_epoch=5, brokers=brokers)
    return image.with_topics([ours], configs={"a": {}})


def leaders(images: MetadataCache) -> list[int]:
    return [partition.leader for partition in images.image.topics["a"].partitions]


STALE = ClusterPollResponse(error_code=Error.STALE_BROKER_EPOCH, controller_epoch=6)


def test_a_broker_that_was_given_up_leads_nothing_if_the_store_is_unreachable() -> None:
    again = answer(snapshot(led_by_us(), 1), epoch=7)
    controller = FakeController(answer(snapshot(led_by_us(), 1)), STALE, STALE, again)

    async def play(membership: FakeMembership, images: MetadataCache, _: MetadataPoller) -> None:
        await until(lambda: images.image.topics)
        membership.has_store = False
        await until(lambda: leaders(images) == [-1, 2])
        await until(lambda: leaders(images) == [2, 2])
        assert (5, -1) in controller.asked, "a snapshot is requested"

    run(controller, play)


def test_a_broker_that_registers_late_keeps_its_leaderships() -> None:
    controller = FakeController(answer(snapshot(led_by_us(), 1)), STALE)

    async def play(membership: FakeMembership, images: MetadataCache, _: MetadataPoller) -> None:
        await until(lambda: membership.looks)
        await asyncio.sleep(0.01)
        assert leaders(images) == [2, 2]

    run(controller, play)


def test_a_broker_without_a_controller_leads_nothing_as_soon_as_others_lead() -> None:
    gone = [PeerError("late", is_timeout=True) for _ in range(20)]
    again = answer(snapshot(led_by_us(), 1), epoch=7)
    controller = FakeController(answer(snapshot(led_by_us(), 1)), *gone, again)

    async def play(membership: FakeMembership, images: MetadataCache, _: MetadataPoller) -> None:
        clock = asyncio.get_running_loop().time
        await until(lambda: images.image.topics)
        began = clock()
        for state in (PartitionState(2, 1, (2, 1), 6), PartitionState(1, 0, (1,), 4)):
            membership.store.data = encode_partition_state(state)
            await asyncio.sleep(3.5)
            assert leaders(images) == [2, 2], "it still leads"
        membership.store.data = b"{"
        await asyncio.sleep(1.5)
        assert leaders(images) == [2, 2], "the successors are unknown"
        membership.store.data = encode_partition_state(PartitionState(1, 1, (1,), 6))
        await until(lambda: leaders(images) == [-1, 2])
        assert clock() - began < 10
        await until(lambda: leaders(images) == [2, 2])
        assert (5, -1) in controller.asked, "a snapshot is requested"

    run(controller, play)


def test_a_broker_that_the_controller_may_still_wait_for_continues() -> None:
    controller = FakeController(
        answer(snapshot(led_by_us(), 1)), *(PeerError("late", is_timeout=True) for _ in range(20))
    )

    async def play(membership: FakeMembership, images: MetadataCache, _: MetadataPoller) -> None:
        await until(lambda: images.image.topics)
        membership.store.data = encode_partition_state(PartitionState(1, 1, (1,), 6))
        await asyncio.sleep(5.9)
        assert leaders(images) == [2, 2], "a single partition may move for other reasons"
        await until(lambda: leaders(images) == [-1, 2])

    run(controller, play)


def test_a_former_controller_without_the_store_asks_other_brokers_and_gives_up() -> None:
    controller = FakeController(answer(snapshot(led_by_us(), 1)), PeerError("gone"), STALE)

    async def play(membership: FakeMembership, images: MetadataCache, _: MetadataPoller) -> None:
        await until(lambda: images.image.topics)
        membership.has_store = False
        membership.controller_id = -1
        membership.controller_changed.set()
        await until(lambda: leaders(images) == [-1, 2])

    run(controller, play)


def test_without_any_controller_all_brokers_continue() -> None:
    no_controller = ClusterPollResponse(error_code=Error.NOT_CONTROLLER)
    controller = FakeController(answer(snapshot(led_by_us(), 1)), PeerError("gone"), no_controller)

    async def play(membership: FakeMembership, images: MetadataCache, _: MetadataPoller) -> None:
        await until(lambda: images.image.topics)
        membership.has_store = False
        membership.controller_id = -1
        membership.controller_changed.set()
        await until(lambda: not controller.answers)
        await asyncio.sleep(0.01)
        assert leaders(images) == [2, 2]

    run(controller, play)
