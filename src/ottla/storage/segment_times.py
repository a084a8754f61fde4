"""The timestamps of one segment, and its time index: what retention, rolling and searching by time go by.

The time index is believed only where the log bears it out. An entry that lies, or entries that are missing, cost a
rebuild of the indexes and nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ottla.base.errors import KafkaError
from ottla.storage import files
from ottla.storage.index import lookup_time
from ottla.storage.scan import BatchScan

if TYPE_CHECKING:
    from ottla.storage.segment import Segment

UNKNOWN: Final = -1
NOT_LOADED: Final = -2  # a timestamp that stands in a file which nobody read so far


def load_max_timestamp(segment: Segment) -> None:
    """Learn the largest timestamp of a segment that was found on disk from the last entry of its time index."""
    times = segment.time_index()
    is_true = times.count == 0 or is_true_time_entry(segment, times.last_timestamp, times.last_relative_offset)
    if is_true and not has_later_timestamp(segment, times.last_timestamp):
        segment.max_timestamp = times.last_timestamp
        segment.max_timestamp_offset = segment.base_offset + times.last_relative_offset
    else:
        segment.rebuild_indexes("the last entry of the time index does not fit the log")


def load_first_timestamp(segment: Segment) -> None:
    scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
    segment.first_timestamp = scan.max_timestamp if scan.advance() else UNKNOWN


def max_timestamp_of(segment: Segment) -> int:
    """The largest timestamp of its records, -1 if they have none."""
    if segment.max_timestamp == NOT_LOADED:
        was_open = segment.descriptor >= 0
        load_max_timestamp(segment)
        if not was_open:
            segment.close_if_unused()  # retention passes by all segments, most of which nobody uses
    return segment.max_timestamp


def first_timestamp_of(segment: Segment) -> int:
    """The largest timestamp of its first batch, -1 if that has none."""
    if segment.first_timestamp == NOT_LOADED:
        was_open = segment.descriptor >= 0
        load_first_timestamp(segment)
        if not was_open:
            segment.close_if_unused()
    return segment.first_timestamp


def retention_timestamp(segment: Segment) -> int:
    """What retention by time looks at; the file's own time where records have none."""
    timestamp = max_timestamp_of(segment)
    if timestamp >= 0:
        return timestamp
    try:
        return os.stat(segment.path(files.LOG_SUFFIX)).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return segment.created_ms


def find_time(segment: Segment, timestamp: int) -> int:
    """An offset at or before the first record with this timestamp or a later one."""
    segment.write_pending()
    path = segment.path(files.TIME_INDEX_SUFFIX)
    entry_timestamp, relative_offset = lookup_time(path, timestamp)
    if entry_timestamp >= 0 and not is_true_time_entry(segment, entry_timestamp, relative_offset):
        segment.rebuild_indexes(f"an entry of {path} does not fit the log")
        _, relative_offset = lookup_time(path, timestamp)
    return segment.base_offset + relative_offset


def is_true_time_entry(segment: Segment, timestamp: int, relative_offset: int) -> bool:
    """Whether the batch with this offset has this largest timestamp."""
    try:
        position, batch_bytes = segment.find(segment.base_offset + relative_offset)
    except KafkaError:  # the log itself is damaged on the way there
        return False
    if batch_bytes == 0:
        return False
    scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
    return scan.advance() and scan.max_timestamp == timestamp


def has_later_timestamp(segment: Segment, timestamp: int) -> bool:
    """Whether one of the last batches proves that entries of the time index are missing."""
    scan = BatchScan(segment.open_descriptor(), segment.index().last_position(), segment.size, False)
    while scan.advance():
        if scan.max_timestamp > timestamp:
            return True
    return False
