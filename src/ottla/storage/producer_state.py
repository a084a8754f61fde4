"""The idempotent producers of a partition, and their snapshots on disk. Compiled with mypyc where possible.

Kafka's rules: the last five batches of each producer id are kept. A batch that equals one of them is a duplicate and
gets the offsets of the first. Any other batch must continue the sequence, a new epoch must start at 0, and an older
epoch is rejected. An unknown producer may start at any sequence: retention may have deleted its records.

Rule 1: checks change nothing; only append() does, after the batch was written.
Rule 2: the same batches in the same order produce the same state, live and in a replay.

A snapshot, `<offset>.snapshot`, has Kafka's format version 1:
    version int16, crc uint32, count int32; per producer: id int64, epoch int16, last sequence int32,
    last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of transaction int64
The CRC32C covers what follows it. Only the newest batch of each producer is stored; a replay of the log adds the
others.

The last stable offset: replication/partition.py.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections import OrderedDict, deque
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.protocol.checksums import crc32c
from ottla.storage import files

NUM_BATCHES_TO_RETAIN: Final = 5
UNREPLICATED_MAX: Final = 1000  # transactions with markers that are not replicated yet
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class BatchMetadata:
    """Sequences and offsets of one batch of a producer."""

    __slots__ = ("first_offset", "first_sequence", "last_offset", "last_sequence", "timestamp")

    def __init__(
        self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.timestamp = timestamp

    def __repr__(self) -> str:
        return f"<BatchMetadata {self.first_sequence}-{self.last_sequence} at {self.first_offset}-{self.last_offset}>"


class ProducerStateEntry:
    """The state of one producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1  # of the last transaction marker
        self.last_timestamp = -1
        self.current_txn_first_offset = NO_OFFSET  # of the open transaction, if any
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def __repr__(self) -> str:
        return f"<ProducerStateEntry {self.producer_id}/{self.epoch}, {self.batches}>"


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("by_id", "expiration_ms", "ongoing_txns", "unreplicated_txns")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.by_id: dict[int, ProducerStateEntry] = {}
        # Producer id -> first offset, the oldest transaction first: every read_committed fetch needs that one.
        self.ongoing_txns: OrderedDict[int, int] = OrderedDict()
        # First offset and marker offset of ended transactions with unreplicated markers. Both ascend: a transaction
        # that ended before an older one hides nothing that the older one does not hide.
        self.unreplicated_txns: deque[tuple[int, int]] = deque()

    def add(self, producer: ProducerStateEntry) -> None:
        """Add a producer from a snapshot; call sort_ongoing_txns() after the last one."""
        self.by_id[producer.producer_id] = producer
        if producer.current_txn_first_offset != NO_OFFSET:
            self.ongoing_txns[producer.producer_id] = producer.current_txn_first_offset

    def sort_ongoing_txns(self) -> None:
        self.ongoing_txns = OrderedDict(sorted(self.ongoing_txns.items(), key=lambda txn: txn[1]))

    def clear(self) -> None:
        self.by_id.clear()
        self.ongoing_txns.clear()
        self.unreplicated_txns.clear()

    def find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """Return the stored batch that this one duplicates."""
        producer = self.by_id.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return None
        for batch in producer.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def check(self, producer_id: int, epoch: int, first_sequence: int, is_transactional: bool, offset: int) -> None:
        """Raise KafkaError if the batch is out of sequence or fenced."""
        producer = self.by_id.get(producer_id)
        if producer is None or producer.epoch == NO_EPOCH:
            return
        if epoch < producer.epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} at offset {offset} is {epoch}, "
                f"which is smaller than the last seen epoch {producer.epoch}",
            )
        if epoch != producer.epoch:
            if first_sequence != 0:
                raise _out_of_order(producer, first_sequence, offset)
        elif not _in_sequence(producer.last_sequence, first_sequence):
            raise _out_of_order(producer, first_sequence, offset)
        if not is_transactional and producer.current_txn_first_offset != NO_OFFSET:
            raise KafkaError(Error.INVALID_TXN_STATE, f"Expected a transactional write from producer {producer_id}")

    def append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Record a batch that is now in the log."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = ProducerStateEntry(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        elif len(producer.batches) == NUM_BATCHES_TO_RETAIN:
            del producer.batches[0]
        producer.batches.append(BatchMetadata(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        producer.last_timestamp = timestamp
        if is_transactional and producer.current_txn_first_offset == NO_OFFSET:
            producer.current_txn_first_offset = first_offset
            self.ongoing_txns[producer_id] = first_offset

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int, marker_offset: int = NO_OFFSET
    ) -> int:
        """Record a marker that is now in the log; returns the first offset of its transaction, or -1.

        With `marker_offset` the transaction ends for readers only when the marker is replicated (see
        first_unstable_below).
        """
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = ProducerStateEntry(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        first_offset = producer.current_txn_first_offset
        producer.current_txn_first_offset = NO_OFFSET
        self.ongoing_txns.pop(producer_id, None)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        if NO_OFFSET not in (first_offset, marker_offset):
            self._add_unreplicated(first_offset, marker_offset)
        return first_offset

    def _add_unreplicated(self, first_offset: int, marker_offset: int) -> None:
        ended = self.unreplicated_txns
        while ended and ended[-1][0] > first_offset:
            ended.pop()
        # Merge two entries into one that ends with the later marker: possibly too late, never too early.
        if len(ended) >= UNREPLICATED_MAX:
            oldest_first, _ = ended.popleft()
            ended[0] = oldest_first, ended[0][1]
        ended.append((first_offset, marker_offset))

    def first_unstable_offset(self) -> int:
        """The first offset of the oldest open transaction, or -1."""
        return next(iter(self.ongoing_txns.values())) if self.ongoing_txns else NO_OFFSET

    def first_unstable_offset_below(self, high_watermark: int) -> int:
        """Return that offset for readers, for whom a transaction without a replicated marker is still open."""
        first_offset = self.first_unstable_offset()
        self.remove_unreplicated(high_watermark)
        if self.unreplicated_txns:
            oldest_ended = self.unreplicated_txns[0][0]
            return oldest_ended if first_offset == NO_OFFSET else min(oldest_ended, first_offset)
        return first_offset

    def remove_unreplicated(self, high_watermark: int) -> None:
        """Remove transactions with markers below the high watermark: they have ended for every reader."""
        while self.unreplicated_txns and self.unreplicated_txns[0][1] < high_watermark:
            self.unreplicated_txns.popleft()

    def remove_expired(self, now_ms: int) -> None:
        """Remove producers without recent records; an open transaction keeps its producer."""
        expired = [producer_id for producer_id, producer in self.by_id.items() if self._is_expired(producer, now_ms)]
        for producer_id in expired:
            del self.by_id[producer_id]

    def _is_expired(self, producer: ProducerStateEntry, now_ms: int) -> bool:
        is_silent = now_ms - producer.last_timestamp >= self.expiration_ms
        return is_silent and producer.current_txn_first_offset == NO_OFFSET

    def __repr__(self) -> str:
        return f"<ProducerStates {list(self.by_id.values())[:3]} of {len(self.by_id)}>"


def _in_sequence(last_sequence: int, first_sequence: int) -> bool:
    return first_sequence == last_sequence + 1 or (first_sequence == 0 and last_sequence == SEQUENCE_MAX)


def _out_of_order(producer: ProducerStateEntry, first_sequence: int, offset: int) -> KafkaError:
    return KafkaError(
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {producer.producer_id} at offset {offset}: {first_sequence} "
        f"(incoming seq. number), {producer.last_sequence} (current end sequence number)",
    )


logger = logging.getLogger("ottla.storage.producer_state")

VERSION = 1
HEAD = struct.Struct(">hIi")
CRC_END = 6
ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotError(Exception):
    """A snapshot file with invalid content."""


class ProducerSnapshotJob:
    """A snapshot of the producers at an offset, for any thread to write; older snapshots are removed.

    cancel() is called before the log is truncated: a snapshot of removed records must not appear afterwards.
    """

    def __init__(self, directory: str, offset: int, producers: ProducerStates, recovery_point: int) -> None:
        self.path = files.segment_path(directory, offset, files.SNAPSHOT_SUFFIX)
        self.offset = offset
        self.is_written = False
        self._directory = directory
        self._data = encode_snapshot(producers)
        self._recovery_point = recovery_point
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """A failure is logged; it only costs a replay at the next start."""
        with self._lock:
            if self._is_cancelled:
                return
            try:
                files.replace_file(self.path, self._data, is_durable=False)
                self.is_written = True
                remove_snapshots(self._directory, self.offset, self._recovery_point)
            except FileNotFoundError:
                return  # the directory was moved or deleted in the meantime
            except OSError as error:
                logger.warning("Cannot write the producer snapshot %s: %s", self.path, error)

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True

    def __repr__(self) -> str:
        return f"<ProducerSnapshotJob {self.path}>"


class ProducerStateManager:
    """The producers of one log, loaded at first use, and their snapshots."""

    __slots__ = ("_is_snapshot_pending", "_snapshot_job", "expiration_ms", "producers", "snapshot_offset")

    def __init__(self, producers: ProducerStates | None, expiration_ms: int) -> None:
        self.producers = producers  # None while there are none
        self.expiration_ms = expiration_ms
        self.snapshot_offset = -1  # of the newest snapshot that this log wrote or was loaded from
        self._snapshot_job: ProducerSnapshotJob | None = None  # the last one
        self._is_snapshot_pending = False  # it waits for the next flush

    def load(self) -> ProducerStates:
        if self.producers is None:
            self.producers = ProducerStates(self.expiration_ms)
        return self.producers

    def replace(self, producers: ProducerStates) -> None:
        self.producers = producers if producers.by_id else None

    def last_records(self) -> list[tuple[int, int, int]]:
        """Return producer id, last data offset (or -1) and epoch of each producer:

        compaction must keep these batches.
        """
        if self.producers is None:
            return []
        return [(p.producer_id, p.last_offset, p.epoch) for p in self.producers.by_id.values()]

    def ongoing_txns(self) -> dict[int, int]:
        """Return the first offsets of open transactions, by producer id."""
        return {} if self.producers is None else dict(self.producers.ongoing_txns)

    def first_unstable_offset(self) -> int:
        """Return the first offset of the oldest open transaction, or -1."""
        return -1 if self.producers is None else self.producers.first_unstable_offset()

    def first_unstable_offset_below(self, high_watermark: int) -> int:
        """Return that offset for consumers, who do not see markers at or above the high watermark; or -1."""
        return -1 if self.producers is None else self.producers.first_unstable_offset_below(high_watermark)

    def remove_unreplicated(self, high_watermark: int) -> None:
        """Remove transactions whose markers are below the high watermark: they have ended for every reader."""
        if self.producers is not None:
            self.producers.remove_unreplicated(high_watermark)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers without records for producer.id.expiration.ms, which may have changed since."""
        self.expiration_ms = expiration_ms
        if self.producers is not None:
            self.producers.expiration_ms = expiration_ms
            self.producers.remove_expired(now_ms)
            self.replace(self.producers)

    # --- snapshots ----------------------------------------------------------------------------------------------

    def prepare_snapshot(self, directory: str, end_offset: int, recovery_point: int) -> bool:
        """Encode the producers at the end of the log, to be written later; false if that snapshot exists."""
        if end_offset in (0, self.snapshot_offset):
            return False
        self._snapshot_job = ProducerSnapshotJob(directory, end_offset, self.load(), recovery_point)
        self._is_snapshot_pending = True
        return True

    def take_snapshot_job(self) -> ProducerSnapshotJob | None:
        is_pending, self._is_snapshot_pending = self._is_snapshot_pending, False
        return self._snapshot_job if is_pending else None

    def write_snapshot(self) -> None:
        """Write a pending snapshot now. A failure is logged; it only costs a replay at the next start."""
        job = self.take_snapshot_job()
        if job is not None:
            job.run()
            self.finish_snapshot(job)

    def finish_snapshot(self, job: ProducerSnapshotJob) -> None:
        if job.is_written:
            self.snapshot_offset = max(self.snapshot_offset, job.offset)

    def cancel_snapshot(self) -> None:
        """Cancel the snapshot before a truncation: a snapshot of removed records must not appear afterwards."""
        if self._snapshot_job is not None:
            self._snapshot_job.cancel()

    def __repr__(self) -> str:
        return f"<ProducerStateManager {self.producers}, snapshot {self.snapshot_offset}>"


def encode_snapshot(producers: ProducerStates) -> bytes:
    data = bytearray(HEAD.pack(VERSION, 0, len(producers.by_id)))
    for producer in producers.by_id.values():
        batch = producer.batches[-1] if producer.batches else None
        data += ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            batch.last_sequence if batch else NO_SEQUENCE,
            batch.last_offset if batch else NO_OFFSET,
            batch.last_offset - batch.first_offset if batch else 0,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_txn_first_offset,
        )
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[CRC_END:]))
    return bytes(data)


def decode_snapshot(data: bytes, producers: ProducerStates) -> None:
    """Add the producers of a snapshot file. Raises SnapshotError for invalid content."""
    if len(data) < HEAD.size:
        raise SnapshotError("the file is too short")
    version, crc, count = HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"unknown version {version}")
    if crc != crc32c(memoryview(data)[CRC_END:]):
        raise SnapshotError("the checksum is wrong")
    if count < 0 or HEAD.size + count * ENTRY.size != len(data):
        raise SnapshotError(f"{len(data)} bytes cannot hold {count} producers")
    for fields in ENTRY.iter_unpack(memoryview(data)[HEAD.size :]):
        add_producer(producers, *fields)
    producers.sort_ongoing_txns()


def add_producer(
    producers: ProducerStates,
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> None:
    producer = ProducerStateEntry(producer_id, epoch)
    producer.last_timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.current_txn_first_offset = transaction_first_offset
    if last_offset >= 0:
        first_sequence = last_sequence - offset_delta
        if first_sequence < 0:  # the sequence wrapped inside the batch
            first_sequence += 2**31
        producer.batches.append(
            BatchMetadata(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp)
        )
    producers.add(producer)


def list_snapshots(directory: str) -> list[int]:
    """Return the offsets of all snapshots in the directory, oldest first."""
    suffix = files.SNAPSHOT_SUFFIX
    stems = [name.removesuffix(suffix) for name in os.listdir(directory) if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if len(stem) == files.OFFSET_DIGITS and stem.isdecimal())


def remove_snapshots(directory: str, end_offset: int, recovery_point: int) -> None:
    """Keep the newest two and those that recovery may need; remove those past the end of the log."""
    offsets = list_snapshots(directory)
    sound = [offset for offset in offsets if offset <= end_offset]
    synced = [offset for offset in sound if offset <= recovery_point]
    kept = {*sound[-2:], *synced[-1:], *sound[len(synced) :]}
    for offset in set(offsets) - kept:
        files.remove_if_exists(files.segment_path(directory, offset, files.SNAPSHOT_SUFFIX))
