"""The controller service with a real file: order, restarts, failures, cancelled requests."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests import virtual_time
from tests.virtual_time import LoopClock

from ottla.base.errors import Error, KafkaError
from ottla.controller.auto_topic_creation import BURST_MAX, AutoTopicCreationManager
from ottla.controller.decisions.topic_changes import NewPartitions, NewTopic
from ottla.controller.image import Endpoint, MetadataCache, MetadataImage
from ottla.controller.image_loader import load_image
from ottla.controller.producer_ids import ProducerIdManager
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.controller.stores.store import (
    CreateNode,
    Node,
    Outcome,
    SetNode,
    StoreError,
    StoreOperation,
    StoreUnusableError,
)

ENDPOINTS = {"PLAINTEXT": Endpoint("127.0.0.1", 9092)}


class Options:
    node_id = 1
    num_partitions = 2
    default_replication_factor = 1
    delete_topic_enable = True
    min_insync_replicas = 1


class FlakyStore(EmbeddedStore):
    """A store that fails or waits on demand."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.failure: StoreError | None = None
        self.read_failure: StoreError | None = None
        self.gate: asyncio.Event | None = None
        self.transactions = 0

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        self.transactions += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await super().multi(operations)

    async def subtree(self, path: str) -> dict[str, Node]:
        if self.read_failure is not None:
            raise self.read_failure
        return await super().subtree(path)


class Scene:
    """A service and its store."""

    def __init__(self, directory: Path, clock: Any = None) -> None:
        self.store, self.images, clock = FlakyStore(directory), MetadataCache(), clock or LoopClock()
        self.service = ControllerService(
            self.store, clock, Options(), lambda _: None, random=Random(1), images=self.images
        )
        self.auto_creation = AutoTopicCreationManager(self.service.create_topics, clock)
        self.producer_ids = ProducerIdManager(self.service.allocate_producer_ids)

    async def start(self, **options: Any) -> "Scene":
        await self.service.start(ENDPOINTS, **options)
        return self

    async def stored(self) -> MetadataImage:
        return load_image(await self.store.subtree("/"))


def run(tmp_path: Path, play: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = await Scene(tmp_path).start()
        await play(scene)
        await scene.service.close()

    virtual_time.run(whole())


def test_a_start_registers_the_broker_as_controller(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        image = scene.service.image
        assert (image.controller_id, image.controller_epoch, list(image.brokers)) == (1, 1, [1])
        assert len(image.cluster_id) == 22
        stored = await scene.stored()
        assert stored.brokers == image.brokers
        assert stored.cluster_id == image.cluster_id

    run(tmp_path, play)


def test_topics_and_settings_are_there_after_a_restart(tmp_path: Path) -> None:
    images: list[MetadataImage] = []

    async def life() -> None:
        scene = await Scene(tmp_path).start()
        if not images:
            await scene.service.create_topics([NewTopic("a", 3, configs=(("retention.ms", "5"),)), NewTopic("b")])
            await scene.service.create_partitions([NewPartitions("b", 5)])
            await scene.service.delete_topics([("a", None)])
            await scene.service.create_topics([NewTopic("a", 1, configs=(("retention.ms", "6"),))])
        images.append(scene.service.image)
        await scene.service.close()

    virtual_time.run(life())
    virtual_time.run(life())
    first, second = images
    assert second.topics_by_id.keys() == first.topics_by_id.keys()
    assert second.topic_configs == first.topic_configs == {"a": {"retention.ms": "6"}, "b": {}}
    assert len(second.topics["b"].partitions) == 5
    assert second.cluster_id == first.cluster_id
    assert second.controller_epoch == first.controller_epoch + 1
    assert second.brokers[1].epoch > first.brokers[1].epoch


def test_a_new_store_takes_the_cluster_id_of_the_folders_and_an_old_one_must_agree(tmp_path: Path) -> None:
    async def check() -> None:
        scene = await Scene(tmp_path).start(cluster_id="of-the-folders")
        assert scene.service.image.cluster_id == "of-the-folders"
        await scene.service.close()
        with pytest.raises(StoreUnusableError, match="belongs to cluster of-the-folders"):
            await Scene(tmp_path).start(cluster_id="another")

    virtual_time.run(check())


def test_a_damaged_node_is_named_at_start(tmp_path: Path) -> None:
    async def check() -> None:
        scene = await Scene(tmp_path).start()
        await scene.store.multi([CreateNode("/brokers/topics/a", b"{")])
        await scene.service.close()
        with pytest.raises(StoreUnusableError, match="/brokers/topics/a is damaged"):
            await Scene(tmp_path).start()

    virtual_time.run(check())


def test_listeners_see_the_new_image_before_the_client_is_answered(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        seen: list[tuple[set[str], set[str]]] = []
        scene.images.add_listener(lambda old, new: seen.append((set(old.topics), set(new.topics))))
        await scene.service.create_topics([NewTopic("a")])
        assert seen == [(set(), {"a"})]
        await scene.service.create_topics([NewTopic("a")])
        await scene.service.create_topics([NewTopic("b")], validate_only=True)
        assert len(seen) == 1

    run(tmp_path, play)


def test_the_image_waits_for_the_store(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.gate = asyncio.Event()
        task = asyncio.create_task(scene.service.create_topics([NewTopic("a")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert scene.service.image.topics == {}
        scene.store.gate.set()
        await task
        assert set(scene.service.image.topics) == {"a"}

    run(tmp_path, play)


def test_of_many_that_create_the_same_topic_one_does(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        answers = await asyncio.gather(*(scene.service.create_topics([NewTopic("a")]) for _ in range(20)))
        errors = sorted(result.error for (result,) in answers)
        assert errors == [Error.NONE] + [Error.TOPIC_ALREADY_EXISTS] * 19

    run(tmp_path, play)


def test_a_large_decision_gives_the_same(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        (result,) = await scene.service.create_topics([NewTopic("a", 1000)])
        assert result.topic is not None
        assert (await scene.stored()).topics == scene.service.image.topics
        await scene.service.delete_topics([("a", None)])
        assert scene.service.image.topics == {}

    run(tmp_path, play)


def test_cancelled_request_does_not_leave_a_change_incomplete(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.gate = asyncio.Event()
        task = asyncio.create_task(scene.service.create_topics([NewTopic("a")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        scene.store.gate.set()
        await scene.service.create_topics([NewTopic("b")])
        assert set(scene.service.image.topics) == set((await scene.stored()).topics) == {"a", "b"}

    run(tmp_path, play)


def test_timed_out_request_is_answered_and_its_change_continues(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.gate = asyncio.Event()
        with pytest.raises(KafkaError) as caught:
            await scene.service.create_topics([NewTopic("a")], timeout_ms=1)
        assert caught.value.error is Error.REQUEST_TIMED_OUT
        scene.store.gate.set()
        await scene.service.create_topics([NewTopic("b")], timeout_ms=10_000)
        assert set(scene.service.image.topics) == {"a", "b"}
        with pytest.raises(KafkaError):
            await scene.service.delete_topics([("a", None)], timeout_ms=0)
        assert "a" in scene.service.image.topics

    run(tmp_path, play)


def test_failing_store_is_reported_and_the_image_stays_correct(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.failure = StoreError("disk full")
        with pytest.raises(KafkaError, match="disk full") as caught:
            await scene.service.create_topics([NewTopic("a")])
        assert caught.value.error is Error.KAFKA_STORAGE_ERROR
        assert "must reload" in repr(scene.service)
        scene.store.failure = None
        await scene.store.multi([CreateNode("/config/brokers/7", b'{"version":1,"config":{"x":"1"}}')])
        await scene.service.create_topics([NewTopic("b")])
        assert set(scene.service.image.topics) == {"b"}
        assert scene.service.image.broker_configs["7"] == {"x": "1"}

    run(tmp_path, play)


def test_unreadable_store_is_reported_until_it_is_readable(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.failure = StoreError("disk full")
        scene.store.read_failure = StoreError("no such disk")
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await scene.service.create_topics([NewTopic("a")])
            assert caught.value.error is Error.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            await scene.service.allocate_producer_ids()
        scene.store.failure = scene.store.read_failure = None
        await scene.service.create_topics([NewTopic("a")])
        assert set(scene.service.image.topics) == {"a"}

    run(tmp_path, play)


def test_start_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    async def check() -> None:
        scene = Scene(tmp_path)
        scene.store.failure = StoreError("disk full")
        with pytest.raises(StoreUnusableError, match="cannot be registered: disk full"):
            await scene.start()
        await scene.service.close()

    virtual_time.run(check())


def test_a_deposed_controller_writes_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.store.multi([SetNode("/controller_epoch", b"99")])
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await scene.service.create_topics([NewTopic("a")])
            assert caught.value.error is Error.NOT_CONTROLLER
        assert (await scene.stored()).topics == {}
        assert "deposed" in repr(scene.service)

    run(tmp_path, play)


def test_ids_never_begin_with_a_dash(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        from ottla.controller.tree import encode_uuid  # noqa: PLC0415

        assert not any(encode_uuid(scene.service.new_uuid()).startswith("-") for _ in range(500))

    run(tmp_path, play)


def test_a_crash_anywhere_leaves_whole_topics(tmp_path: Path) -> None:
    """A broker starts with any prefix of the write-ahead log, and every topic is complete."""

    async def live(directory: Path) -> None:
        scene = await Scene(directory).start()
        for number in range(6):
            await scene.service.create_topics([NewTopic(f"t{number}", number + 1, configs=(("retention.ms", "5"),))])
        await scene.service.create_partitions([NewPartitions("t0", 4)])
        await scene.service.delete_topics([("t1", None)])
        shutil.copytree(directory, tmp_path / "crashed")
        await scene.service.close()

    async def recover(directory: Path) -> int:
        scene = await Scene(directory).start()
        image = scene.service.image
        for topic in image.topics.values():
            assert image.topic_configs[topic.name] == {"retention.ms": "5"}
            assert all(partition.leader == 1 for partition in topic.partitions)
            assert len(topic.partitions) in {int(topic.name[1:]) + 1, 4}
        await scene.service.close()
        return len(image.topics)

    (tmp_path / "living").mkdir()
    virtual_time.run(live(tmp_path / "living"))
    log = (tmp_path / "crashed" / "ottla.metadata.db-wal").read_bytes()
    counts = []
    for size in range(0, len(log) + 1, len(log) // 25):
        directory = tmp_path / f"cut-{size}"
        shutil.copytree(tmp_path / "crashed", directory)
        (directory / "ottla.metadata.db-wal").write_bytes(log[:size])
        counts.append(virtual_time.run(recover(directory)))
    assert counts[0] == 0
    assert max(counts) == 6
    assert virtual_time.run(recover(tmp_path / "crashed")) == 5


# ---- producer ids


def test_producer_ids_are_allocated_in_blocks_and_never_twice(tmp_path: Path) -> None:
    given: list[int] = []

    async def life() -> None:
        scene = await Scene(tmp_path).start()
        before = scene.store.transactions
        given.extend(await asyncio.gather(*(scene.producer_ids.next_id() for _ in range(1200))))
        assert scene.store.transactions == before + 2
        await scene.service.close()

    virtual_time.run(life())
    virtual_time.run(life())
    assert len(set(given)) == 2400
    assert given[:1200] == list(range(1200))
    assert given[1200] == 2000


def test_without_a_store_there_are_no_ids(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.failure = StoreError("disk full")
        with pytest.raises(KafkaError):
            await scene.producer_ids.next_id()
        scene.store.failure = None
        assert await scene.producer_ids.next_id() == 0

    run(tmp_path, play)


# ---- topics that are asked for


def test_many_that_ask_for_a_topic_create_it_once(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        before = scene.store.transactions
        await asyncio.gather(*(scene.auto_creation.create_missing(["a", f"b{number % 5}"]) for number in range(50)))
        assert set(scene.service.image.topics) == {"a", "b0", "b1", "b2", "b3", "b4"}
        assert len(scene.service.image.topics["a"].partitions) == 2
        assert scene.store.transactions <= before + 2

    run(tmp_path, play)


def test_bad_and_internal_names_are_not_created(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.auto_creation.create_missing(["..", "__consumer_offsets", "a"])
        assert set(scene.service.image.topics) == {"a"}

    run(tmp_path, play)


def test_made_up_names_are_held_to_a_rate(tmp_path: Path) -> None:
    class HeldClock:
        monotonic = 0

        def now_ms(self) -> int:
            return 0

        def monotonic_ms(self) -> int:
            return self.monotonic

    async def check() -> None:
        clock = HeldClock()
        scene = await Scene(tmp_path, clock).start()
        await scene.auto_creation.create_missing(f"t{number}" for number in range(BURST_MAX + 50))
        assert len(scene.service.image.topics) == BURST_MAX
        clock.monotonic += 100
        await scene.auto_creation.create_missing(f"u{number}" for number in range(50))
        assert len(scene.service.image.topics) == BURST_MAX + 10
        await scene.service.close()

    virtual_time.run(check())


def test_a_failing_store_does_not_stop_later_creation(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.store.failure = StoreError("disk full")
        await scene.auto_creation.create_missing(["a"])
        assert scene.service.image.topics == {}
        scene.store.failure = None
        await scene.auto_creation.create_missing(["a"])
        assert set(scene.service.image.topics) == {"a"}

    run(tmp_path, play)
