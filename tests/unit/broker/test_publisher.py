"""Partitions follow the metadata: their folders are made and taken away by workers, in order, and again if need be."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.names import TopicPartition
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.publisher import Publisher
from ottla.broker.workers import Workers
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.log_dirs import LogDirs
from virtual_time import LoopClock

ME = 1


def image_of(**partition_counts: int) -> MetadataImage:
    """Topics with so many partitions, all on this broker; ids are made of the counts, so that others are others."""
    topics = [
        TopicImage(name, UUID(int=count), tuple(PartitionImage(ME, 0, (ME,), (ME,)) for _ in range(count)))
        for name, count in partition_counts.items()
    ]
    return MetadataImage().with_topics(topics)


class Stand:
    """A publisher on real folders."""

    def __init__(self, *folders: Path) -> None:
        settings = BrokerSettings({"broker.id": "1", "node.id": "1", "log.dirs": ",".join(map(str, folders))})
        self.log_dirs = LogDirs.open(tuple(map(str, folders)), node_id=ME, clock=LoopClock())
        self.replicas = ReplicaSet(ME, self.log_dirs, lambda _: None, lambda _: None)
        self.workers = Workers(2)
        self.publisher = Publisher(ME, self.replicas, LiveSettings(settings), LoopClock(), self.workers)
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


def test_the_loop_never_makes_or_renames_a_folder(
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
        await stand.publisher.settled()
        assert len(stand.replicas) == 150
        stand.show(image_of())
        assert len(stand.replicas) < 150, "nobody may write to a deleted partition, whatever the disk does"
        await stand.publisher.settled()

    run(work)
    assert len(stand.replicas) == 0
    assert threads
    assert threading.current_thread().name not in threads
    assert all(name.endswith("-delete") for name in os.listdir(tmp_path / "a") if name.startswith("t-"))


def test_a_name_can_be_taken_again_at_once(stand: Stand) -> None:
    async def work() -> None:
        stand.show(image_of(t=3))
        stand.show(image_of())
        stand.show(image_of(t=2))
        await stand.publisher.settled()

    run(work)
    assert sorted(stand.replicas.partitions) == [("t", 0), ("t", 1)]
    assert all(partition.log.topic_id == UUID(int=2) for partition in stand.replicas.partitions.values())
    assert all(partition.is_leader for partition in stand.replicas.partitions.values())


def test_what_found_no_room_is_made_when_there_is_some(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def work() -> None:
        with monkeypatch.context() as disk:
            disk.setattr(files, "open_file", full)
            stand.show(image_of(t=2, gone=1))
            await stand.publisher.settled()
            assert stand.publisher.failed == {("t", 0), ("t", 1), ("gone", 0)}
        stand.show(image_of(t=2))
        await stand.publisher.retry()

    run(work)
    assert not stand.publisher.failed
    assert sorted(stand.replicas.partitions) == [("t", 0), ("t", 1)]


def test_a_folder_that_fails_leaves_the_partitions_to_the_others(
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
        await stand.publisher.settled()

    run(work)
    assert len(stand.replicas) == 4
    assert stand.log_dirs.dirs[0].failure is not None
    assert stand.log_dirs.dirs[1].partition_count == 4
    stand.close()


def test_new_partitions_are_spread_over_the_folders(tmp_path: Path) -> None:
    stand = Stand(tmp_path / "a", tmp_path / "b")

    async def work() -> None:
        stand.show(image_of(t=10))
        await stand.publisher.settled()

    run(work)
    assert [log_dir.partition_count for log_dir in stand.log_dirs.dirs] == [5, 5]
    stand.close()


def test_a_change_that_fails_does_not_keep_the_next_one_from_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with monkeypatch.context() as broken:
            broken.setattr(stand.log_dirs, "begin_create", lambda *_: 1 / 0)
            stand.show(image_of(t=1))
        stand.show(image_of(t=1, u=1))
        await stand.publisher.settled()

    run(work)
    assert stand.replicas.get(*TopicPartition("u", 0)) is not None


def test_only_a_topic_that_is_gone_is_deleted_and_not_one_whose_node_cannot_be_read(stand: Stand) -> None:
    async def play() -> None:
        stand.show(image_of(a=1, b=2))
        await stand.publisher.settled()
        log = stand.replicas.partitions["b", 0].log
        stand.show(MetadataImage(damaged=["/brokers/topics/b"]))  # of a controller that can read neither
        await stand.publisher.settled()
        assert sorted(stand.replicas.partitions) == [("b", 0), ("b", 1)]
        stand.show(image_of(a=1, b=2))
        await stand.publisher.settled()
        assert stand.replicas.partitions["b", 0].log is log

    asyncio.run(play())


def test_what_another_folder_is_in_the_way_of_is_not_tried_again_and_again(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "a" / "t-0").mkdir()

    async def work() -> None:
        stand.show(image_of(t=1))
        await stand.publisher.settled()

    run(work)
    assert stand.publisher.failed == {("t", 0)}
    assert not stand.publisher.without_room
