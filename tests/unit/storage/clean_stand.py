"""Logs and cleanings for the tests, all in this process and without a broker."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header, read_records
from ottla.protocol.records import Record
from ottla.storage.cleaning.cleaner import CleanerRun
from ottla.storage.cleaning.job import CleanedGroup, CleanJob, CleanReport, SegmentInfo, decode_job
from ottla.storage.cleaning.swap import SegmentSwap, swap_blocking
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.log_loader import open_log

PARTITION = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000
RETENTION_MS = 60_000
SETTINGS = TopicSettings(cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20, delete_retention_ms=RETENTION_MS)


def new_log(directory: Path, settings: TopicSettings = SETTINGS) -> Log:
    return create_log(PARTITION, str(directory), settings, DescriptorPool(), None, NOW_MS, 10**9)


def reopen(directory: Path, settings: TopicSettings = SETTINGS, *, recovery_point: int = 0) -> Log:
    return open_log(
        PARTITION,
        str(directory),
        settings,
        pool=DescriptorPool(),
        is_clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW_MS,
        producer_expiration_ms=10**9,
    )


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], codec: int = 0, **producer: int) -> int:
    """Append one batch of keys and values; its first offset."""
    records = [Record(-1, NOW_MS, key, value) for key, value in pairs]
    batch = memoryview(
        build_batch(
            records,
            codec=codec,
            base_offset=log.end_offset,
            leader_epoch=0,
            is_transactional=bool(producer.pop("is_transactional", 0)),
            **producer,
        )
    )
    base_offset = log.end_offset
    log.append_as_follower(batch)
    return base_offset


def end_transaction(log: Log, producer_id: int, *, is_abort: bool, producer_epoch: int = 0) -> int:
    """Append a marker; its offset."""
    record = Record(-1, NOW_MS, struct.pack(">hh", 0, 0 if is_abort else 1), struct.pack(">hi", 0, 7))
    batch = build_batch(
        [record],
        base_offset=log.end_offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    log.append_as_follower(memoryview(batch))
    return log.end_offset - 1


def job_for(log: Log, *, now_ms: int = NOW_MS, **changes: object) -> CleanJob:
    """Everything but the active segment."""
    fields: dict[str, object] = {
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "directory": log.directory,
        "segments": [SegmentInfo(segment.base_offset, segment.size) for segment in log.segments[:-1]],
        "first_dirty_offset": max(log.cleaned_offset, log.log_start_offset),
        "first_uncleanable_offset": log.active.base_offset,
        "log_start_offset": log.log_start_offset,
        "end_offset": log.end_offset,
        "now_ms": now_ms,
        "is_compacted": log.settings.is_compacted,
        "delete_retention_ms": log.settings.delete_retention_ms,
        "segment_bytes": log.settings.segment_bytes,
        "last_records": log.producer_state.last_records(),
        "transaction_indexes": [segment.base_offset for segment in log.segments if segment.has_transactions],
    }
    job = CleanJob(**{**fields, **changes})  # type: ignore[arg-type]
    return decode_job(job.encode())  # as the process gets it


def write_cleaned(
    job: CleanJob, policy: Callable[[Record], bool] | None = None
) -> tuple[CleanReport, list[CleanedGroup]]:
    groups: list[CleanedGroup] = []
    report = CleanerRun(job, policy, lambda _: None).run(groups.append)
    return report, groups


def put_in_place(log: Log, groups: list[CleanedGroup]) -> None:
    by_base = {segment.base_offset: segment for segment in log.segments}
    for group in groups:
        if not group.is_unchanged:
            old = [by_base[base_offset] for base_offset in group.base_offsets]
            assert swap_blocking(SegmentSwap(log, log.directory, old, group), NOW_MS)


def clean(
    log: Log, *, rolls: bool = True, policy: Callable[[Record], bool] | None = None, **changes: object
) -> CleanReport:
    """One whole round over all that is there."""
    if rolls:
        log.roll(NOW_MS)
    report, groups = write_cleaned(job_for(log, **changes), policy)  # type: ignore[arg-type]
    put_in_place(log, groups)
    log.cleaned_offset = report.end_offset
    return report


def batches_in(log: Log) -> Iterator[bytes]:
    """What a reader gets, checked as it is for readers."""
    offset = log.log_start_offset
    while (file_range := log.read(offset, 1, log.end_offset, True)) is not None:
        log.check_range(file_range)
        batch = os.pread(file_range.descriptor, file_range.length, file_range.position)
        file_range.release()
        yield batch
        offset = read_batch_header(batch).next_offset


def records_in(log: Log) -> list[Record]:
    """All records but those of control batches."""
    return [
        record for batch in batches_in(log) if not read_batch_header(batch).is_control for record in read_records(batch)
    ]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records_in(log)]
