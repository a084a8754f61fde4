"""Cutting the end of a log off: what a follower does when its leader never had those records (KIP-101)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.storage import files
from ottla.storage.cutting import cut_segment
from ottla.storage.producers import Producers
from ottla.storage.replay import load_producers
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment, create_segment
from ottla.storage.snapshots import list_snapshots

if TYPE_CHECKING:
    from ottla.storage.log_files import LogFiles

logger = logging.getLogger("ottla.storage.truncation")


def truncate_to(log: LogFiles, offset: int) -> None:
    """Drop the batch that contains this offset, and all later ones; the next append gets this offset."""
    logger.info("Truncating %s from its end %d to offset %d", log.partition, log.end_offset, offset)
    remove_segments(log, [segment.base_offset for segment in log.segments if segment.base_offset > offset])
    segment = log.segments[-1]
    cut_segment(segment, cutting_position(segment, offset), offset)
    log.end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.epochs.truncate_from_end(offset)
    reload_producers(log)


def cutting_position(segment: Segment, offset: int) -> int:
    """Where the first batch stands that must go. Damaged batches, which nobody is to read, may well be among those."""
    try:
        return segment.find(offset)[0]
    except KafkaError:
        next_offset = segment.base_offset
        scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
        while scan.advance() and next_offset <= scan.base_offset and scan.last_offset < offset:
            next_offset = scan.last_offset + 1
        return scan.position


def truncate_fully(log: LogFiles, offset: int) -> None:
    """Drop everything and go on at this offset, which the leader's log starts with."""
    logger.info("Truncating %s fully, going on at offset %d", log.partition, offset)
    remove_segments(log, [segment.base_offset for segment in log.segments])
    log.segments.append(create_segment(log.directory, offset, log.pool, log.active.created_ms))
    log.end_offset = offset
    log.log_start_offset = offset
    log.epochs.truncate_from_end(0)
    remove_snapshots_past(log, -1)
    log.snapshot_offset = -1
    log.replace_producers(Producers(log.producer_expiration_ms))


def remove_segments(log: LogFiles, base_offsets: list[int]) -> None:
    """Newest first, so that a crash on the way leaves no hole."""
    gone = set(base_offsets)
    for segment in reversed(log.segments):
        if segment.base_offset in gone:
            segment.close()
            segment.rename_to_deleted()
            segment.remove_deleted()
    log.segments[:] = [segment for segment in log.segments if segment.base_offset not in gone]


def reload_producers(log: LogFiles) -> None:
    """Producers as of the new end; snapshots past it describe records that are gone."""
    remove_snapshots_past(log, log.end_offset)
    producers = Producers(log.producer_expiration_ms)
    snapshots = list_snapshots(log.directory)
    log.snapshot_offset = load_producers(
        log.directory, snapshots, log.segments, producers, log.end_offset, recalls_batches=True
    )
    log.replace_producers(producers)


def remove_snapshots_past(log: LogFiles, end_offset: int) -> None:
    for offset in list_snapshots(log.directory):
        if offset > end_offset:
            files.remove_if_there(files.segment_path(log.directory, offset, files.SNAPSHOT_SUFFIX))
