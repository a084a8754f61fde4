"""The batches and records of a segment file, read as they lie there: nothing is repaired, damage is told.

Only what a file really holds is read: a length that lies never makes us read past its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from ottla.base.errors import KafkaError
from ottla.cli.terminal import ToolError
from ottla.operations.records.decoders import Decoder
from ottla.protocol.batches import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    control_record_type,
    crc_is_right,
    read_records,
)
from ottla.protocol.compression import CODEC_NAMES
from ottla.protocol.records import Record

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")  # of the files of a partition
MAGIC_END = 17  # base offset, length, leader epoch and magic: what Kafka looks at first
RECORD_BYTES_MIN = 14
SEQUENCE_COUNT = 2**31
END_MARKERS = {0: "ABORT", 1: "COMMIT"}
CONTROL_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}


class Batch(NamedTuple):
    """One batch, whole."""

    position: int
    header: BatchHeader
    data: bytes

    @property
    def is_valid(self) -> bool:
        return crc_is_right(self.data, 0, self.header)

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.header.is_log_append_time else "CreateTime"

    def records(self) -> Iterator[Record]:
        try:
            yield from read_records(self.data)
        except KafkaError as problem:
            raise ToolError(f"the batch at position {self.position} cannot be read: {problem}") from None


class SegmentWalk:
    """Iterates over the batches of a file up to `bytes_max`; afterwards `position` tells how far it came."""

    def __init__(self, file: BinaryIO, name: str, start: int = 0, bytes_max: int | None = None) -> None:
        self.file = file
        self.name = name
        size = os.fstat(file.fileno()).st_size
        self.end = size if bytes_max is None else min(size, start + bytes_max)
        self.position = start

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self._next()) is not None:
            yield batch
            self.position += batch.header.batch_bytes

    def _next(self) -> Batch | None:
        if self.position >= self.end - MAGIC_END:
            return None
        self.file.seek(self.position)
        head = self.file.read(MAGIC_END)
        length = int.from_bytes(head[8:12], "big", signed=True)
        if length < RECORD_BYTES_MIN:
            raise ToolError(
                f"Found record size {length} smaller than minimum record overhead ({RECORD_BYTES_MIN}) "
                f"in file {self.name}."
            )
        batch_bytes = length + LENGTH_PREFIX_BYTES
        if self.position > self.end - batch_bytes:
            return None
        magic = int.from_bytes(head[16:17], "big", signed=True)
        if magic != MAGIC or batch_bytes < HEADER_BYTES:
            raise ToolError(
                f"the batch at position {self.position} of {self.name} has magic {magic} and {batch_bytes} bytes: "
                f"only batches with magic {MAGIC} can be read"
            )
        data = head + self.file.read(batch_bytes - MAGIC_END)
        return Batch(self.position, BatchHeader(HEADER.unpack_from(data)), data)

    def __repr__(self) -> str:
        return f"<SegmentWalk {self.name} at {self.position} of {self.end}>"


def batch_line(batch: Batch) -> str:
    """One batch as Kafka prints it."""
    header = batch.header
    horizon = (
        f"OptionalLong[{header.base_timestamp}]" if header.attributes & DELETE_HORIZON_FLAG else "OptionalLong.empty"
    )
    codec = CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else str(header.codec)
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_boolean(header.is_transactional)} "
        f"isControl: {_boolean(header.is_control)} deleteHorizonMs: {horizon} position: {batch.position} "
        f"{batch.timestamp_type}: {header.max_timestamp} size: {header.batch_bytes} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_boolean(batch.is_valid)}"
    )


def record_line(
    batch: Batch, record: Record, decoder: Decoder | None, has_metadata: bool, clean: Callable[[str], str]
) -> str:
    """One record as Kafka prints it; `clean` makes what others wrote fit for the terminal."""
    line = _metadata(batch, record, clean) if has_metadata else ""
    if decoder is None or batch.header.attributes & CONTROL_FLAG:
        return line
    shown = decoder(record)
    parts = []
    if shown.key is not None:
        parts.append(f"key: {clean(shown.key)}")
    if shown.value is not None:
        parts.append(f"payload: {clean(shown.value)}")
    if not parts:
        return line
    return (line or "|") + " " + " ".join(parts)


def _metadata(batch: Batch, record: Record, clean: Callable[[str], str]) -> str:
    header = batch.header
    delta = record.offset - header.base_offset
    sequence = (header.base_sequence + delta) % SEQUENCE_COUNT if header.base_sequence >= 0 else header.base_sequence
    names = ",".join(clean(name) for name, _ in record.headers)
    line = (
        f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{names}]"
    )
    return line + _control(record) if header.is_control else line


def _control(record: Record) -> str:
    kind = control_record_type(record.key)
    if kind in END_MARKERS:
        epoch = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
        return f" endTxnMarker: {END_MARKERS[kind]} coordinatorEpoch: {epoch}"
    return f" controlType: {CONTROL_TYPES.get(kind, 'UNKNOWN')}({kind})"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"
