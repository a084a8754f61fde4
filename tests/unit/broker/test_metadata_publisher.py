"""Partitions follow the metadata: worker threads create and remove their directories, in order, with retries."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from tests import virtual_time
from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings
from ottla.base.names import TopicPartition
from ottla.broker import metadata_publisher
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.log_manager import checkpoints
from ottla.broker.log_manager.checkpoints import MetadataTransactionRecorder
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.offload import Workers
from ottla.controller.cluster.deltas import Place, apply_deltas
from ottla.controller.cluster.feed import Feed
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.checkpoints import read_transaction
from ottla.storage.log_dir import LogCreation
from ottla.storage.log_dirs import LogDirs

ME = 1


def image_of(**partition_counts: int) -> MetadataImage:
    """Topics with these partition counts, all on this broker; ids depend on the counts, so that recreated topics
    differ.
    """
    topics = [
        TopicImage(name, UUID(int=count), tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in range(count)))
        for name, count in partition_counts.items()
    ]
    return MetadataImage().with_topics(topics)


class Stand:
    """A publisher on real directories."""

    def __init__(self, *folders: Path) -> None:
        settings = BrokerSettings({"broker.id": "1", "node.id": "1", "log.dirs": ",".join(map(str, folders))})
        self.log_dirs = LogDirs.open(tuple(map(str, folders)), node_id=ME, clock=LoopClock())
        self.replicas = ReplicaSet(ME, self.log_dirs, lambda _: None, lambda _: None)
        self.workers = Workers(2)
        self.publisher = BrokerMetadataPublisher(
            ME, self.replicas, DynamicBrokerConfig(settings), LoopClock(), self.workers
        )
        self.image = MetadataImage()

    def show(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.publisher.on_image(old, image)

    def close(self) -> None:
        self.workers.shutdown()
        self.log_dirs.close(clean=False)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path / "a")
    yield stand
    stand.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(main())


def test_the_loop_never_creates_or_renames_a_directory(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads: set[str] = set()
    for name in ("make_directory", "open_file", "rename", "unlink", "sync"):
        real = getattr(files, name)

        def noted(*arguments: object, _real: Callable[..., object] = real) -> object:
            threads.add(threading.current_thread().name)
            return _real(*arguments)

        monkeypatch.setattr(files, name, noted)

    async def work() -> None:
        stand.show(image_of(t=150))
        await stand.publisher.wait_until_applied()
        assert len(stand.replicas) == 150
        stand.show(image_of())
        assert len(stand.replicas) < 150, "deleted partitions accept no writes, whatever the disk does"
        await stand.publisher.wait_until_applied()

    run(work)
    assert len(stand.replicas) == 0
    assert threads
    assert threading.current_thread().name not in threads
    assert all(name.endswith("-delete") for name in os.listdir(tmp_path / "a") if name.startswith("t-"))


def test_a_topic_name_can_be_reused_at_once(stand: Stand) -> None:
    async def work() -> None:
        stand.show(image_of(t=3))
        stand.show(image_of())
        stand.show(image_of(t=2))
        await stand.publisher.wait_until_applied()

    run(work)
    assert sorted(stand.replicas.partitions) == [("t", 0), ("t", 1)]
    assert all(partition.log.topic_id == UUID(int=2) for partition in stand.replicas.partitions.values())
    assert all(partition.is_leader for partition in stand.replicas.partitions.values())


def test_partitions_that_did_not_fit_are_created_when_there_is_space(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def work() -> None:
        with monkeypatch.context() as disk:
            disk.setattr(files, "open_file", full)
            stand.show(image_of(t=2, gone=1))
            await stand.publisher.wait_until_applied()
            assert stand.publisher.failed == {("t", 0), ("t", 1), ("gone", 0)}
        stand.show(image_of(t=2))
        await stand.publisher.retry()

    run(work)
    assert not stand.publisher.failed
    assert sorted(stand.replicas.partitions) == [("t", 0), ("t", 1)]


def test_partitions_of_a_failing_directory_are_created_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand(tmp_path / "a", tmp_path / "b")
    real = files.make_directory

    def dead(path: str, *rest: int) -> None:
        if path.startswith(str(tmp_path / "a")):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path, *rest)

    monkeypatch.setattr(files, "make_directory", dead)

    async def work() -> None:
        stand.show(image_of(t=4))
        await stand.publisher.wait_until_applied()

    run(work)
    assert len(stand.replicas) == 4
    assert stand.log_dirs.dirs[0].offline_reason is not None
    assert stand.log_dirs.dirs[1].partition_count == 4
    stand.close()


def test_new_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "a", tmp_path / "b")

    async def work() -> None:
        stand.show(image_of(t=10))
        await stand.publisher.wait_until_applied()

    run(work)
    assert [log_dir.partition_count for log_dir in stand.log_dirs.dirs] == [5, 5]
    stand.close()


def test_a_failing_change_does_not_block_the_next_one(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with monkeypatch.context() as broken:
            broken.setattr(stand.log_dirs, "begin_create", lambda *_: 1 / 0)
            stand.show(image_of(t=1))
        stand.show(image_of(t=1, u=1))
        await stand.publisher.wait_until_applied()

    run(work)
    assert stand.replicas.get(*TopicPartition("u", 0)) is not None


def test_requests_do_not_wait_for_a_disk_that_hangs(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()
    real = files.make_directory

    def hang(path: str, *rest: int) -> None:
        may_go_on.wait()
        real(path, *rest)

    monkeypatch.setattr(files, "make_directory", hang)
    monkeypatch.setattr(metadata_publisher, "WAIT_MS_MIN", 1)

    async def work() -> None:
        stand.show(image_of(t=1))
        await stand.publisher.wait_until_applied(5)
        assert not stand.replicas.partitions
        may_go_on.set()
        await stand.publisher.wait_until_applied()
        assert ("t", 0) in stand.replicas.partitions

    run(work)


@pytest.mark.parametrize("failing", ["create", "disk", "role", "delete"])
def test_a_change_that_failed_is_applied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    stand = Stand(tmp_path / "a")

    async def work() -> None:
        if failing == "delete":
            stand.show(image_of(t=1))
            await stand.publisher.wait_until_applied()
        with monkeypatch.context() as broken:
            if failing == "create":
                broken.setattr(stand.log_dirs, "begin_create", lambda *_: 1 / 0)
            elif failing == "disk":
                broken.setattr(LogCreation, "run", lambda _: 1 / 0)
            elif failing == "role":
                broken.setattr(Partition, "_change_leader", lambda *_: 1 / 0)
            else:
                broken.setattr(stand.log_dirs, "begin_delete", lambda *_: 1 / 0)
            stand.show(image_of() if failing == "delete" else image_of(t=1))
            await asyncio.sleep(0.9)  # the first retry fails, too
            assert (("t", 0) in stand.replicas.partitions) == (failing in ("role", "delete"))
        await asyncio.sleep(2)
        if failing == "delete":
            assert ("t", 0) not in stand.replicas.partitions
        else:
            assert stand.replicas.partitions["t", 0].is_leader

    virtual_time.run(work())
    stand.close()


def test_a_failing_listener_for_settings_keeps_nothing_from_the_image(stand: Stand) -> None:
    heard: list[str | int] = []
    stand.publisher._live.on_change(lambda _: 1 / 0)
    stand.publisher._live.on_change(lambda settings: heard.append(settings.log_cleaner_threads))

    async def work() -> None:
        stand.show(image_of(t=1).with_broker_config(str(ME), {"log.cleaner.threads": "3"}))
        await stand.publisher.wait_until_applied()

    run(work)
    assert heard == [3]
    assert ("t", 0) in stand.replicas.partitions


def test_only_a_missing_topic_is_deleted_and_not_one_with_an_unreadable_node(stand: Stand) -> None:
    async def play() -> None:
        stand.show(image_of(a=1, b=2))
        await stand.publisher.wait_until_applied()
        log = stand.replicas.partitions["b", 0].log
        stand.show(MetadataImage(damaged=["/brokers/topics/b"]))  # of a controller that can read neither
        await stand.publisher.wait_until_applied()
        assert sorted(stand.replicas.partitions) == [("b", 0), ("b", 1)]
        stand.show(image_of(a=1, b=2))
        await stand.publisher.wait_until_applied()
        assert stand.replicas.partitions["b", 0].log is log

    asyncio.run(play())


def test_a_partition_blocked_by_another_directory_is_not_retried_repeatedly(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "a" / "t-0").mkdir()

    async def work() -> None:
        stand.show(image_of(t=1))
        await stand.publisher.wait_until_applied()

    run(work)
    assert stand.publisher.failed == {("t", 0)}
    assert not stand.publisher.without_space


def recorded(stand: Stand) -> list[int | None]:
    return [read_transaction(log_dir.path) for log_dir in stand.log_dirs.dirs]


def test_each_directory_records_the_last_transaction_that_changed_its_partitions(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "a", tmp_path / "b")
    last_transaction = 0
    stand.publisher.recorder = MetadataTransactionRecorder(stand.workers, lambda: last_transaction)

    async def play() -> None:
        nonlocal last_transaction
        one, both = image_of(one=1), image_of(one=1, two=2)
        for number, image, expected in (
            (5, one, [5, None]),
            (9, both, [9, 9]),
            (11, both.with_topics(configs={"one": {"retention.ms": "1"}}), [9, 9]),
            (12, both.with_topics(configs={"one": {"retention.ms": "1"}}).with_topics(removed=["one"]), [12, 9]),
        ):
            last_transaction = number
            stand.show(image)
            await stand.publisher.wait_until_applied()
            await stand.publisher.wait_until_recorded()
            assert recorded(stand) == expected

    asyncio.run(play())
    stand.close()
    again = LogDirs.open((str(tmp_path / "a"), str(tmp_path / "b")), node_id=ME, clock=LoopClock())
    assert [log_dir.metadata_transaction for log_dir in again.dirs] == [12, 9]
    again.close(clean=False)


def test_a_new_topic_does_not_wait_until_its_transaction_is_recorded(stand: Stand) -> None:
    disk, may_write = ThreadPoolExecutor(1), threading.Event()
    disk.submit(may_write.wait)
    numbers = iter(range(1, 100))
    stand.publisher.recorder = MetadataTransactionRecorder(disk, lambda: next(numbers))

    async def play() -> None:
        for count in (1, 2, 3):
            stand.show(image_of(**{f"t{number}": 1 for number in range(count)}))
            await stand.publisher.wait_until_applied()
            assert len(stand.replicas) == count
        first, *_ = recorded(stand)
        assert first is None
        may_write.set()
        await stand.publisher.wait_until_recorded()
        first, *_ = recorded(stand)
        assert first == 3

    asyncio.run(play())
    disk.shutdown()


def test_a_kill_after_several_new_topics_leaves_the_latest_number(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync may be delayed, the write to the page cache must not: a process may be killed at any time."""
    monkeypatch.setattr(checkpoints, "PAUSE_SECONDS", 60.0)
    numbers = iter(range(1, 100))
    stand.publisher.recorder = MetadataTransactionRecorder(stand.workers, lambda: next(numbers))

    async def play() -> None:
        for count in (1, 2, 3):
            stand.show(image_of(**{f"t{number}": 1 for number in range(count)}))
            await stand.publisher.wait_until_applied()
            async with asyncio.timeout(5):
                while recorded(stand)[0] != count:
                    await asyncio.sleep(0.001)

    asyncio.run(play())


# ---- acknowledged changes take effect in order: a throttle before the replica that it covers

RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"
LEADER = 2


def topic(*replicas: int) -> TopicImage:
    state = PartitionImage(LEADER, len(replicas), (LEADER,), replicas, adding_replicas=replicas[1:])
    return TopicImage("t", UUID(int=1), (state,))


def commands() -> list[MetadataImage]:
    """The images of single requests: the throttle, then the move, then its end."""
    new = MetadataImage(cluster_id="c").with_controller(3, 1).with_topics([topic(LEADER)])
    rate = new.with_broker_config(str(ME), {RATE: "1"})
    throttled = rate.with_topics(configs={"t": {REPLICAS: f"0:{ME}"}})
    moving = throttled.with_topics([topic(LEADER, ME)])
    return [new, rate, throttled, moving]


@pytest.mark.parametrize("polls", [1, 2, 3, 4])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_throttle_before_a_move_is_in_force_before_the_copy_starts(
    tmp_path: Path, polls: int, is_snapshot: bool
) -> None:
    """Also when one poll delivers all of these changes to the follower."""
    stand = Stand(tmp_path)
    live = stand.publisher._live
    in_force: list[tuple[int, str | None]] = []

    async def play() -> None:
        feed = Feed()
        feed.begin(MetadataImage(), 1)
        stand.replicas.on_role = lambda _: in_force.append(
            (live.broker.follower_replication_throttled_rate, stand.image.topic_configs.get("t", {}).get(REPLICAS))
        )
        place = Place(-1, -1) if is_snapshot else Place(1, 0)
        for number, image in enumerate(commands(), 1):
            feed.publish(image)
            if number % polls == 0 or number == len(commands()):
                after, place = apply_deltas(stand.image, place, 1, feed.unseen(*place))
                stand.show(after)
        await stand.publisher.wait_until_applied()

    virtual_time.run(play())
    stand.close()
    assert in_force == [(1, f"0:{ME}")]
