"""The search for offsets by timestamp, for ListOffsets.

The time index gives the segment and a position near the result: this is cheap and runs on the owner's thread. From
there batches are read, which may be many and not cached: a TimeSearch does that in any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ottla.protocol.batches import is_crc_valid, read_batch_header, read_records
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment, find_time, max_timestamp_of

TimestampAndOffset = tuple[int, int, int]
"""Offset, timestamp and leader epoch of a record."""


class TimeSearch:
    """The search for a timestamp in one segment. run() is for any thread, release() for the owner's."""

    def __init__(self, segment: Segment, log_start_offset: int, timestamp: int) -> None:
        self.segment = segment
        self.log_start_offset = log_start_offset
        self.timestamp = timestamp
        position, _ = segment.find(max(find_time(segment, timestamp), log_start_offset))
        self._range = segment.make_range(position, segment.size - position)

    def run(self) -> TimestampAndOffset | None:
        """Scan the batches; only one that reaches the timestamp is read as a whole."""
        start = self._range.position
        scan = BatchScan(self._range.descriptor, start, start + self._range.length, False)
        while scan.advance():
            if scan.max_timestamp >= self.timestamp:
                found = self._find_in_batch(scan)
                if found is not None:
                    return found
        return None

    def release(self) -> None:
        self._range.release()

    def _find_in_batch(self, scan: BatchScan) -> TimestampAndOffset | None:
        batch = os.pread(self._range.descriptor, scan.batch_bytes, scan.position)
        if not is_crc_valid(batch, 0, read_batch_header(batch, 0)):
            raise self.segment.corrupt_error(scan.position)
        for record in read_records(batch):
            if record.timestamp >= self.timestamp and record.offset >= self.log_start_offset:
                return record.offset, record.timestamp, scan.leader_epoch
        return None

    def __repr__(self) -> str:
        return f"<TimeSearch for {self.timestamp} in {self.segment!r}>"


def offset_for_timestamp(segments: list[Segment], log_start_offset: int, timestamp: int) -> TimestampAndOffset | None:
    """Return the first record at or past the log start offset with this timestamp or a later one."""
    for segment in segments:
        if segment.size and max_timestamp_of(segment) >= timestamp:
            found = find_in_segment(segment, log_start_offset, timestamp)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(segments: list[Segment], log_start_offset: int) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp of the log."""
    segment = segment_with_max_timestamp(segments, max_timestamp_of)
    return None if segment is None else find_in_segment(segment, log_start_offset, segment.max_timestamp)


def segment_with_max_timestamp(segments: list[Segment], timestamp_of: Callable[[Segment], int]) -> Segment | None:
    """Return the first segment with the largest timestamp; None if no record has a timestamp."""
    with_times = [segment for segment in segments if segment.size and timestamp_of(segment) >= 0]
    return max(with_times, key=timestamp_of) if with_times else None


def find_in_segment(segment: Segment, log_start_offset: int, timestamp: int) -> TimestampAndOffset | None:
    search = TimeSearch(segment, log_start_offset, timestamp)
    try:
        return search.run()
    finally:
        search.release()
