"""One cleaning of one log, in the cleaner process: reads segments and writes `.cleaned` ones. Compiled.

First the keys of the dirty section are added to a map with their newest offsets, until the map is full or the section
ends. Then all segments up to there are read from the start, and the remaining records are written. If the map was full,
the next cleaning continues where this one ended.

Rule 1: only files with names that end with `.cleaned` are changed.
Rule 2: every batch is verified when it is read. The first corrupt one ends the cleaning, and the log stays as it is.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

from ottla.base.errors import Error, KafkaError
from ottla.protocol.batches import DECOMPRESSED_BYTES_CEILING, HEADER_BYTES, BatchHeader, read_batch_header
from ottla.protocol.compression import decompress
from ottla.storage import files
from ottla.storage.cleaning.batches import BatchCleaner, CleanedTransactionMetadata
from ottla.storage.cleaning.job import CleanedGroup, CleanJob, CleanReport, SegmentInfo
from ottla.storage.cleaning.offset_map import OffsetMap, memory_for
from ottla.storage.cleaning.plan import group_segments
from ottla.storage.cleaning.records import Policy, RecordFilter, add_keys
from ottla.storage.cleaning.writer import CleanedSegmentWriter, remove_cleaned
from ottla.storage.scan import BatchScan
from ottla.storage.transaction_index import AbortedTxn, load_transaction_index

Throttle = Callable[[int], None]
"""Called with the number of bytes that were read or written; sleeps above the rate limit, raises to cancel."""


class CleanerRun:
    """The state of one job."""

    def __init__(self, job: CleanJob, policy: Policy | None, pace: Throttle) -> None:
        self._job = job
        self._policy = policy
        self._pace = pace
        self._offset_map: OffsetMap | None = None
        self._latest_offset = job.first_dirty_offset - 1  # the map has the keys up to here
        self._bytes_read = 0
        self._bytes_written = 0

    def run(self, on_group: Callable[[CleanedGroup], None]) -> CleanReport:
        started = time.monotonic()
        job = self._job
        remove_cleaned(job.directory)
        aborted = read_aborted(job)
        if job.is_compacted:
            self._build_offset_map(
                CleanedTransactionMetadata([t for t in aborted if t.last_offset >= job.first_dirty_offset])
            )
        else:
            self._latest_offset = job.first_uncleanable_offset - 1
        end_offset = self._latest_offset + 1
        if end_offset <= job.first_dirty_offset < job.first_uncleanable_offset:
            raise KafkaError(Error.INVALID_CONFIG, "log.cleaner.dedupe.buffer.size is too small for a single batch")
        transactions = CleanedTransactionMetadata(aborted)
        cleaner = BatchCleaner(
            RecordFilter(self._offset_map, self._latest_offset, self._policy),
            transactions,
            last_records={producer_id: (offset, epoch) for producer_id, offset, epoch in job.last_records},
            end_offset=job.first_uncleanable_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        segments = [segment for segment in job.segments if segment.base_offset < end_offset]
        groups = group_segments(segments, job.segment_bytes, job.segment_index_bytes, job.first_uncleanable_offset)
        for group in groups:
            on_group(self._clean_group(group, cleaner, transactions))
        return CleanReport(
            end_offset=end_offset,
            keys=self._offset_map.count if self._offset_map is not None else 0,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            records_read=cleaner.records_read,
            records_kept=cleaner.records_kept,
            seconds=time.monotonic() - started,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    # --- the keys -----------------------------------------------------------------------------------------------

    def _build_offset_map(self, transactions: CleanedTransactionMetadata) -> None:
        job = self._job
        first = job.first_dirty_offset
        dirty = [
            (segment, next_base)
            for segment, next_base in with_next_base_offset(job.segments, job.first_uncleanable_offset)
            if next_base > first
        ]
        keys = sum(count_records(self._path(segment), segment.size, self._pace) for segment, _ in dirty)
        memory_bytes = memory_for(keys, job.load_factor, job.map_bytes)
        offset_map = self._offset_map = OffsetMap(memory_bytes, job.load_factor, first)
        for segment, next_base in dirty:
            with files.open_descriptor(self._path(segment), files.READ_FLAGS) as descriptor:
                if not self._add_segment_keys(segment, descriptor, transactions, offset_map):
                    return
            self._latest_offset = next_base - 1  # compaction may have removed the offsets at its end

    def _add_segment_keys(
        self, segment: SegmentInfo, descriptor: int, transactions: CleanedTransactionMetadata, offset_map: OffsetMap
    ) -> bool:
        """Add the keys of a segment; false if the map is full."""
        first = self._job.first_dirty_offset
        scan = BatchScan(descriptor, 0, segment.size, True, self._job.buffer_bytes)
        while scan.advance():
            self._count_read(scan.batch_bytes)
            if scan.last_offset < first:
                continue
            batch = scan.batch()
            header = read_batch_header(batch)
            if header.is_control:
                transactions.can_discard_marker(header, batch)
            elif not transactions.is_aborted(header):
                payload = decompressed_records(header, batch)
                if not add_keys(payload, header.record_count, header.base_offset, first, offset_map):
                    return False
            self._latest_offset = scan.last_offset
        self._require_end(scan, segment)
        return True

    # --- what stays ---------------------------------------------------------------------------------------------

    def _clean_group(
        self, group: list[SegmentInfo], cleaner: BatchCleaner, transactions: CleanedTransactionMetadata
    ) -> CleanedGroup:
        writer = CleanedSegmentWriter(self._job.directory, group[0].base_offset, self._pace)
        try:
            for place, segment in enumerate(group):
                with files.open_descriptor(self._path(segment), files.READ_FLAGS) as descriptor:
                    self._clean_segment(segment, descriptor, cleaner, writer, is_alone=len(group) == 1)
                if place + 1 == len(group):
                    writer.modified_ns = os.stat(self._path(segment)).st_mtime_ns
            aborted = transactions.take_kept()
            base_offsets = [segment.base_offset for segment in group]
            if not writer.is_begun:
                return CleanedGroup(base_offsets=base_offsets, size=group[0].size, is_unchanged=True)
            # If an old segment had a transaction index, the new one also has one, so that after a crash its segment is
            # known.
            has_transactions = bool(aborted) or not set(base_offsets).isdisjoint(self._job.transaction_indexes)
            writer.finish(aborted if has_transactions else None, self._job.index_interval_bytes)
        finally:
            writer.close()
        self._bytes_written += writer.size
        return CleanedGroup(base_offsets=base_offsets, size=writer.size, has_transactions=has_transactions)

    def _clean_segment(
        self,
        segment: SegmentInfo,
        descriptor: int,
        cleaner: BatchCleaner,
        writer: CleanedSegmentWriter,
        *,
        is_alone: bool,
    ) -> None:
        """Write the remaining records. A single segment is only written from its first changed batch on."""
        if not is_alone:
            writer.begin()
        scan = BatchScan(descriptor, 0, segment.size, True, self._job.buffer_bytes)
        while scan.advance():
            self._count_read(scan.batch_bytes)
            batch = scan.batch()
            result = cleaner.clean(read_batch_header(batch), batch)
            if result is not batch and not writer.is_begun:
                writer.begin_with(descriptor, scan.position)
            if result is not None and writer.is_begun:
                writer.append(result)
        self._require_end(scan, segment)

    # --- helpers ------------------------------------------------------------------------------------------------

    def _path(self, segment: SegmentInfo) -> str:
        return files.segment_path(self._job.directory, segment.base_offset, files.LOG_SUFFIX)

    def _count_read(self, count: int) -> None:
        self._bytes_read += count
        self._pace(count)

    def _require_end(self, scan: BatchScan, segment: SegmentInfo) -> None:
        if scan.problem is not None:
            raise KafkaError(
                Error.CORRUPT_MESSAGE, f"{self._path(segment)} at position {scan.position}: {scan.problem}"
            )

    def __repr__(self) -> str:
        return f"<CleanerRun {self._job.topic}-{self._job.partition}, {self._bytes_read} bytes read>"


def read_aborted(job: CleanJob) -> list[AbortedTxn]:
    """Return the aborted transactions of the whole log: one that starts in a cleaned segment may end in a later one."""
    aborted: list[AbortedTxn] = []
    for base_offset in job.transaction_indexes:
        path = files.segment_path(job.directory, base_offset, files.TRANSACTION_INDEX_SUFFIX)
        aborted += load_transaction_index(path, base_offset).entries
    return [transaction for transaction in aborted if transaction.first_offset < job.first_uncleanable_offset]


def count_records(path: str, size: int, pace: Throttle) -> int:
    """Return an upper bound for the number of records in a segment, and thus of its keys, from batch offsets."""
    count = 0
    with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
        scan = BatchScan(descriptor, 0, size, False)
        while scan.advance():
            count += scan.last_offset - scan.base_offset + 1
            pace(0)
    return count


def with_next_base_offset(segments: list[SegmentInfo], end_offset: int) -> list[tuple[SegmentInfo, int]]:
    """Return each segment with the base offset of the next one."""
    bases = [segment.base_offset for segment in segments[1:]]
    return list(zip(segments, [*bases, end_offset], strict=True))


def decompressed_records(header: BatchHeader, batch: bytes) -> bytes:
    payload = batch[HEADER_BYTES:]
    return decompress(header.codec, payload, DECOMPRESSED_BYTES_CEILING) if header.codec else payload
