"""Truncating a log or a segment at its end, for followers (KIP-101) and for recovery.

Compiled with mypyc where possible.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.storage import files
from ottla.storage.producer_state import ProducerStates, list_snapshots
from ottla.storage.replay import load_producers
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment, create_segment

if TYPE_CHECKING:
    from ottla.storage.log import Log

from bisect import bisect_left

from ottla.storage.index import POSITION_MASK, ascending_prefix, truncate_time_index
from ottla.storage.scan import peek_header
from ottla.storage.segment import UNKNOWN, is_time_entry_valid

logger = logging.getLogger("ottla.storage.truncation")


def truncate_to(log: Log, offset: int) -> None:
    """Remove the batch that contains this offset, and all later ones; the next append gets this offset."""
    logger.info("Truncating %s from its end %d to offset %d", log.partition, log.end_offset, offset)
    remove_segments(log, [segment.base_offset for segment in log.segments if segment.base_offset > offset])
    segment = log.segments[-1]
    truncate_segment(segment, truncation_position(segment, offset), offset)
    log.end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.epochs.truncate_from_end(offset)
    reload_producers(log)


def truncation_position(segment: Segment, offset: int) -> int:
    """Return the position of the first batch to remove.

    Corrupt batches may be among those, because they are removed.
    """
    try:
        return segment.find(offset)[0]
    except KafkaError:
        next_offset = segment.base_offset
        scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
        while scan.advance() and next_offset <= scan.base_offset and scan.last_offset < offset:
            next_offset = scan.last_offset + 1
        return scan.position


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Remove everything; the log continues at this offset, the leader's log start offset."""
    logger.info("Truncating %s fully and starting at offset %d", log.partition, offset)
    remove_segments(log, [segment.base_offset for segment in log.segments])
    log.segments.append(create_segment(log.directory, offset, log.pool, log.active.created_ms))
    log.end_offset = offset
    log.log_start_offset = offset
    log.epochs.truncate_from_end(0)
    remove_snapshots_after(log, -1)
    log.producer_state.snapshot_offset = -1
    log.producer_state.replace(ProducerStates(log.producer_state.expiration_ms))


def remove_segments(log: Log, base_offsets: list[int]) -> None:
    """Remove segments, newest first: so that a crash in between leaves no gap."""
    gone = set(base_offsets)
    for segment in reversed(log.segments):
        if segment.base_offset in gone:
            segment.close()
            segment.rename_to_deleted()
            segment.remove_deleted()
    log.segments[:] = [segment for segment in log.segments if segment.base_offset not in gone]


def reload_producers(log: Log) -> None:
    """Load the producers at the new end; snapshots past it describe removed records."""
    remove_snapshots_after(log, log.end_offset)
    producers = ProducerStates(log.producer_state.expiration_ms)
    snapshots = list_snapshots(log.directory)
    log.producer_state.snapshot_offset = load_producers(
        log.directory, snapshots, log.segments, producers, log.end_offset, recalls_batches=True
    )
    log.producer_state.replace(producers)


def remove_snapshots_after(log: Log, end_offset: int) -> None:
    for offset in list_snapshots(log.directory):
        if offset > end_offset:
            files.remove_if_exists(files.segment_path(log.directory, offset, files.SNAPSHOT_SUFFIX))


def truncate_segment(segment: Segment, position: int, offset: int) -> None:
    """Remove all bytes from this position on, which is the start of the batch with this offset."""
    files.truncate(segment.open_descriptor(), position)
    segment.size = position
    segment.last_append_offset = UNKNOWN
    segment.is_ascending = None
    segment.verified_from = min(segment.verified_from, position)
    segment.write_pending()
    truncate_indexes(segment, position, offset)
    segment.truncate_transactions(offset)
    # Batches after the last index entry may have larger timestamps than the time index.
    scan = BatchScan(segment.open_descriptor(), segment.index().last_position(), position, False)
    while scan.advance():
        if scan.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = scan.max_timestamp
            segment.max_timestamp_offset = scan.last_offset


def recovery_start(segment: Segment, recovery_point: int) -> tuple[int, int]:
    """Return the last position at or before the recovery point with a valid index entry, and its offset.

    Bytes before it were synced, including their indexes. The indexes are truncated there: a scan from that position
    rebuilds the rest.
    """
    index = segment.index()
    sound = ascending_prefix(index.entries, segment.size)
    if sound < len(index.entries) and index.entries[sound]:
        path = segment.path(files.INDEX_SUFFIX)
        logger.warning("Found a corrupted index file %s (entry %d), rebuilding it from the log", path, sound)
    count = bisect_left(index.entries, (recovery_point - segment.base_offset) << 32, 0, sound)
    position = index.entries[count - 1] & POSITION_MASK if count else 0
    if count and segment.is_index_entry_valid(position, index.entries[count - 1] >> 32):
        offset = peek_header(segment.open_descriptor(), position, segment.size)[0]
        truncate_indexes(segment, position, offset)
        times = segment.time_index()
        if times.count and is_time_entry_valid(segment, times.last_timestamp, times.last_relative_offset):
            return position, offset
    truncate_indexes(segment, 0, segment.base_offset)
    return 0, segment.base_offset


def truncate_indexes(segment: Segment, position: int, offset: int) -> None:
    """Remove index entries at or past this position and offset."""
    index = segment.index()
    index.truncate_to_entries(index.count_before_position(position), segment.path(files.INDEX_SUFFIX))
    segment.bytes_since_index = position - index.last_position()
    segment.replace_time_index(truncate_time_index(segment.path(files.TIME_INDEX_SUFFIX), offset - segment.base_offset))
    if position == 0:
        segment.first_timestamp = UNKNOWN
