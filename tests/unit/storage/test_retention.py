"""Deleting what a topic does not keep, and cutting the end of a log off."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000
BATCH_BYTES = len(build_batch([Record(-1, NOW_MS, None, b"v")]))


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def filled_log(directory: Path, count: int = 10, **settings: object) -> Log:
    """Two batches a segment, one second apart."""
    settings = {"segment_bytes": 2 * BATCH_BYTES, "retention_ms": -1, **settings}
    log = create_log(
        TopicPartition("topic", 0),
        str(directory / "topic-0"),
        TopicSettings(**settings),  # type: ignore[arg-type]
        DescriptorPool(),
        None,
        NOW_MS,
        10**9,
    )
    for i in range(count):
        append(log, i, i // 4)
    return log


def append(log: Log, number: int, leader_epoch: int = 5) -> int:
    record = Record(-1, NOW_MS + number * 1000, None, b"v")
    batch = build_batch([record], producer_id=1, producer_epoch=0, base_sequence=number)
    return log.append(memoryview(batch), leader_epoch, NOW_MS).base_offset


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def base_offset_at(log: Log, offset: int) -> int:
    file_range = log.read(offset, 1, log.end_offset, True)
    assert file_range is not None
    header = read_batch_header(os.pread(file_range.descriptor, 61, file_range.position), 0)
    file_range.release()
    return header.base_offset


def test_segments_whose_newest_record_is_too_old_are_deleted(tmp_path: Path) -> None:
    log = filled_log(tmp_path, retention_ms=3000)

    assert log.delete_old_segments(NOW_MS + 7000, log.end_offset) == 2

    assert bases(log) == [4, 6, 8]
    assert log.log_start_offset == 4
    assert log.epochs.entries == [(1, 4), (2, 8)]


def test_segments_beyond_the_size_are_deleted(tmp_path: Path) -> None:
    log = filled_log(tmp_path, retention_bytes=5 * BATCH_BYTES)

    log.delete_old_segments(NOW_MS, log.end_offset)

    assert bases(log) == [4, 6, 8], "a segment that is only partly over the limit stays"


def test_nothing_past_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    log = filled_log(tmp_path, retention_ms=0)

    log.delete_old_segments(NOW_MS + 10**6, 5)

    assert bases(log) == [4, 6, 8]


def test_an_expired_active_segment_is_rolled_and_deleted(tmp_path: Path) -> None:
    log = filled_log(tmp_path, retention_ms=1000)

    log.delete_old_segments(NOW_MS + 10**6, log.end_offset)

    assert bases(log) == [10]
    assert (log.log_start_offset, log.end_offset) == (10, 10)
    assert append(log, 10) == 10
    assert log.delete_old_segments(NOW_MS, log.end_offset) == 0


def test_an_empty_log_is_left_alone(tmp_path: Path) -> None:
    log = filled_log(tmp_path, 0, retention_ms=0, retention_bytes=0)

    assert log.delete_old_segments(NOW_MS + 10**6, 0) == 0
    assert bases(log) == [0]


def test_a_compacted_topic_is_not_deleted_by_age(tmp_path: Path) -> None:
    log = filled_log(tmp_path, 0, retention_ms=0, cleanup_policy=frozenset({"compact"}))
    for i in range(6):
        log.append_as_follower(memoryview(build_batch([Record(-1, NOW_MS, b"k", b"v")], base_offset=i)))

    assert log.delete_old_segments(NOW_MS + 10**6, log.end_offset) == 0


def test_deleted_records_are_hidden_at_once_and_their_segments_go(tmp_path: Path) -> None:
    log = filled_log(tmp_path)

    log.raise_log_start_offset(5)

    assert log.delete_old_segments(NOW_MS, log.end_offset) == 2
    assert bases(log) == [4, 6, 8]
    assert log.log_start_offset == 5
    with pytest.raises(KafkaError) as caught:
        log.raise_log_start_offset(11)
    assert caught.value.error is Error.OFFSET_OUT_OF_RANGE


def test_files_of_deleted_segments_go_after_the_delay(tmp_path: Path) -> None:
    log = filled_log(tmp_path, retention_ms=3000, file_delete_delay_ms=500)
    log.delete_old_segments(NOW_MS + 7000, log.end_offset)
    assert sorted(name for name in os.listdir(log.directory) if name.endswith(".log.deleted")) == [
        "00000000000000000000.log.deleted",
        "00000000000000000002.log.deleted",
    ]

    assert log.take_due_deletions(NOW_MS + 7499) == []
    paths = log.take_due_deletions(NOW_MS + 7500)

    assert f"{log.directory}/00000000000000000000.log.deleted" in paths
    assert log.take_due_deletions(NOW_MS + 9000) == []


# --- truncation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(11))
def test_truncating_drops_everything_from_the_offset_on(tmp_path: Path, offset: int) -> None:
    log = filled_log(tmp_path)
    log.flush()

    log.truncate_to(offset)

    assert log.end_offset == offset
    assert log.recovery_point == offset
    assert [base_offset_at(log, i) for i in range(offset)] == list(range(offset))
    assert all(start < max(offset, 1) for _, start in log.epochs.entries)
    assert append(log, offset) == offset, "the producer goes on where the log ends"
    assert base_offset_at(log, offset) == offset


def test_a_producer_is_known_as_of_the_new_end(tmp_path: Path) -> None:
    log = filled_log(tmp_path)
    log.truncate_to(7)

    with pytest.raises(KafkaError) as caught:
        append(log, 9)

    assert caught.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.producers.by_id[1].last_sequence == 6


def test_truncating_fully_starts_at_a_new_offset(tmp_path: Path) -> None:
    log = filled_log(tmp_path)

    log.truncate_fully_and_start_at(100)

    assert (log.log_start_offset, log.end_offset, bases(log)) == (100, 100, [100])
    assert sorted(os.listdir(log.directory)) == [
        "00000000000000000100.index",
        "00000000000000000100.log",
        "00000000000000000100.timeindex",
        "leader-epoch-checkpoint",
    ]
    assert append(log, 0) == 100


# ---- in steps, so that the owner of the log never waits for the disk


def log_files(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in (directory / "topic-0").glob("*.log"))


def test_retention_touches_no_file_before_a_worker_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled_log(tmp_path, retention_ms=3500, file_delete_delay_ms=500)
    with monkeypatch.context() as disk:
        for name in ("open_file", "rename", "unlink"):
            disk.setattr(files, name, lambda *_: pytest.fail("the owner of the log waits for the disk"))
        job = log.begin_deletion(NOW_MS + 7000, log.end_offset)
    assert job is not None
    assert bases(log) == [4, 6, 8]
    assert log.log_start_offset == 4
    assert log_files(tmp_path) == [0, 2, 4, 6, 8]
    assert log.begin_deletion(NOW_MS + 7000, log.end_offset) is None, "one job at a time"

    job.run()
    log.finish_rename(job)

    assert log_files(tmp_path) == [4, 6, 8]
    assert len(log.take_due_deletions(NOW_MS + 7500)) == 8
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n1 4\n2 8\n"


def test_a_log_that_begins_anew_does_not_lose_its_file_to_retention(tmp_path: Path) -> None:
    """The worker has not come yet: it must not take the new segment of the same name for the old one."""
    log = filled_log(tmp_path, retention_ms=3500)
    job = log.begin_deletion(NOW_MS + 7000, log.end_offset)
    assert job is not None
    log.truncate_fully_and_start_at(2)
    append(log, 10)

    job.run()
    log.finish_rename(job)

    assert log_files(tmp_path) == [2]
    assert base_offset_at(log, 2) == 2


def test_a_log_is_closed_without_what_it_does_not_keep(tmp_path: Path) -> None:
    log = filled_log(tmp_path, retention_ms=3500)
    assert log.begin_deletion(NOW_MS + 7000, log.end_offset) is not None
    log.close()
    assert log_files(tmp_path) == [4, 6, 8]


def test_failed_renames_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled_log(tmp_path, retention_ms=3500)
    job = log.begin_deletion(NOW_MS + 7000, log.end_offset)
    assert job is not None

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(files, "rename", full)
        job.run()
        with pytest.raises(KafkaError):
            log.finish_rename(job)
    again = log.begin_deletion(NOW_MS + 7000, log.end_offset)
    assert again is not None
    again.run()
    log.finish_rename(again)
    assert log_files(tmp_path) == [4, 6, 8]
    assert log.offline_reason is None
