"""Flushes, sync latency, and failing disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.flush import PERIOD_MS, SyncLatency
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000


class Disk:
    """Records the names of synced files; fails on request."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.is_failing = False

    def sync(self, descriptor: int) -> None:
        if self.is_failing:
            raise OSError(errno.EIO, "the disk is dead")
        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(files, "sync", disk.sync)
    return disk


def new_log(directory: Path, **settings: object) -> Log:
    return create_log(
        TopicPartition("topic", 0),
        str(directory / "topic-0"),
        TopicSettings(**settings),  # type: ignore[arg-type]
        DescriptorPool(),
        None,
        NOW_MS,
        1000,
    )


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append(memoryview(build_batch([Record(-1, NOW_MS, None, b"v")])), 0, NOW_MS)


def test_the_recovery_point_moves_only_after_the_sync(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path)
    append(log, 3)
    assert (log.recovery_point, log.unflushed_messages) == (0, 3)

    job = log.begin_flush()
    append(log)
    assert job is not None
    assert log.recovery_point == 0
    job.run()
    log.end_flush(job)

    assert (log.recovery_point, log.unflushed_messages) == (3, 1)
    assert disk.synced[0] == "00000000000000000000.log"
    assert "topic-0" in disk.synced, "a new file needs its folder synced"


def test_there_is_nothing_to_do_twice(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path)
    append(log)
    log.flush()

    assert log.begin_flush() is None


def test_a_failed_sync_is_final(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path)
    append(log)
    disk.is_failing = True
    with pytest.raises(KafkaError) as caught:
        log.flush()
    disk.is_failing = False

    assert caught.value.error is Error.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    with pytest.raises(KafkaError):
        append(log)
    with pytest.raises(KafkaError):
        log.flush()
    with pytest.raises(KafkaError):
        log.close()


def test_a_job_that_was_never_run_proves_nothing(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path)
    append(log)
    job = log.begin_flush()
    assert job is not None
    job.close()
    log.end_flush(job)
    assert log.recovery_point == 0

    log.flush()

    assert log.recovery_point == 1
    assert "00000000000000000000.log" in disk.synced


def test_a_truncation_meanwhile_makes_the_result_void(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path)
    append(log, 5)
    job = log.begin_flush()
    assert job is not None
    log.truncate_to(2)
    append(log, 3)
    job.run()

    log.end_flush(job)

    assert log.recovery_point == 0


def test_all_segments_since_the_recovery_point_are_synced(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path, segment_bytes=150)
    append(log, 5)
    log.flush()
    disk.synced.clear()
    append(log, 4)

    log.flush()

    logs = sorted(name for name in disk.synced if name.endswith(".log"))
    assert logs[0] == f"{log.segments[2].base_offset:020d}.log"
    assert logs[-1] == f"{log.active.base_offset:020d}.log"
    assert log.recovery_point == 9


def test_after_a_roll_the_rolled_segments_can_be_synced_alone(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path, segment_bytes=150)
    append(log, 5)
    assert log.has_rolled

    job = log.begin_flush(only_rolled=True)
    assert job is not None
    job.run()
    log.end_flush(job)

    assert not log.has_rolled
    assert log.recovery_point == log.active.base_offset
    assert f"{log.active.base_offset:020d}.log" not in disk.synced


def test_a_range_can_be_sent_while_its_segment_is_deleted(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path, segment_bytes=150, retention_ms=10, file_delete_delay_ms=100)
    append(log, 5)
    file_range = log.read(0, 1000, log.end_offset, True)
    assert file_range is not None
    expected = os.pread(file_range.descriptor, file_range.length, file_range.position)

    assert log.delete_old_segments(NOW_MS + 1000, log.end_offset) > 0
    for path in log.take_due_deletions(NOW_MS + 1100):
        files.remove_if_exists(path)

    assert os.pread(file_range.descriptor, file_range.length, file_range.position) == expected
    assert log.log_start_offset == log.end_offset
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000, log.end_offset, True)
    assert caught.value.error is Error.OFFSET_OUT_OF_RANGE
    descriptor = file_range.descriptor
    file_range.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_snapshot_is_written_with_the_flush_of_a_rolled_segment(tmp_path: Path, disk: Disk) -> None:
    """Not by the append that rolled it: a busy disk would delay all clients."""
    log = new_log(tmp_path)
    for _ in range(4):
        append(log)
        log.roll(NOW_MS)
        assert not (tmp_path / "topic-0" / f"{log.end_offset:020d}.snapshot").exists()
        job = log.begin_flush(only_rolled=True)
        assert job is not None
        job.run()
        log.end_flush(job)
        assert log.producer_state.snapshot_offset == log.end_offset
        assert f"{log.end_offset:020d}.snapshot" in disk.synced
    assert [path.name for path in sorted((tmp_path / "topic-0").glob("*.snapshot"))] == [
        f"{offset:020d}.snapshot" for offset in (3, 4)
    ]


def test_a_snapshot_of_records_that_were_cut_off_is_never_written(tmp_path: Path, disk: Disk) -> None:
    log = new_log(tmp_path)
    append(log, 3)
    log.roll(NOW_MS)
    job = log.begin_flush(only_rolled=True)
    assert job is not None
    log.truncate_to(1)
    job.run()
    log.end_flush(job)
    append(log, 5)

    assert not list((tmp_path / "topic-0").glob("*.snapshot"))
    assert log.producer_state.snapshot_offset == -1


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.ms = 5 * PERIOD_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sync(times: SyncLatency, clock: Clock, folder: str, taken_ms: int) -> None:
    with times.measure(folder):
        clock.ms += taken_ms


def test_an_unused_disk_is_not_slow(clock: Clock) -> None:
    assert SyncLatency(clock).slowest_ms() == 0


def test_of_a_folder_the_fastest_counts_and_of_all_folders_the_slowest(clock: Clock) -> None:
    times = SyncLatency(clock)
    for folder, taken_ms in (("/a", 4000), ("/a", 2), ("/b", 700), ("/b", 600)):
        sync(times, clock, folder, taken_ms)
    assert times.slowest_ms() == 600


def test_what_is_long_over_counts_no_more(clock: Clock) -> None:
    times = SyncLatency(clock)
    sync(times, clock, "/a", 700)
    clock.ms += PERIOD_MS
    assert times.slowest_ms() == 700
    sync(times, clock, "/a", 900)
    assert times.slowest_ms() == 700
    clock.ms += PERIOD_MS
    assert times.slowest_ms() == 900
    clock.ms += PERIOD_MS
    assert times.slowest_ms() == 0


def test_a_disk_that_does_not_answer_is_as_slow_as_what_waits_for_it(clock: Clock) -> None:
    times = SyncLatency(clock)
    sync(times, clock, "/a", 1)
    with times.measure("/a"), times.measure("/b"):
        clock.ms += 3000
        assert times.slowest_ms() == 3000, "of /b nothing else is known"
        clock.ms += 3 * PERIOD_MS
        with times.measure("/b"):
            clock.ms += 5
        assert times.slowest_ms() == 3 * PERIOD_MS + 3005, "/a has not ended anything for long"


def test_a_sync_that_fails_counts_as_any_other(clock: Clock) -> None:
    times = SyncLatency(clock)
    with pytest.raises(OSError, match="gone"), times.measure("/a"):
        clock.ms += 40
        raise OSError("gone")
    assert times.slowest_ms() == 40
