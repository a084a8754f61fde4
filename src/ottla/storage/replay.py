"""Rebuilding producers and leader epochs from the headers of the batches in the log."""

from __future__ import annotations

import logging
import struct

from ottla.base.errors import KafkaError
from ottla.protocol.batches import control_record_type, read_records
from ottla.storage import files
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.index import POSITION_MASK
from ottla.storage.producers import NO_OFFSET, Producers
from ottla.storage.scan import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchScan
from ottla.storage.segment import Segment
from ottla.storage.snapshots import SnapshotError, decode_snapshot

logger = logging.getLogger("ottla.storage.replay")

ABORT_MARKER = 0
COMMIT_MARKER = 1
RECALL_BYTES = 8 << 20  # where the batches are that may still be in flight
COORDINATOR_EPOCH = struct.Struct(">hi")  # version and epoch: the value of a transaction marker


def load_producers(
    directory: str,
    snapshots: list[int],
    segments: list[Segment],
    producers: Producers,
    offset: int,
    *,
    recalls_batches: bool = False,
) -> int:
    """Fill in the producers as they were at this offset: the newest sound snapshot at or before it, then a replay.

    Returns the offset of the snapshot, -1 if there was none.
    """
    snapshot_offset = load_newest_snapshot(directory, snapshots, producers, offset)
    if recalls_batches and producers.by_id:
        recall_batches(segments, producers, snapshot_offset)
    start = max(snapshot_offset, segments[0].base_offset)
    if start < offset:
        replay_producers(segments, producers, start, offset)
    return snapshot_offset


def load_newest_snapshot(directory: str, snapshots: list[int], producers: Producers, offset: int) -> int:
    for snapshot_offset in reversed(snapshots):
        if snapshot_offset > offset:
            continue
        path = files.segment_path(directory, snapshot_offset, files.SNAPSHOT_SUFFIX)
        try:
            decode_snapshot(files.read_whole(path), producers)
        except SnapshotError as error:
            logger.warning("Found a corrupted producer snapshot %s (%s), rebuilding it from the log", path, error)
            producers.by_id.clear()
            files.remove_if_there(path)
            continue
        return snapshot_offset
    return -1


def recall_batches(segments: list[Segment], producers: Producers, end: int) -> None:
    """Read again what stood right before a snapshot, which knows only the last batch of each producer.

    After a crash a producer sends up to five batches again whose answers it did not get; all of them must be known.
    """
    recent = Producers(producers.expiration_ms)
    before = [segment for segment in segments if segment.base_offset < end and segment.size]
    bytes_left = RECALL_BYTES
    places = []
    for segment in reversed(before):
        places.append((segment, position_before(segment, segment.size - bytes_left)))
        bytes_left -= segment.size
        if bytes_left <= 0:
            break
    for segment, position in reversed(places):
        scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
        while scan.advance() and scan.base_offset < end:
            if scan.producer_id in producers.by_id and not scan.attributes & CONTROL_FLAG:
                note_producer(recent, scan)
    for producer_id, producer in recent.by_id.items():
        known = producers.by_id[producer_id]
        if known.epoch == producer.epoch and known.last_offset == producer.last_offset:
            known.batches = producer.batches


def position_before(segment: Segment, position: int) -> int:
    """The start of a batch at or before this position, as far as the index knows one."""
    index = segment.index()
    place = index.lookup_position(position) - 1 if position > 0 else -1
    return index.entries[place] & POSITION_MASK if place >= 0 else 0


def replay_producers(segments: list[Segment], producers: Producers, start: int, end: int) -> None:
    """Read the headers of all batches between the two offsets."""
    for place, segment in enumerate(segments):
        is_before = place + 1 < len(segments) and segments[place + 1].base_offset <= start
        if is_before or segment.base_offset >= end or segment.size == 0:
            continue
        position = segment.find(start)[0] if segment.base_offset < start else 0
        scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
        while scan.advance() and scan.base_offset < end:
            if scan.producer_id >= 0:
                note_producer(producers, scan)


def note_producer(producers: Producers, scan: BatchScan) -> int:
    """Take in one batch of a producer; the first offset of the transaction that it ends, or -1."""
    if scan.attributes & CONTROL_FLAG:
        return note_marker(producers, scan)
    producers.append(
        scan.producer_id,
        scan.producer_epoch,
        scan.base_sequence,
        scan.last_sequence,
        scan.base_offset,
        scan.last_offset,
        scan.max_timestamp,
        scan.attributes & TRANSACTIONAL_FLAG != 0,
    )
    return NO_OFFSET


def note_marker(producers: Producers, scan: BatchScan) -> int:
    coordinator_epoch = marker_coordinator_epoch(scan.batch())
    if coordinator_epoch is None:
        return NO_OFFSET
    return producers.end_transaction(scan.producer_id, scan.producer_epoch, coordinator_epoch, scan.max_timestamp)


def marker_coordinator_epoch(batch: bytes | memoryview) -> int | None:
    """The coordinator's epoch if this control batch ends a transaction; None for other or damaged ones."""
    try:
        record = next(iter(read_records(batch)), None)
    except KafkaError:
        return None  # whoever reads this batch is told that it is corrupt
    if record is None or control_record_type(record.key) not in (ABORT_MARKER, COMMIT_MARKER):
        return None
    value = record.value or b""
    if len(value) < COORDINATOR_EPOCH.size:
        return -1
    return int(COORDINATOR_EPOCH.unpack_from(value)[1])


def replay_epochs(directory: str, segments: list[Segment]) -> LeaderEpochs:
    """Each batch carries the epoch of the leader that wrote it."""
    epochs = LeaderEpochs(directory)
    for segment in segments:
        if segment.size:
            scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
            while scan.advance():
                epochs.replay(scan.leader_epoch, scan.base_offset)
    epochs.write()
    return epochs
