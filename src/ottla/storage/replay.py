"""Rebuilding producers and leader epochs from the batch headers of the log. Compiled with mypyc where possible."""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

from ottla.base.errors import KafkaError
from ottla.protocol.batches import ABORT_MARKER, COMMIT_MARKER, control_record_type, read_records
from ottla.storage import files
from ottla.storage.batch_ranges import position_before
from ottla.storage.leader_epochs import LeaderEpochCache
from ottla.storage.producer_state import NO_OFFSET, ProducerStates, SnapshotError, decode_snapshot
from ottla.storage.scan import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchScan
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTxn

logger = logging.getLogger("ottla.storage.replay")

RECENT_BATCH_BYTES = 8 << 20  # recent batches that producers may still retry
COORDINATOR_EPOCH = struct.Struct(">hi")  # version and epoch: the value of a transaction marker


class EndTransactionMarker(NamedTuple):
    """The marker at the end of a transaction."""

    is_abort: bool
    coordinator_epoch: int


def load_producers(
    directory: str,
    snapshots: list[int],
    segments: list[Segment],
    producers: ProducerStates,
    offset: int,
    *,
    recalls_batches: bool = False,
) -> int:
    """Load the producers at this offset: the newest valid snapshot at or before it, then a replay of the log.

    Returns the offset of the snapshot, -1 if there was none.
    """
    snapshot_offset = load_newest_snapshot(directory, snapshots, producers, offset)
    if recalls_batches and producers.by_id:
        reload_recent_batches(segments, producers, snapshot_offset)
    start = max(snapshot_offset, segments[0].base_offset)
    if start < offset:
        replay_producers(segments, producers, start, offset)
    return snapshot_offset


def load_newest_snapshot(directory: str, snapshots: list[int], producers: ProducerStates, offset: int) -> int:
    for snapshot_offset in reversed(snapshots):
        if snapshot_offset > offset:
            continue
        path = files.segment_path(directory, snapshot_offset, files.SNAPSHOT_SUFFIX)
        try:
            decode_snapshot(files.read_file(path), producers)
        except FileNotFoundError:
            continue  # an earlier attempt has removed it
        except SnapshotError as error:
            logger.warning("Found a corrupted producer snapshot %s (%s), rebuilding it from the log", path, error)
            producers.clear()
            files.remove_if_exists(path)
            continue
        return snapshot_offset
    return -1


def reload_recent_batches(segments: list[Segment], producers: ProducerStates, end: int) -> None:
    """Read the batches before a snapshot again, because a snapshot has only the last batch of each producer.

    After a crash a producer retries up to five unacknowledged batches; all of them must be known as duplicates.
    """
    recent = ProducerStates(producers.expiration_ms)
    before = [segment for segment in segments if segment.base_offset < end and segment.size]
    bytes_left = RECENT_BATCH_BYTES
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
                apply_batch(recent, scan)
    for producer_id, producer in recent.by_id.items():
        known = producers.by_id[producer_id]
        if known.epoch == producer.epoch and known.last_offset == producer.last_offset:
            known.batches = producer.batches


def replay_producers(segments: list[Segment], producers: ProducerStates, start: int, end: int) -> None:
    """Apply the headers of all batches between the two offsets."""
    for place, segment in enumerate(segments):
        is_before = place + 1 < len(segments) and segments[place + 1].base_offset <= start
        if is_before or segment.base_offset >= end or segment.size == 0:
            continue
        position = segment.find(start)[0] if segment.base_offset < start else 0
        scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
        while scan.advance() and scan.base_offset < end:
            if scan.producer_id >= 0:
                apply_batch(producers, scan)


def apply_batch(producers: ProducerStates, scan: BatchScan) -> int:
    """Apply one batch; returns the first offset of the transaction that it aborts, or -1."""
    if scan.attributes & CONTROL_FLAG:
        return apply_marker(producers, scan)
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


def apply_marker(producers: ProducerStates, scan: BatchScan) -> int:
    marker = read_marker(scan.batch())
    if marker is None:
        return NO_OFFSET
    first_offset = producers.end_transaction(
        scan.producer_id, scan.producer_epoch, marker.coordinator_epoch, scan.max_timestamp, scan.last_offset
    )
    return first_offset if marker.is_abort else NO_OFFSET


def read_marker(batch: bytes | memoryview) -> EndTransactionMarker | None:
    """Return the transaction marker of a control batch; None for other or corrupt ones."""
    try:
        record = next(iter(read_records(batch)), None)
    except KafkaError:
        return None  # the CRC check reports this batch as corrupt
    kind = control_record_type(record.key) if record is not None else -1
    if record is None or kind not in (ABORT_MARKER, COMMIT_MARKER):
        return None
    value = record.value or b""
    is_whole = len(value) >= COORDINATOR_EPOCH.size
    return EndTransactionMarker(kind == ABORT_MARKER, int(COORDINATOR_EPOCH.unpack_from(value)[1]) if is_whole else -1)


def aborted_transaction(producers: ProducerStates, producer_id: int, first_offset: int, last_offset: int) -> AbortedTxn:
    """Return the index entry of a transaction with its abort marker at `last_offset`; others may still be open."""
    first_unstable = producers.first_unstable_offset()
    last_stable_offset = first_unstable if first_unstable != NO_OFFSET else last_offset + 1
    return AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset)


def epochs_match_batches(epochs: LeaderEpochCache, segments: list[Segment], end_offset: int) -> bool:
    """Return whether batches confirm the epochs in the file, at the bounds of epochs and of segments."""
    offsets = {end_offset - 1, *(segment.base_offset for segment in segments)}
    for _, start_offset in epochs.entries:
        offsets |= {start_offset - 1, start_offset}
    return not any(contradicts_epochs(epochs, segments, offset) for offset in sorted(offsets))


def contradicts_epochs(epochs: LeaderEpochCache, segments: list[Segment], offset: int) -> bool:
    """Return whether a batch and an adjacent one both have other epochs.

    The CRC does not cover the epoch: one may be wrong.
    """
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
    """Return a scan positioned at the batch with this offset; None if none can be read."""
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


def replay_epochs(directory: str, segments: list[Segment]) -> LeaderEpochCache:
    """Return the leader epochs of the batches: each contains the epoch of the leader that wrote it."""
    epochs = LeaderEpochCache(directory)
    for segment in segments:
        if segment.size:
            scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
            while scan.advance():
                epochs.add_from_batch(scan.leader_epoch, scan.base_offset)
    epochs.write()
    return epochs
