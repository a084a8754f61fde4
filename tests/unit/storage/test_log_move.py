"""Moving a log to another folder: what is copied, what is served meanwhile, and a crash at every step."""

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header
from ottla.protocol.records import Record
from ottla.storage import files, log_move
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import LogDir, create_log
from ottla.storage.log_loader import open_log
from ottla.storage.log_move import FutureLog

PARTITION = TopicPartition("topic", 0)
TOPIC_ID = uuid.UUID(int=7)
NOW_MS = 1_700_000_000_000
SETTINGS = TopicSettings(segment_bytes=1000, index_interval_bytes=100)
CHANGING = ("write_at", "truncate", "rename", "unlink", "make_directory", "open_file", "sync")


class Crash(BaseException):
    """The process is killed here."""


@pytest.fixture
def folders(tmp_path: Path) -> Any:
    made = [LogDir(str(tmp_path / name)) for name in ("first", "second")]
    yield made
    for log_dir in made:
        log_dir.unlock()


def new_log(folder: LogDir, settings: TopicSettings = SETTINGS) -> Log:
    directory = f"{folder.path}/{PARTITION}"
    return create_log(PARTITION, directory, settings, DescriptorPool(), TOPIC_ID, NOW_MS, 10**12)


def append(log: Log, count: int = 1, size: int = 150) -> None:
    for _ in range(count):
        value = b"%d " % log.end_offset + b"x" * size
        batch = build_batch(
            [Record(-1, NOW_MS + log.end_offset, b"k", value)],
            producer_id=5,
            producer_epoch=0,
            base_sequence=log.end_offset,
        )
        log.append(memoryview(batch), 3, NOW_MS)


def reopened(folder: LogDir, recovery_point: int = 0) -> Log:
    return open_log(
        PARTITION,
        f"{folder.path}/{PARTITION}",
        SETTINGS,
        pool=DescriptorPool(),
        is_clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW_MS,
        producer_expiration_ms=10**12,
    )


def stored(log: Log) -> dict[int, bytes]:
    """All batches, by base offset."""
    found = {}
    offset = log.log_start_offset
    while offset < log.end_offset:
        file_range = log.read(offset, 1, log.end_offset, True)
        assert file_range is not None
        data = os.pread(file_range.descriptor, file_range.length, file_range.position)
        file_range.release()
        header = read_batch_header(data, 0)
        found[header.base_offset] = data
        offset = header.next_offset
    return found


def copy_all(move: FutureLog, between: Callable[[], None] = lambda: None) -> None:
    while not move.finish():
        job = move.next_job(300)
        assert job is not None
        job.run()
        job.close()
        move.finish_job(job)
        between()


@pytest.fixture(autouse=True)
def small_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_move, "TAIL_BYTES_MAX", 200)


def test_the_whole_log_goes_on_in_the_new_folder(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 30)
    before = stored(log)
    move = FutureLog(log, folders[1])
    move.begin()
    copy_all(move)
    assert log.directory == f"{folders[1].path}/topic-0"
    assert stored(log) == before
    append(log, 20)
    after = stored(log)
    assert len(after) == 50
    shutil.rmtree(f"{folders[0].path}/topic-0")  # nothing is needed of it any more
    assert stored(log) == after
    log.close()
    again = reopened(folders[1])
    assert stored(again) == after
    assert again.topic_id == TOPIC_ID
    assert again.latest_epoch == 3
    assert again.producers.by_id[5].last_sequence == 49
    again.close_files()


def test_appends_rolls_and_deletions_meanwhile_are_in_the_copy(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 20)
    move = FutureLog(log, folders[1])
    move.begin()

    def go_on() -> None:
        if log.end_offset < 60:
            append(log, 2)
            log.raise_log_start_offset(log.end_offset // 3)
            log.delete_log_start_offset_breached_segments(NOW_MS, log.end_offset)

    copy_all(move, go_on)
    names = {path.name for path in Path(log.directory).glob("*.log")}
    assert names == {f"{segment.base_offset:020d}.log" for segment in log.segments}
    assert sorted(stored(log)) == list(range(log.log_start_offset, log.end_offset))
    log.close_files()


def test_a_range_that_is_out_is_read_to_its_end(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 30)
    file_range = log.read(2, 1, log.end_offset, True)
    assert file_range is not None
    expected = os.pread(file_range.descriptor, file_range.length, file_range.position)
    move = FutureLog(log, folders[1])
    move.begin()
    copy_all(move)
    shutil.rmtree(f"{folders[0].path}/topic-0")
    assert os.pread(file_range.descriptor, file_range.length, file_range.position) == expected
    assert os.readlink(f"/proc/self/fd/{file_range.descriptor}").startswith(folders[1].path)
    file_range.release()
    log.close_files()


def test_a_flush_that_was_under_way_proves_nothing_about_the_copy(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 30)
    job = log.begin_flush()
    assert job is not None
    move = FutureLog(log, folders[1])
    move.begin()
    copy_all(move)
    job.run()
    log.end_flush(job)
    assert log.recovery_point <= log.active.base_offset
    log.flush()
    assert log.recovery_point == log.end_offset
    log.close_files()


def test_a_replaced_segment_is_copied_anew(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 30)
    move = FutureLog(log, folders[1])
    move.begin()
    for _ in range(8):
        job = move.next_job(300)
        assert job is not None
        job.run()
        job.close()
        move.finish_job(job)
    first = log.segments[0]
    path = first.path(files.LOG_SUFFIX)
    shorter = Path(path).read_bytes()[: first.find(2)[0]]
    first.close()
    Path(path).write_bytes(shorter)  # as a cleaner would leave it
    replacement = type(first)(first.directory, 0, len(shorter), log.pool)
    replacement.next_base_offset = log.segments[1].base_offset
    log.segments[0] = replacement
    copy_all(move)
    assert Path(f"{folders[1].path}/topic-0/{0:020d}.log").read_bytes() == shorter
    log.close_files()


def test_what_was_cut_off_and_written_anew_meanwhile_is_copied_anew(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 20)
    move = FutureLog(log, folders[1])
    move.begin()
    cuts = [9]

    def cut() -> None:
        if move.copied_bytes > 2500 and cuts:
            log.truncate_to(cuts.pop())
            while log.end_offset < 20:
                append(log, size=151)

    copy_all(move, cut)
    assert not cuts
    assert [len(data) for data in stored(log).values()] == [len(data) for data in stored(reopened(folders[1])).values()]
    assert len(set(map(len, stored(log).values()))) > 1
    log.close_files()


def test_lag_and_size_show_the_progress(folders: list[LogDir]) -> None:
    log = new_log(folders[0])
    append(log, 30)
    move = FutureLog(log, folders[1])
    move.begin()
    assert (move.copied_bytes, move.lag) == (0, 30)
    job = move.next_job(300)
    assert job is not None
    job.run()
    job.close()
    move.finish_job(job)
    assert (move.copied_bytes, move.lag) == (300, 30)
    copy_all(move)
    assert move.copied_bytes == log.size_bytes
    log.close_files()


def test_a_full_disk_leaves_the_log_where_it_was(folders: list[LogDir], monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(folders[0])
    append(log, 30)
    before = stored(log)
    move = FutureLog(log, folders[1])
    move.begin()
    real = files.rename

    def refuse(source: str, target: str) -> None:
        if source.endswith("-future"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(files, "rename", refuse)
    with pytest.raises(OSError, match="No space"):
        copy_all(move)
    assert log.directory == f"{folders[0].path}/topic-0"
    assert stored(log) == before
    append(log)
    move.delete_copy()
    assert not os.path.exists(move.directory)
    log.close_files()


def test_a_crash_at_any_step_leaves_a_complete_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every system call that changes something, one after the other, is the last one; then both folders are opened."""
    steps = 0
    while crash_after(steps, tmp_path / str(steps), monkeypatch):
        steps += 1
    assert steps > 30


def crash_after(steps: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether there was such a step."""
    folders = [LogDir(str(directory / name)) for name in ("first", "second")]
    log = new_log(folders[0])
    append(log, 12)
    expected = stored(log)
    left = steps

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(files, name)

        def call(*arguments: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return real(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in CHANGING:
            patch.setattr(files, name, failing(name))
        try:
            move = FutureLog(log, folders[1])
            move.begin()
            copy_all(move, lambda: None)
            append(log, 3)
            log.flush()
            folders[0].delete_directory(PARTITION, move.source_directory, 0)
            has_crashed = False
        except Crash:
            has_crashed = True
    log.close_files()
    copies = [folder for folder in folders if os.path.exists(f"{folder.path}/{PARTITION}")]
    assert copies, "the partition is nowhere"
    opened = [reopened(folder) for folder in copies]
    best = max(opened, key=lambda one: one.end_offset)
    found = stored(best)
    assert {offset: found.get(offset) for offset in expected} == expected, f"after {steps} steps"
    for one in opened:
        one.close_files()
    for folder in folders:
        folder.unlock()
    return has_crashed
