"""The order of log recovery after a crash."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base.names import TopicPartition
from ottla.broker.log_manager.log_dir_loader import (
    TINY_BYTES_MAX,
    TINY_LOGS_PER_BATCH,
    LogDirLoader,
    UncleanLog,
    measure_unread_bytes,
    next_to_recover,
)
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.storage.log_dir import UnopenedLog

TOPIC = TopicImage("topic", UUID(int=1), ())
NOT_TINY = TINY_BYTES_MAX + 1


def loading_with(threads: int = 1) -> LogDirLoader:
    """Without log directories: the tests supply the logs to recover."""
    replicas: Any = SimpleNamespace(log_dirs=None, recovering_partitions=set())
    me = node({"num.recovery.threads.per.data.dir": str(threads)})
    return LogDirLoader(me, replicas, cast("Any", None), lambda _: None)


def found(folder: Path, number: int, sizes: dict[int, int], recovery_point: int = 0) -> UnopenedLog:
    directory = folder / f"topic-{number}"
    directory.mkdir()
    for base_offset, size in sizes.items():
        (directory / f"{base_offset:020d}.log").write_bytes(bytes(size))
    return UnopenedLog(TopicPartition("topic", number), str(directory), False, recovery_point, 0)


def unclean(number: int, unread_bytes: int) -> UncleanLog:
    each = UncleanLog([UnopenedLog(TopicPartition("topic", number), "", False, 0, 0)], TOPIC)
    each.unread_bytes = unread_bytes
    return each


def test_records_before_the_recovery_point_are_not_read(tmp_path: Path) -> None:
    sizes = {0: 100, 10: 200, 20: 400}
    logs = [UncleanLog([found(tmp_path, n, sizes, point)], TOPIC) for n, point in enumerate((0, 15, 20, 99))]

    measure_unread_bytes(logs)

    assert [each.unread_bytes for each in logs] == [700, 600, 400, 400]


def test_a_missing_directory_is_reported_when_it_is_opened(tmp_path: Path) -> None:
    gone = UncleanLog([UnopenedLog(TopicPartition("topic", 0), str(tmp_path / "gone"), False, 0, 0)], TOPIC)

    measure_unread_bytes([gone])

    assert gone.unread_bytes == 0


def test_one_thread_takes_the_smallest_and_another_the_largest() -> None:
    order: list[tuple[str, int]] = []

    async def run() -> None:
        loading = loading_with()
        queue = deque(unclean(number, NOT_TINY) for number in range(6))

        async def recover(some: list[UncleanLog]) -> None:
            task = asyncio.current_task()
            assert task is not None
            order.extend((task.get_name(), each.copies[0].partition.partition) for each in some)
            await asyncio.sleep(0)

        loading._recover = recover  # type: ignore[method-assign]
        small = asyncio.create_task(loading._recover_all(queue, takes_smallest=True), name="small")
        large = asyncio.create_task(loading._recover_all(queue, takes_smallest=False), name="large")
        await asyncio.gather(small, large)

    virtual_time.run(run())

    assert [number for name, number in order if name == "small"] == [0, 1, 2]
    assert [number for name, number in order if name == "large"] == [5, 4, 3]


def test_tiny_logs_are_opened_together() -> None:
    queue = deque([*(unclean(number, 10) for number in range(TINY_LOGS_PER_BATCH + 2)), unclean(-1, NOT_TINY)])
    taken = [next_to_recover(queue, takes_smallest=takes_smallest) for takes_smallest in (False, True, False)]
    assert [len(some) for some in taken] == [1, TINY_LOGS_PER_BATCH, 2]
    assert not queue
    assert taken[0][0].unread_bytes == NOT_TINY


def test_a_large_log_is_not_opened_together_with_tiny_ones() -> None:
    queue = deque([unclean(0, 10), unclean(1, 10), unclean(2, NOT_TINY), unclean(3, NOT_TINY)])
    taken = [[log.unread_bytes for log in next_to_recover(queue, takes_smallest=True)] for _ in range(3)]
    assert taken == [[10, 10], [NOT_TINY], [NOT_TINY]]


def test_a_log_that_cannot_be_opened_does_not_block_the_others() -> None:
    served: list[int] = []
    given_up: list[tuple[int, str]] = []

    def open_log(found: UnopenedLog) -> Any:
        if found.partition.partition == 1:
            raise OSError("no")
        return SimpleNamespace(number=found.partition.partition)

    async def run() -> None:
        loading: Any = loading_with()
        loading._open = open_log
        loading._serve = lambda opened, _topic: served.append(opened[0][1].number)
        loading._on_open_failure = lambda each, error: given_up.append((each.copies[0].partition.partition, str(error)))
        await loading._recover([unclean(number, 10) for number in range(3)])

    virtual_time.run(run())

    assert served == [0, 2]
    assert given_up == [(1, "no")]


def test_an_unexpected_failure_is_raised_when_the_others_are_served() -> None:
    served: list[int] = []

    def open_log(found: UnopenedLog) -> Any:
        if found.partition.partition == 1:
            raise ValueError("a mistake of ours")
        return SimpleNamespace(number=found.partition.partition)

    async def run() -> None:
        loading: Any = loading_with()
        loading._open = open_log
        loading._serve = lambda opened, _topic: served.append(opened[0][1].number)
        with pytest.raises(ValueError, match="a mistake of ours"):
            await loading._recover([unclean(number, 10) for number in range(3)])

    virtual_time.run(run())

    assert served == [0, 2]


def test_each_directory_has_its_own_threads(tmp_path: Path) -> None:
    at_work: dict[str, int] = {}
    most: dict[str, int] = {}
    logs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        logs += [UncleanLog([found(tmp_path / name, number, {0: NOT_TINY})], TOPIC) for number in range(5)]

    async def recover(some: list[UncleanLog]) -> None:
        folder = Path(some[0].copies[0].directory).parent.name
        at_work[folder] = at_work.get(folder, 0) + 1
        most[folder] = max(most.get(folder, 0), at_work[folder])
        await asyncio.sleep(0)
        at_work[folder] -= 1

    async def run() -> None:
        loading = loading_with(threads=2)
        loading._recover = recover  # type: ignore[method-assign]
        await loading._start_recovery(logs)
        await asyncio.gather(*loading._tasks)

    virtual_time.run(run())

    assert most == {"one": 2, "two": 2}


def test_a_stop_ends_the_wait_and_unstarted_recoveries(tmp_path: Path) -> None:
    begun: list[int] = []

    async def recover(some: list[UncleanLog]) -> None:
        begun.extend(each.copies[0].partition.partition for each in some)
        stopping.set()
        await asyncio.Event().wait()

    async def run() -> None:
        loading = loading_with(threads=1)
        loading._recover = recover  # type: ignore[method-assign]
        await loading._start_recovery(
            [UncleanLog([found(tmp_path, number, {0: NOT_TINY})], TOPIC) for number in range(5)]
        )
        async with asyncio.timeout(1):
            await loading._wait_for_recovery(stopping)
        await asyncio.gather(*loading._tasks, return_exceptions=True)

    stopping = asyncio.Event()
    virtual_time.run(run())

    assert begun == [0]


def test_a_directory_of_a_deleted_topic_is_replaced_by_the_new_topic_of_its_name() -> None:
    """It was being recovered when the publisher ran: the loader must trigger the creation."""
    new = TopicImage("topic", UUID(int=2), (PartitionImage(1, 0, (1,), (1,)),))
    opened: list[TopicPartition] = []
    aside: list[UnopenedLog] = []
    publisher: Any = SimpleNamespace(schedule_open=opened.append)
    replicas: Any = SimpleNamespace(
        recovering_partitions=set(), log_dirs=SimpleNamespace(mark_stray=lambda found: aside.append(found) or "aside")
    )
    me = node(image=MetadataImage(topics={"topic": new}))
    old_folder = UnopenedLog(TopicPartition("topic", 0), "folder", False, 0, 0)
    log = SimpleNamespace(close_files=lambda: None, topic_id=UUID(int=1))

    LogDirLoader(me, replicas, publisher, lambda _: None)._add_replica(old_folder, cast("Any", log), TOPIC)

    assert aside == [old_folder]
    assert opened == [TopicPartition("topic", 0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((3, 900, 0), (4, 800, 0)),  # a failed directory is back, with records that no other replica accepted
        ((4, 700, 0), (4, 800, 0)),
        ((4, 800, 0), (4, 800, 100)),
    ],
)
def test_of_two_copies_the_one_that_would_be_elected_is_kept(
    tmp_path: Path, one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    dropped: list[UnopenedLog] = []
    loading = loading_with()
    loading._log_dirs = SimpleNamespace(delete_duplicate=dropped.append)  # type: ignore[assignment]
    copies: list[Any] = []
    for number, (epoch, end_offset, start_offset) in enumerate((one, other)):
        log = SimpleNamespace(
            topic_id=UUID(int=1),
            epochs=SimpleNamespace(latest_epoch=epoch),
            end_offset=end_offset,
            log_start_offset=start_offset,
            close_files=lambda: None,
        )
        copies.append((found(tmp_path, number, {}), log))
    for opened in (copies, copies[::-1]):
        assert loading._keep_best(opened, TOPIC) == copies[1]
    assert dropped == [copies[0][0]] * 2
