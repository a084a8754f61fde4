"""What lies beside a segment: offset index, time index, transaction index and producer snapshot, as text lines.

Each index entry is compared with the batch that it points to; what does not fit is collected in `Findings`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from ottla.cli.dump.segment import Batch, SegmentWalk
from ottla.cli.java.order import hash_map_order
from ottla.cli.terminal import ToolError
from ottla.protocol.checksums import crc32c
from ottla.storage import snapshots
from ottla.storage.index import OFFSET_ENTRY, OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES
from ottla.storage.transaction_index import ENTRY, ENTRY_BYTES

MESSAGE_BYTES_MAX = 5 * 1024 * 1024
NO_TIMESTAMP = -1

T = TypeVar("T")


class OffsetEntry(NamedTuple):
    """Absolute offset and the place of the batch that ends with it."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class Findings:
    """What was wrong, by absolute file name, to be told at the end."""

    def __init__(self) -> None:
        self.mismatches: dict[str, dict[int, int]] = {}
        self.gaps: dict[str, dict[int, int]] = {}
        self.timestamps: dict[str, list[tuple[int, int]]] = {}
        self.disorder: dict[str, list[tuple[int, int]]] = {}
        self.not_found: dict[str, list[tuple[int, int]]] = {}

    def lines(self) -> list[str]:
        """In Kafka's words and order."""
        found: list[str] = []
        for name, pairs in _in_java_order(self.mismatches):
            found.append(f"Mismatches in :{name}")
            found += [
                f"  Index offset: {index}, log offset: {log}" for index, log in sorted(pairs.items(), reverse=True)
            ]
        for name, entries in _in_java_order(self.timestamps):
            found.append(f"Found timestamp mismatch in :{name}")
            found += [f"  Index timestamp: {index}, log timestamp: {log}" for index, log in entries]
        for name, entries in _in_java_order(self.disorder):
            found.append(f"Found out of order timestamp in :{name}")
            found += [
                f"  Index timestamp: {index}, Previously indexed timestamp: {before}" for index, before in entries
            ]
        for name, entries in _in_java_order(self.not_found):
            found.append(f"The following indexed offsets are not found in :{name}")
            found += [f"Indexed offset: {index}, found log offset: {log}" for index, log in entries]
        for name, pairs in _in_java_order(self.gaps):
            found.append(f"Non-consecutive offsets in {name}")
            found += [f"  {before} is followed by {after}" for before, after in sorted(pairs.items())]
        return found

    def __repr__(self) -> str:
        return f"<Findings {len(self.lines())} lines>"


def _in_java_order(by_name: dict[str, T]) -> list[tuple[str, T]]:
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
    """The check that decides at a start whether an index is built again."""
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
    """The entries up to the first zeros of a sparse file."""
    base = base_offset_of(path)
    with open(path.with_suffix(".log"), "rb") as log:
        for place, entry in enumerate(read_offset_index(path)):
            if entry.offset == base and place > 0:
                return
            batch = next(iter(SegmentWalk(log, str(path), entry.position, message_bytes_max)), None)
            if batch is None:
                raise ToolError(f"{path}: there is no batch at position {entry.position}, where an entry points")
            if batch.header.last_offset != entry.offset:
                findings.mismatches.setdefault(str(path.absolute()), {})[entry.offset] = batch.header.last_offset
            yield entry


def walk_time_index(path: Path, findings: Findings) -> Iterator[TimeEntry]:
    base = base_offset_of(path)
    offset_index = path.with_suffix(".index")
    places = read_offset_index(offset_index) if offset_index.exists() else []
    offsets = [entry.offset for entry in places]
    name = str(path.absolute())
    before = NO_TIMESTAMP
    with open(path.with_suffix(".log"), "rb") as log:
        for number, entry in enumerate(read_time_index(path)):
            if entry.offset == base and number > 0:
                return
            place = bisect_right(offsets, entry.offset) - 1
            walk = SegmentWalk(log, str(path.with_suffix(".log")), places[place].position if place >= 0 else 0)
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
    """A damaged snapshot raises SnapshotError, in Kafka's words."""
    data = path.read_bytes()
    if len(data) < snapshots.HEAD.size:
        raise snapshots.SnapshotError(f"{path}: a snapshot is at least {snapshots.HEAD.size} bytes, not {len(data)}")
    version, stored, _ = snapshots.HEAD.unpack_from(data)
    if version != snapshots.VERSION:
        raise snapshots.SnapshotError(
            f"Snapshot failed schema validation: Snapshot contained an unknown file version {version}"
        )
    computed = crc32c(memoryview(data)[snapshots.CRC_END :])
    if stored != computed:
        raise snapshots.SnapshotError(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        )
    whole = (len(data) - snapshots.HEAD.size) // snapshots.ENTRY.size * snapshots.ENTRY.size
    for fields in snapshots.ENTRY.iter_unpack(data[snapshots.HEAD.size : snapshots.HEAD.size + whole]):
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
        findings.disorder.setdefault(name, []).append((entry.timestamp, before))


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
