"""Rebuilding producers and leader epochs from the headers of the batches in the log."""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

from ottla.base.errors import KafkaError
from ottla.protocol.batches import ABORT_MARKER, COMMIT_MARKER, control_record_type, read_records
from ottla.storage import files
from ottla.storage.boundaries import position_before
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.producers import NO_OFFSET, Producers
from ottla.storage.scan import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchScan
from ottla.storage.segment import Segment
from ottla.storage.snapshots import SnapshotError, decode_snapshot
from ottla.storage.transaction_index import AbortedTransaction

logger = logging.getLogger("ottla.storage.replay")

RECALL_BYTES = 8 << 20  # where the batches are that may still be in flight
COORDINATOR_EPOCH = struct.Struct(">hi")  # version and epoch: the value of a transaction marker


class Marker(NamedTuple):
    """The end of a transaction."""

    is_abort: bool
    coordinator_epoch: int


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
        except FileNotFoundError:
            continue  # it was damaged, and we have been here before
        except SnapshotError as error:
            logger.warning("Found a corrupted producer snapshot %s (%s), rebuilding it from the log", path, error)
            producers.clear()
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
    """Take in one batch of a producer; the first offset of the transaction that it aborts, or -1."""
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
    marker = read_marker(scan.batch())
    if marker is None:
        return NO_OFFSET
    first_offset = producers.end_transaction(
        scan.producer_id, scan.producer_epoch, marker.coordinator_epoch, scan.max_timestamp, scan.last_offset
    )
    return first_offset if marker.is_abort else NO_OFFSET


def read_marker(batch: bytes | memoryview) -> Marker | None:
    """What this control batch says if it ends a transaction; None for other or damaged ones."""
    try:
        record = next(iter(read_records(batch)), None)
    except KafkaError:
        return None  # whoever reads this batch is told that it is corrupt
    kind = control_record_type(record.key) if record is not None else -1
    if record is None or kind not in (ABORT_MARKER, COMMIT_MARKER):
        return None
    value = record.value or b""
    is_whole = len(value) >= COORDINATOR_EPOCH.size
    return Marker(kind == ABORT_MARKER, int(COORDINATOR_EPOCH.unpack_from(value)[1]) if is_whole else -1)


def aborted_by(producers: Producers, producer_id: int, first_offset: int, last_offset: int) -> AbortedTransaction:
    """The index entry of a transaction whose abort marker stands at `last_offset`; others may still be under way."""
    first_unstable = producers.first_unstable_offset()
    last_stable_offset = first_unstable if first_unstable != NO_OFFSET else last_offset + 1
    return AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)


def epochs_fit(epochs: LeaderEpochs, segments: list[Segment], end_offset: int) -> bool:
    """Whether batches bear out what the file says: where epochs start and end, and where segments do."""
    offsets = {end_offset - 1, *(segment.base_offset for segment in segments)}
    for _, start_offset in epochs.entries:
        offsets |= {start_offset - 1, start_offset}
    return not any(is_contradicted(epochs, segments, offset) for offset in sorted(offsets))


def is_contradicted(epochs: LeaderEpochs, segments: list[Segment], offset: int) -> bool:
    """Whether a batch and one beside it are both of other epochs. One alone may lie: no checksum covers its epoch."""
    start = epochs.entries[0][1]
    here = batch_at(segments, offset)
    if offset < start or here is None or here.leader_epoch == epochs.epoch_of(offset):
        return False
    beside = (batch_at(segments, here.base_offset - 1), batch_at(segments, here.last_offset + 1))
    return any(
        other is not None and other.base_offset >= start and other.leader_epoch != epochs.epoch_of(other.base_offset)
        for other in beside
    )


def batch_at(segments: list[Segment], offset: int) -> BatchScan | None:
    """A scan that stands at the batch with this offset; None if there is none, or none that can be read."""
    holding = [segment for segment in segments if segment.base_offset <= offset]
    if not holding or holding[-1].size == 0:
        return None
    segment = holding[-1]
    try:
        position, _ = segment.find(offset)
    except KafkaError:
        return None
    scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
    return scan if scan.advance() and scan.base_offset <= offset <= scan.last_offset else None


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
