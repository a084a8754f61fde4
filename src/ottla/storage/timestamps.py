"""Which offset belongs to a time: ListOffsets by timestamp."""

from __future__ import annotations

import os

from ottla.protocol.batches import crc_is_right, read_batch_header, read_records
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment
from ottla.storage.segment_times import find_time, max_timestamp_of

FoundOffset = tuple[int, int, int]
"""Offset, timestamp and leader epoch of a record."""


def offset_for_timestamp(segments: list[Segment], log_start_offset: int, timestamp: int) -> FoundOffset | None:
    """The first record at or past the start of the log that is not older than this."""
    for segment in segments:
        if segment.size and max_timestamp_of(segment) >= timestamp:
            found = find_in_segment(segment, log_start_offset, timestamp)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(segments: list[Segment], log_start_offset: int) -> FoundOffset | None:
    """The first record that has the largest timestamp of the whole log."""
    segments = [segment for segment in segments if segment.size and max_timestamp_of(segment) >= 0]
    if not segments:
        return None
    segment = max(segments, key=max_timestamp_of)
    return find_in_segment(segment, log_start_offset, segment.max_timestamp)


def find_in_segment(segment: Segment, log_start_offset: int, timestamp: int) -> FoundOffset | None:
    """Look at the batches that the time index leads to; only one that reaches the timestamp is read as a whole."""
    position, _ = segment.find(max(find_time(segment, timestamp), log_start_offset))
    scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
    while scan.advance():
        if scan.max_timestamp >= timestamp:
            found = find_in_batch(segment, scan, log_start_offset, timestamp)
            if found is not None:
                return found
    return None


def find_in_batch(segment: Segment, scan: BatchScan, log_start_offset: int, timestamp: int) -> FoundOffset | None:
    batch = os.pread(segment.open_descriptor(), scan.batch_bytes, scan.position)
    if not crc_is_right(batch, 0, read_batch_header(batch, 0)):
        raise segment.corrupt(scan.position)
    for record in read_records(batch):
        if record.timestamp >= timestamp and record.offset >= log_start_offset:
            return record.offset, record.timestamp, scan.leader_epoch
    return None
