"""One round of cleaning over one log, in the cleaner's process: reads segments, writes `.cleaned` ones. Compiled.

First the keys of the dirty part are noted with their newest offsets, until the map is full or the part is at its end.
Then all segments up to there are read from the beginning and what stays is written. If the map was full, the next
round goes on where this one ended.

Rule 1: nothing is changed but files whose names end with `.cleaned`.
Rule 2: every byte that is read is checked first. The first bad batch ends the round, and the log stays as it is.
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
from ottla.storage.cleaning.batches import BatchCleaner
from ottla.storage.cleaning.job import CleanedGroup, CleanJob, CleanReport, SegmentFacts
from ottla.storage.cleaning.key_map import KeyMap, memory_for
from ottla.storage.cleaning.plan import group_segments
from ottla.storage.cleaning.records import Policy, RecordFilter, note_keys
from ottla.storage.cleaning.transactions import CleanedTransactions
from ottla.storage.cleaning.writer import CleanedSegmentWriter, remove_cleaned
from ottla.storage.scan import BatchScan
from ottla.storage.transaction_index import AbortedTransaction, load_transaction_index

Pace = Callable[[int], None]
"""Told how many bytes were read or written; waits if that was too fast, raises if the round is to end."""


class CleaningRound:
    """What is built up on the way through one job."""

    def __init__(self, job: CleanJob, policy: Policy | None, pace: Pace) -> None:
        self._job = job
        self._policy = policy
        self._pace = pace
        self._key_map: KeyMap | None = None
        self._latest_offset = job.first_dirty_offset - 1  # up to here the keys are known
        self._bytes_read = 0
        self._bytes_written = 0

    def run(self, on_group: Callable[[CleanedGroup], None]) -> CleanReport:
        started = time.monotonic()
        job = self._job
        remove_cleaned(job.directory)
        aborted = read_aborted(job)
        if job.is_compacted:
            self._note_keys(CleanedTransactions([t for t in aborted if t.last_offset >= job.first_dirty_offset]))
        else:
            self._latest_offset = job.first_uncleanable_offset - 1
        end_offset = self._latest_offset + 1
        if end_offset <= job.first_dirty_offset < job.first_uncleanable_offset:
            raise KafkaError(Error.INVALID_CONFIG, "log.cleaner.dedupe.buffer.size is too small for a single batch")
        transactions = CleanedTransactions(aborted)
        cleaner = BatchCleaner(
            RecordFilter(self._key_map, self._latest_offset, self._policy),
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
            keys=self._key_map.count if self._key_map is not None else 0,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            records_read=cleaner.records_read,
            records_kept=cleaner.records_kept,
            seconds=time.monotonic() - started,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    # --- the keys -----------------------------------------------------------------------------------------------

    def _note_keys(self, transactions: CleanedTransactions) -> None:
        job = self._job
        first = job.first_dirty_offset
        dirty = [
            (segment, next_base)
            for segment, next_base in with_next(job.segments, job.first_uncleanable_offset)
            if next_base > first
        ]
        keys = sum(count_records(self._path(segment), segment.size, self._pace) for segment, _ in dirty)
        memory_bytes = memory_for(keys, job.load_factor, job.map_bytes)
        key_map = self._key_map = KeyMap(memory_bytes, job.load_factor, first)
        for segment, next_base in dirty:
            with files.opened(self._path(segment), files.READ_FLAGS) as descriptor:
                if not self._note_segment(segment, descriptor, transactions, key_map):
                    return
            self._latest_offset = next_base - 1  # the offsets at its end may have been compacted away

    def _note_segment(
        self, segment: SegmentFacts, descriptor: int, transactions: CleanedTransactions, key_map: KeyMap
    ) -> bool:
        """False if the map is full."""
        first = self._job.first_dirty_offset
        scan = BatchScan(descriptor, 0, segment.size, True, self._job.buffer_bytes)
        while scan.advance():
            self._note_read(scan.batch_bytes)
            if scan.last_offset < first:
                continue
            batch = scan.batch()
            header = read_batch_header(batch)
            if header.is_control:
                transactions.is_marker_free(header, batch)
            elif not transactions.is_aborted(header):
                payload = records_of(header, batch)
                if not note_keys(payload, header.record_count, header.base_offset, first, key_map):
                    return False
            self._latest_offset = scan.last_offset
        self._require_end(scan, segment)
        return True

    # --- what stays ---------------------------------------------------------------------------------------------

    def _clean_group(
        self, group: list[SegmentFacts], cleaner: BatchCleaner, transactions: CleanedTransactions
    ) -> CleanedGroup:
        writer = CleanedSegmentWriter(self._job.directory, group[0].base_offset, self._pace)
        try:
            for place, segment in enumerate(group):
                with files.opened(self._path(segment), files.READ_FLAGS) as descriptor:
                    self._clean_segment(segment, descriptor, cleaner, writer, is_alone=len(group) == 1)
                if place + 1 == len(group):
                    writer.modified_ns = os.stat(self._path(segment)).st_mtime_ns
            aborted = transactions.take_kept()
            base_offsets = [segment.base_offset for segment in group]
            if not writer.is_begun:
                return CleanedGroup(base_offsets=base_offsets, size=group[0].size, is_unchanged=True)
            # Where there was a transaction index there is one again, so that a crash leaves no doubt whose it is.
            has_transactions = bool(aborted) or not set(base_offsets).isdisjoint(self._job.transaction_indexes)
            writer.finish(aborted if has_transactions else None, self._job.index_interval_bytes)
        finally:
            writer.close()
        self._bytes_written += writer.size
        return CleanedGroup(base_offsets=base_offsets, size=writer.size, has_transactions=has_transactions)

    def _clean_segment(
        self,
        segment: SegmentFacts,
        descriptor: int,
        cleaner: BatchCleaner,
        writer: CleanedSegmentWriter,
        *,
        is_alone: bool,
    ) -> None:
        """Write what stays. A segment that is alone is only written from the first batch on that changes."""
        if not is_alone:
            writer.begin()
        scan = BatchScan(descriptor, 0, segment.size, True, self._job.buffer_bytes)
        while scan.advance():
            self._note_read(scan.batch_bytes)
            batch = scan.batch()
            result = cleaner.clean(read_batch_header(batch), batch)
            if result is not batch and not writer.is_begun:
                writer.begin_with(descriptor, scan.position)
            if result is not None and writer.is_begun:
                writer.append(result)
        self._require_end(scan, segment)

    # --- helpers ------------------------------------------------------------------------------------------------

    def _path(self, segment: SegmentFacts) -> str:
        return files.segment_path(self._job.directory, segment.base_offset, files.LOG_SUFFIX)

    def _note_read(self, count: int) -> None:
        self._bytes_read += count
        self._pace(count)

    def _require_end(self, scan: BatchScan, segment: SegmentFacts) -> None:
        if scan.problem is not None:
            raise KafkaError(
                Error.CORRUPT_MESSAGE, f"{self._path(segment)} at position {scan.position}: {scan.problem}"
            )

    def __repr__(self) -> str:
        return f"<CleaningRound {self._job.topic}-{self._job.partition}, {self._bytes_read} bytes read>"


def read_aborted(job: CleanJob) -> list[AbortedTransaction]:
    """The aborted transactions of the whole log: one that starts in a cleaned segment may end in a later one."""
    aborted: list[AbortedTransaction] = []
    for base_offset in job.transaction_indexes:
        path = files.segment_path(job.directory, base_offset, files.TRANSACTION_INDEX_SUFFIX)
        aborted += load_transaction_index(path, base_offset).entries
    return [transaction for transaction in aborted if transaction.first_offset < job.first_uncleanable_offset]


def count_records(path: str, size: int, pace: Pace) -> int:
    """How many records a segment has at most, from the offsets of its batches: an upper bound for its keys."""
    count = 0
    with files.opened(path, files.READ_FLAGS) as descriptor:
        scan = BatchScan(descriptor, 0, size, False)
        while scan.advance():
            count += scan.last_offset - scan.base_offset + 1
            pace(0)
    return count


def with_next(segments: list[SegmentFacts], end_offset: int) -> list[tuple[SegmentFacts, int]]:
    """Each segment with the offset where the next one starts."""
    bases = [segment.base_offset for segment in segments[1:]]
    return list(zip(segments, [*bases, end_offset], strict=True))


def records_of(header: BatchHeader, batch: bytes) -> bytes:
    payload = batch[HEADER_BYTES:]
    return decompress(header.codec, payload, DECOMPRESSED_BYTES_CEILING) if header.codec else payload
