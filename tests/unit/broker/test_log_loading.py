"""In which order logs are recovered after a crash."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

import virtual_time
from ottla.base.names import TopicPartition
from ottla.broker.logs.log_loading import TINY_AT_ONCE, TINY_BYTES_MAX, LogLoading, Unclean, measure, next_to_recover
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.storage.log_dir import FoundLog
from unit.broker.nodes import node

TOPIC = TopicImage("topic", UUID(int=1), ())
NOT_TINY = TINY_BYTES_MAX + 1


def loading_with(threads: int = 1) -> LogLoading:
    """Of no folders at all: what is to be recovered is given by the test."""
    replicas: Any = SimpleNamespace(log_dirs=None, recovering=set())
    me = node({"num.recovery.threads.per.data.dir": str(threads)})
    return LogLoading(me, replicas, cast("Any", None), lambda _: None)


def found(folder: Path, number: int, sizes: dict[int, int], recovery_point: int = 0) -> FoundLog:
    directory = folder / f"topic-{number}"
    directory.mkdir()
    for base_offset, size in sizes.items():
        (directory / f"{base_offset:020d}.log").write_bytes(bytes(size))
    return FoundLog(TopicPartition("topic", number), str(directory), False, recovery_point, 0)


def unclean(number: int, unread_bytes: int) -> Unclean:
    each = Unclean([FoundLog(TopicPartition("topic", number), "", False, 0, 0)], TOPIC)
    each.unread_bytes = unread_bytes
    return each


def test_what_lies_before_the_recovery_point_is_not_read(tmp_path: Path) -> None:
    sizes = {0: 100, 10: 200, 20: 400}
    logs = [Unclean([found(tmp_path, n, sizes, point)], TOPIC) for n, point in enumerate((0, 15, 20, 99))]

    measure(logs)

    assert [each.unread_bytes for each in logs] == [700, 600, 400, 400]


def test_a_folder_that_is_gone_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    gone = Unclean([FoundLog(TopicPartition("topic", 0), str(tmp_path / "gone"), False, 0, 0)], TOPIC)

    measure([gone])

    assert gone.unread_bytes == 0


def test_one_thread_takes_the_smallest_and_another_the_largest() -> None:
    order: list[tuple[str, int]] = []

    async def run() -> None:
        loading = loading_with()
        queue = deque(unclean(number, NOT_TINY) for number in range(6))

        async def recover(some: list[Unclean]) -> None:
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


def test_logs_with_next_to_nothing_to_read_are_taken_together() -> None:
    queue = deque([*(unclean(number, 10) for number in range(TINY_AT_ONCE + 2)), unclean(-1, NOT_TINY)])
    taken = [next_to_recover(queue, takes_smallest=takes_smallest) for takes_smallest in (False, True, False)]
    assert [len(some) for some in taken] == [1, TINY_AT_ONCE, 2]
    assert not queue
    assert taken[0][0].unread_bytes == NOT_TINY


def test_a_log_that_cannot_be_opened_keeps_no_other_from_being_served() -> None:
    served: list[int] = []
    given_up: list[tuple[int, str]] = []

    def open_log(found: FoundLog) -> Any:
        if found.partition.partition == 1:
            raise OSError("no")
        return SimpleNamespace(number=found.partition.partition)

    async def run() -> None:
        loading: Any = loading_with()
        loading._open = open_log
        loading._serve = lambda opened, _topic: served.append(opened[0][1].number)
        loading._give_up = lambda each, error: given_up.append((each.copies[0].partition.partition, str(error)))
        await loading._recover([unclean(number, 10) for number in range(3)])

    virtual_time.run(run())

    assert served == [0, 2]
    assert given_up == [(1, "no")]


def test_a_log_that_fails_in_an_unforeseen_way_is_told_when_the_others_are_served() -> None:
    served: list[int] = []

    def open_log(found: FoundLog) -> Any:
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


def test_each_folder_has_its_own_threads(tmp_path: Path) -> None:
    at_work: dict[str, int] = {}
    most: dict[str, int] = {}
    logs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        logs += [Unclean([found(tmp_path / name, number, {0: NOT_TINY})], TOPIC) for number in range(5)]

    async def recover(some: list[Unclean]) -> None:
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


def test_a_stop_ends_the_wait_and_what_has_not_begun(tmp_path: Path) -> None:
    begun: list[int] = []

    async def recover(some: list[Unclean]) -> None:
        begun.extend(each.copies[0].partition.partition for each in some)
        stopping.set()
        await asyncio.Event().wait()

    async def run() -> None:
        loading = loading_with(threads=1)
        loading._recover = recover  # type: ignore[method-assign]
        await loading._start_recovery([Unclean([found(tmp_path, number, {0: NOT_TINY})], TOPIC) for number in range(5)])
        async with asyncio.timeout(1):
            await loading._wait_a_little(stopping)
        await asyncio.gather(*loading._tasks, return_exceptions=True)

    stopping = asyncio.Event()
    virtual_time.run(run())

    assert begun == [0]


def test_a_folder_of_a_deleted_topic_makes_room_for_the_new_one_of_its_name() -> None:
    """It was being recovered when the publisher came by, so nobody else opens the new one."""
    new = TopicImage("topic", UUID(int=2), (PartitionImage(1, 0, (1,), (1,)),))
    opened: list[TopicPartition] = []
    aside: list[FoundLog] = []
    publisher: Any = SimpleNamespace(open_soon=opened.append)
    replicas: Any = SimpleNamespace(
        recovering=set(), log_dirs=SimpleNamespace(set_aside=lambda found: aside.append(found) or "aside")
    )
    me = node(image=MetadataImage(topics={"topic": new}))
    old_folder = FoundLog(TopicPartition("topic", 0), "folder", False, 0, 0)
    log = SimpleNamespace(abandon=lambda: None, topic_id=UUID(int=1))

    LogLoading(me, replicas, publisher, lambda _: None)._take(old_folder, cast("Any", log), TOPIC)

    assert aside == [old_folder]
    assert opened == [TopicPartition("topic", 0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((3, 900, 0), (4, 800, 0)),  # a folder that had failed is back, with records that nobody else has taken
        ((4, 700, 0), (4, 800, 0)),
        ((4, 800, 0), (4, 800, 100)),
    ],
)
def test_of_two_copies_the_one_stays_that_would_be_elected(
    tmp_path: Path, one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    dropped: list[FoundLog] = []
    loading = loading_with()
    loading._log_dirs = SimpleNamespace(drop=dropped.append)  # type: ignore[assignment]
    copies: list[Any] = []
    for number, (epoch, end_offset, start_offset) in enumerate((one, other)):
        log = SimpleNamespace(
            topic_id=UUID(int=1),
            epochs=SimpleNamespace(latest_epoch=epoch),
            end_offset=end_offset,
            log_start_offset=start_offset,
            abandon=lambda: None,
        )
        copies.append((found(tmp_path, number, {}), log))
    for opened in (copies, copies[::-1]):
        assert loading._keep_best(opened, TOPIC) == copies[1]
    assert dropped == [copies[0][0]] * 2
