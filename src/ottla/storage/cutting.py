"""Shortening a segment and its indexes together: for recovery, and for followers that must truncate."""

from __future__ import annotations

import logging
from bisect import bisect_left

from ottla.storage import files
from ottla.storage.index import POSITION_MASK, cut_time_index, rising_prefix
from ottla.storage.scan import BatchScan, peek
from ottla.storage.segment import Segment
from ottla.storage.segment_times import UNKNOWN, is_true_time_entry

logger = logging.getLogger("ottla.storage.cutting")


def cut_segment(segment: Segment, position: int, offset: int) -> None:
    """Drop all bytes from this position on, which is where the batch with this offset starts."""
    files.truncate(segment.open_descriptor(), position)
    segment.size = position
    segment.last_append_offset = UNKNOWN
    segment.is_ascending = None
    segment.verified_from = min(segment.verified_from, position)
    segment.write_pending()
    cut_indexes(segment, position, offset)
    segment.cut_transactions(offset)
    # Batches behind the last index entry may have larger timestamps than the time index knows of.
    scan = BatchScan(segment.open_descriptor(), segment.index().last_position(), position, False)
    while scan.advance():
        if scan.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = scan.max_timestamp
            segment.max_timestamp_offset = scan.last_offset


def trusted_start(segment: Segment, recovery_point: int) -> tuple[int, int]:
    """The last position at or before the recovery point that the index leads to, and the offset there.

    What lies before it was synced, indexes included. The indexes are cut there: a scan from that position on makes the
    rest of them anew.
    """
    index = segment.index()
    sound = rising_prefix(index.entries, segment.size)
    if sound < len(index.entries) and index.entries[sound]:
        path = segment.path(files.INDEX_SUFFIX)
        logger.warning("Found a corrupted index file %s (entry %d), rebuilding it from the log", path, sound)
    count = bisect_left(index.entries, (recovery_point - segment.base_offset) << 32, 0, sound)
    position = index.entries[count - 1] & POSITION_MASK if count else 0
    if count and segment.is_true_entry(position, index.entries[count - 1] >> 32):
        offset = peek(segment.open_descriptor(), position, segment.size)[0]
        cut_indexes(segment, position, offset)
        times = segment.time_index()
        if times.count and is_true_time_entry(segment, times.last_timestamp, times.last_relative_offset):
            return position, offset
    cut_indexes(segment, 0, segment.base_offset)
    return 0, segment.base_offset


def cut_indexes(segment: Segment, position: int, offset: int) -> None:
    """Forget what the indexes say about this position and offset, and all later ones."""
    index = segment.index()
    index.cut(index.lookup_position(position), segment.path(files.INDEX_SUFFIX))
    segment.bytes_since_index = position - index.last_position()
    segment.replace_time_index(cut_time_index(segment.path(files.TIME_INDEX_SUFFIX), offset - segment.base_offset))
    if position == 0:
        segment.first_timestamp = UNKNOWN
