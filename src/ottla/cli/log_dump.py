"""Reads the files of a partition: segments, offset index, time index, transaction index and producer snapshot.

Each index entry is compared with the batch that it points to; mismatches are collected in `Findings`. Files are read as
they are: nothing is repaired, and a wrong length field never causes a read beyond the end of the file.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from ottla.base.errors import KafkaError
from ottla.cli.java.hash_order import hash_map_order
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
    is_crc_valid,
    read_records,
)
from ottla.protocol.checksums import crc32c
from ottla.protocol.compression import CODEC_NAMES
from ottla.protocol.records import Record
from ottla.storage import producer_state
from ottla.storage.index import OFFSET_ENTRY, OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES
from ottla.storage.transaction_index import ENTRY, ENTRY_BYTES

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")  # suffixes of the files of a partition
MAGIC_END = 17  # base offset, length, leader epoch and magic: Kafka checks these first
RECORD_BYTES_MIN = 14
SEQUENCE_COUNT = 2**31
END_MARKERS = {0: "ABORT", 1: "COMMIT"}
CONTROL_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}


class Batch(NamedTuple):
    """One batch with its bytes."""

    position: int
    header: BatchHeader
    data: bytes

    @property
    def is_valid(self) -> bool:
        return is_crc_valid(self.data, 0, self.header)

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.header.is_log_append_time else "CreateTime"

    def records(self) -> Iterator[Record]:
        try:
            yield from read_records(self.data)
        except KafkaError as problem:
            raise ToolError(f"the batch at position {self.position} cannot be read: {problem}") from None


class SegmentWalk:
    """Iterates over the batches of a file, up to `bytes_max`. `position` is the end of the last batch."""

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
    """One batch in the format of Kafka's DumpLogSegments."""
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
    """One record in the format of Kafka's DumpLogSegments; `clean` escapes data for the terminal."""
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


MESSAGE_BYTES_MAX = 5 * 1024 * 1024
NO_TIMESTAMP = -1

T = TypeVar("T")


class OffsetEntry(NamedTuple):
    """Absolute offset and file position of the batch that ends with this offset."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class Findings:
    """The problems found, by absolute file name."""

    def __init__(self) -> None:
        self.mismatches: dict[str, dict[int, int]] = {}
        self.gaps: dict[str, dict[int, int]] = {}
        self.timestamps: dict[str, list[tuple[int, int]]] = {}
        self.out_of_order: dict[str, list[tuple[int, int]]] = {}
        self.not_found: dict[str, list[tuple[int, int]]] = {}

    def lines(self) -> list[str]:
        """The problems in the words and the order of Kafka's tool."""
        found: list[str] = []
        for name, pairs in _in_hash_map_order(self.mismatches):
            found.append(f"Mismatches in :{name}")
            found += [
                f"  Index offset: {index}, log offset: {log}" for index, log in sorted(pairs.items(), reverse=True)
            ]
        for name, entries in _in_hash_map_order(self.timestamps):
            found.append(f"Found timestamp mismatch in :{name}")
            found += [f"  Index timestamp: {index}, log timestamp: {log}" for index, log in entries]
        for name, entries in _in_hash_map_order(self.out_of_order):
            found.append(f"Found out of order timestamp in :{name}")
            found += [
                f"  Index timestamp: {index}, Previously indexed timestamp: {before}" for index, before in entries
            ]
        for name, entries in _in_hash_map_order(self.not_found):
            found.append(f"The following indexed offsets are not found in :{name}")
            found += [f"Indexed offset: {index}, found log offset: {log}" for index, log in entries]
        for name, pairs in _in_hash_map_order(self.gaps):
            found.append(f"Non-consecutive offsets in {name}")
            found += [f"  {before} is followed by {after}" for before, after in sorted(pairs.items())]
        return found

    def __repr__(self) -> str:
        return f"<Findings {len(self.lines())} lines>"


def _in_hash_map_order(by_name: dict[str, T]) -> list[tuple[str, T]]:
    return [(name, by_name[name]) for name in hash_map_order(by_name)]


def base_offset_of(path: Path) -> int:
    stem = path.name.partition(".")[0]
    if not (stem.isascii() and stem.isdecimal()):
        raise ToolError(f"{path}: the name of a segment's file is its first offset, twenty digits")
    return int(stem)


def read_offset_index(path: Path) -> list[OffsetEntry]:
    base = base_offset_of(path)
    return [OffsetEntry(base + relative, position) for relative, position in _entries(path, OFFSET_ENTRY)]


def read_time_index(path: Path) -> list[TimeEntry]:
    base = base_offset_of(path)
    return [TimeEntry(timestamp, base + relative) for timestamp, relative in _entries(path, TIME_ENTRY)]


def check_offset_index(path: Path) -> None:
    """Run the sanity check that decides at start-up whether the index is rebuilt."""
    entries = read_offset_index(path)
    base = base_offset_of(path)
    if entries and entries[-1].offset < base:
        raise ToolError(
            f"Corrupt index found, index file {path.absolute()} has non-zero size but the last offset is "
            f"{entries[-1].offset} which is less than the base offset {base}"
        )
    _check_size(path, OFFSET_ENTRY_BYTES, "Index file")


def check_time_index(path: Path) -> None:
    entries = read_time_index(path)
    words = f"Corrupt time index found, time index file ({path.absolute()}) has non-zero size but the last"
    if entries and entries[-1].timestamp < entries[0].timestamp:
        raise ToolError(
            f"{words} timestamp is {entries[-1].timestamp} which is less than the first timestamp "
            f"{entries[0].timestamp}"
        )
    if entries and entries[-1].offset < base_offset_of(path):
        raise ToolError(
            f"{words} offset is {entries[-1].offset} which is less than the first offset {base_offset_of(path)}"
        )
    _check_size(path, TIME_ENTRY_BYTES, "Time index file")


def walk_offset_index(
    path: Path, findings: Findings, message_bytes_max: int = MESSAGE_BYTES_MAX
) -> Iterator[OffsetEntry]:
    """The entries up to the first zeros of a sparse file, each compared with the log."""
    base = base_offset_of(path)
    with open(path.with_suffix(".log"), "rb") as log:
        for index, entry in enumerate(read_offset_index(path)):
            if entry.offset == base and index > 0:
                return
            batch = next(iter(SegmentWalk(log, str(path), entry.position, message_bytes_max)), None)
            if batch is None:
                raise ToolError(f"{path}: an entry points to position {entry.position}, where no batch begins")
            if batch.header.last_offset != entry.offset:
                findings.mismatches.setdefault(str(path.absolute()), {})[entry.offset] = batch.header.last_offset
            yield entry


def walk_time_index(path: Path, findings: Findings) -> Iterator[TimeEntry]:
    base = base_offset_of(path)
    offset_index = path.with_suffix(".index")
    entries = read_offset_index(offset_index) if offset_index.exists() else []
    offsets = [entry.offset for entry in entries]
    name = str(path.absolute())
    before = NO_TIMESTAMP
    with open(path.with_suffix(".log"), "rb") as log:
        for number, entry in enumerate(read_time_index(path)):
            if entry.offset == base and number > 0:
                return
            index = bisect_right(offsets, entry.offset) - 1
            walk = SegmentWalk(log, str(path.with_suffix(".log")), entries[index].position if index >= 0 else 0)
            batch = next((batch for batch in walk if batch.header.last_offset >= entry.offset), None)
            if batch is None or batch.header.last_offset != entry.offset:
                found = -1 if batch is None else batch.header.last_offset
                findings.not_found.setdefault(name, []).append((entry.offset, found))
            else:
                _compare(batch, entry, before, findings, name)
            yield entry
            before = entry.timestamp


def transaction_lines(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    if len(data) % ENTRY_BYTES:
        raise ToolError(f"{path}: {len(data)} bytes are not a number of whole entries of {ENTRY_BYTES} bytes")
    for version, producer_id, first, last, stable in ENTRY.iter_unpack(data):
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


def snapshot_lines(path: Path) -> Iterator[str]:
    """The entries of a producer snapshot. Raises SnapshotError with Kafka's wording if it is damaged."""
    data = path.read_bytes()
    if len(data) < producer_state.HEAD.size:
        raise producer_state.SnapshotError(
            f"{path}: a snapshot is at least {producer_state.HEAD.size} bytes, not {len(data)}"
        )
    version, stored, _ = producer_state.HEAD.unpack_from(data)
    if version != producer_state.VERSION:
        raise producer_state.SnapshotError(
            f"Snapshot failed schema validation: Snapshot contained an unknown file version {version}"
        )
    computed = crc32c(memoryview(data)[producer_state.CRC_END :])
    if stored != computed:
        raise producer_state.SnapshotError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        )
    whole = (len(data) - producer_state.HEAD.size) // producer_state.ENTRY.size * producer_state.ENTRY.size
    for fields in producer_state.ENTRY.iter_unpack(data[producer_state.HEAD.size : producer_state.HEAD.size + whole]):
        yield _producer_line(*fields)


def _producer_line(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> str:
    line = (
        f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
        f"currentTxnFirstOffset: {f'OptionalLong[{first_offset}]' if first_offset >= 0 else 'OptionalLong.empty'} "
        f"lastTimestamp: {timestamp}"
    )
    if last_offset < 0:
        return line
    first_sequence = last_sequence - delta if last_sequence >= delta else last_sequence - delta + 2**31
    return (
        f"{line} firstSequence: {first_sequence} lastSequence: {last_sequence} lastOffset: {last_offset} "
        f"offsetDelta: {delta} timestamp: {timestamp}"
    )


def _compare(batch: Batch, entry: TimeEntry, before: int, findings: Findings, name: str) -> None:
    newest = max((record.timestamp for record in batch.records()), default=NO_TIMESTAMP)
    if newest != entry.timestamp:
        findings.timestamps.setdefault(name, []).append((entry.timestamp, newest))
    if before >= entry.timestamp:
        findings.out_of_order.setdefault(name, []).append((entry.timestamp, before))


def _entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    data = path.read_bytes()
    return layout.iter_unpack(data[: len(data) - len(data) % layout.size])


def _check_size(path: Path, entry_bytes: int, name: str) -> None:
    size = path.stat().st_size
    if size % entry_bytes:
        raise ToolError(
            f"{name} {path.absolute()} is corrupt, found {size} bytes which is neither positive nor a multiple of "
            f"{entry_bytes}"
        )
