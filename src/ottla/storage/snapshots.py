"""Producer snapshots, `<offset>.snapshot`: who wrote what before that offset, in Kafka's format version 1.

    version int16 | crc uint32 | count int32 | per producer: id int64, epoch int16, last sequence int32,
    last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of transaction int64
The CRC32C covers what follows it. Only the newest batch of each producer is kept; replaying the log adds the rest.
"""

from __future__ import annotations

import logging
import os
import struct
import threading

from ottla.protocol.checksums import crc32c
from ottla.storage import files
from ottla.storage.producers import NO_OFFSET, NO_SEQUENCE, Producer, ProducerBatch, Producers

logger = logging.getLogger("ottla.storage.snapshots")

VERSION = 1
HEAD = struct.Struct(">hIi")
CRC_END = 6
ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotError(Exception):
    """A snapshot file that is not what we or Kafka write."""


class SnapshotJob:
    """The producers as of an offset, to be written by any thread, and older snapshots to be removed.

    cancel() comes before the log is cut: a snapshot of records that are gone must not appear afterwards.
    """

    def __init__(self, directory: str, offset: int, producers: Producers, recovery_point: int) -> None:
        self.path = files.segment_path(directory, offset, files.SNAPSHOT_SUFFIX)
        self.offset = offset
        self.is_written = False
        self._directory = directory
        self._data = encode_snapshot(producers)
        self._recovery_point = recovery_point
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """A failure is told and costs a replay later, no more."""
        with self._lock:
            if self._is_cancelled:
                return
            try:
                files.replace_file(self.path, self._data, durable=False)
                self.is_written = True
                remove_snapshots(self._directory, self.offset, self._recovery_point)
            except FileNotFoundError:
                return  # the folder was moved or deleted meanwhile
            except OSError as error:
                logger.warning("Cannot write the producer snapshot %s: %s", self.path, error)

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True

    def __repr__(self) -> str:
        return f"<SnapshotJob {self.path}>"


def encode_snapshot(producers: Producers) -> bytes:
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
            producer.transaction_first_offset,
        )
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[CRC_END:]))
    return bytes(data)


def decode_snapshot(data: bytes, producers: Producers) -> None:
    """Add the producers of a snapshot file; SnapshotError if it is damaged."""
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


def add_producer(
    producers: Producers,
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> None:
    producer = Producer(producer_id, epoch)
    producer.last_timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_first_offset = transaction_first_offset
    if last_offset >= 0:
        first_sequence = last_sequence - offset_delta
        if first_sequence < 0:  # the sequence wrapped around inside the batch
            first_sequence += 2**31
        producer.batches.append(
            ProducerBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp)
        )
    producers.add(producer)


def list_snapshots(directory: str) -> list[int]:
    """Offsets of all snapshots in the folder, oldest first."""
    suffix = files.SNAPSHOT_SUFFIX
    stems = [name.removesuffix(suffix) for name in os.listdir(directory) if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if len(stem) == files.OFFSET_DIGITS and stem.isdecimal())


def remove_snapshots(directory: str, end_offset: int, recovery_point: int) -> None:
    """Keep the newest two and whatever recovery may need; those past the end of the log are wrong."""
    offsets = list_snapshots(directory)
    sound = [offset for offset in offsets if offset <= end_offset]
    synced = [offset for offset in sound if offset <= recovery_point]
    kept = {*sound[-2:], *synced[-1:], *sound[len(synced) :]}
    for offset in set(offsets) - kept:
        files.remove_if_there(files.segment_path(directory, offset, files.SNAPSHOT_SUFFIX))
