"""The two sparse indexes of a segment, in Kafka's file formats.

Offset index: 8 bytes an entry, relative offset int32 and file position int32: the batch at that position ends with
that offset. Time index: 12 bytes an entry, timestamp int64 and relative offset int32: no earlier batch of the segment
has a larger timestamp. Both only ever grow, so files are appended to and never preallocated.

New entries wait in memory and reach the file in lots, at the latest when the segment is flushed, rolled or closed:
after a crash everything past the recovery point is rebuilt from the log anyway.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_right
from typing import Final

from ottla.storage import files
from ottla.storage.scan import BatchScan

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
PENDING_ENTRIES_MAX: Final = 512
POSITION_MASK: Final = 0xFFFFFFFF
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"
OFFSET_ENTRY: Final = struct.Struct(">iI")
TIME_ENTRY: Final = struct.Struct(">qi")
NO_TIMESTAMP: Final = -1


class OffsetIndex:
    """The whole offset index of one segment in memory; an entry is relative offset << 32 | position."""

    __slots__ = ("entries", "written")

    def __init__(self, entries: array[int], written: int) -> None:
        self.entries = entries
        self.written = written  # how many of the entries the file has

    def append(self, relative_offset: int, position: int) -> None:
        self.entries.append(relative_offset << 32 | position)

    def lookup(self, relative_offset: int) -> int:
        """The place of the last entry at or before this offset, or -1 if there is none before it."""
        return bisect_right(self.entries, relative_offset << 32 | POSITION_MASK) - 1

    def lookup_position(self, position: int) -> int:
        """How many entries lie below this file position; positions rise together with offsets."""
        low = 0
        high = len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle] & POSITION_MASK < position:
                low = middle + 1
            else:
                high = middle
        return low

    def last_position(self) -> int:
        return self.entries[-1] & POSITION_MASK if self.entries else 0

    def write_pending(self, path: str) -> None:
        """Bring the file up to date. On an OSError nothing is lost: the next call writes the same entries again."""
        count = len(self.entries)
        if count > self.written:
            with files.opened(path, files.CREATE_FLAGS) as descriptor:
                files.write_whole(descriptor, to_big_endian(self.entries[self.written :]), self.written * 8)
            self.written = count

    def cut(self, count: int, path: str) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        del self.entries[count:]
        if self.written > count:
            with files.opened(path, files.CREATE_FLAGS) as descriptor:
                files.truncate(descriptor, count * OFFSET_ENTRY_BYTES)
            self.written = count

    def __repr__(self) -> str:
        return f"<OffsetIndex {len(self.entries)} entries, {self.written} written>"


class TimeIndex:
    """The tail of one segment's time index: its last entry, and the entries that the file does not have yet."""

    __slots__ = ("count", "last_relative_offset", "last_timestamp", "pending", "written")

    def __init__(self, count: int, last_timestamp: int, last_relative_offset: int) -> None:
        self.count = count
        self.written = count
        self.last_timestamp = last_timestamp
        self.last_relative_offset = last_relative_offset
        self.pending: bytearray = bytearray()

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Timestamps in the index only rise; anything else is silently not an entry, as in Kafka."""
        if timestamp > self.last_timestamp:
            self.pending += TIME_ENTRY.pack(timestamp, relative_offset)
            self.last_timestamp = timestamp
            self.last_relative_offset = relative_offset
            self.count += 1

    def write_pending(self, path: str) -> None:
        if self.pending:
            with files.opened(path, files.CREATE_FLAGS) as descriptor:
                files.write_whole(descriptor, bytes(self.pending), self.written * TIME_ENTRY_BYTES)
            self.pending = bytearray()
            self.written = self.count

    def __repr__(self) -> str:
        return f"<TimeIndex {self.count} entries, {self.written} written, last {self.last_timestamp}>"


def load_offset_index(path: str) -> OffsetIndex:
    """All whole entries of the file; a missing file is an empty index. Padding is cut off."""
    entries = array("q")
    try:
        data = files.read_whole(path)
    except FileNotFoundError:
        return OffsetIndex(entries, 0)
    whole = len(data) - len(data) % OFFSET_ENTRY_BYTES
    if whole and not any(data[whole - OFFSET_ENTRY_BYTES : whole]):
        # What a killed Apache Kafka leaves behind its last entry: 10 MB of zeros.
        whole = -(-len(data.rstrip(b"\0")) // OFFSET_ENTRY_BYTES) * OFFSET_ENTRY_BYTES
        truncate_path(path, whole)
    entries.frombytes(data[:whole])
    if IS_LITTLE_ENDIAN:
        entries.byteswap()
    return OffsetIndex(entries, len(entries))


def last_offset_entry(path: str) -> tuple[int, int]:
    """Relative offset and position of the last entry in the file, (0, 0) if there is none. Padding is cut off."""
    with files.opened(path, files.READ_FLAGS) as descriptor:
        count = os.fstat(descriptor).st_size // OFFSET_ENTRY_BYTES
        if count == 0:
            return 0, 0
        relative_offset, position = OFFSET_ENTRY.unpack(
            os.pread(descriptor, OFFSET_ENTRY_BYTES, (count - 1) * OFFSET_ENTRY_BYTES)
        )
    if relative_offset == 0 and position == 0:
        return cut_padding(path)
    return relative_offset, position


def cut_padding(path: str) -> tuple[int, int]:
    index = load_offset_index(path)
    index.cut(rising_prefix(index.entries, POSITION_MASK), path)
    return (index.entries[-1] >> 32, index.last_position()) if index.entries else (0, 0)


def load_time_index(path: str) -> TimeIndex:
    """Only the number of entries and the last one are read."""
    try:
        with files.opened(path, files.READ_FLAGS) as descriptor:
            count = os.fstat(descriptor).st_size // TIME_ENTRY_BYTES
            if count == 0:
                return TimeIndex(0, NO_TIMESTAMP, 0)
            timestamp, relative_offset = TIME_ENTRY.unpack(read_time_entry(descriptor, count - 1))
    except FileNotFoundError:
        return TimeIndex(0, NO_TIMESTAMP, 0)
    if timestamp == 0 and relative_offset == 0:
        return cut_time_index(path, RELATIVE_OFFSET_MAX + 1)
    return TimeIndex(count, timestamp, relative_offset)


def lookup_time(path: str, timestamp: int) -> tuple[int, int]:
    """The last entry (timestamp, relative offset) at or before this timestamp; (-1, 0) if there is none.

    Rare enough to search in the file itself. Records at or after `timestamp` are at or after that offset.
    """
    found = (NO_TIMESTAMP, 0)
    with files.opened(path, files.READ_FLAGS) as descriptor:
        low = 0
        high = os.fstat(descriptor).st_size // TIME_ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            entry_timestamp, relative_offset = TIME_ENTRY.unpack(read_time_entry(descriptor, middle))
            if entry_timestamp <= timestamp:
                found = (entry_timestamp, relative_offset)
                low = middle + 1
            else:
                high = middle
    return found


def cut_time_index(path: str, relative_offset: int) -> TimeIndex:
    """Drop the entries at or past this offset from the file, and whatever does not rise before them."""
    try:
        data = files.read_whole(path)
    except FileNotFoundError:
        return TimeIndex(0, NO_TIMESTAMP, 0)
    count = 0
    last_timestamp = NO_TIMESTAMP
    last_offset = -1
    for timestamp, offset in TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_BYTES]):
        is_padding = timestamp == 0 and offset == 0  # what a killed Apache Kafka leaves behind its last entry
        if timestamp <= last_timestamp or offset <= last_offset or offset >= relative_offset or is_padding:
            break
        count += 1
        last_timestamp = timestamp
        last_offset = offset
    if len(data) != count * TIME_ENTRY_BYTES:
        truncate_path(path, count * TIME_ENTRY_BYTES)
    return TimeIndex(count, last_timestamp, max(last_offset, 0))


def rising_prefix(entries: array[int], log_bytes: int) -> int:
    """How many entries are in order and point into the log; zero padding ends them like any other damage."""
    previous_offset = 0  # the first batch of a segment never has an entry, so zeros cannot be one
    previous_position = 0
    for place, entry in enumerate(entries):
        offset = entry >> 32
        position = entry & POSITION_MASK
        if offset <= previous_offset or not previous_position < position < log_bytes:
            return place
        previous_offset = offset
        previous_position = position
    return len(entries)


class BuiltIndexes:
    """Both indexes of a segment made anew, and the largest timestamp that was met. Any thread may make them."""

    __slots__ = ("max_timestamp", "max_timestamp_offset", "offsets", "size", "times")

    def __init__(self, descriptor: int, size: int, base_offset: int, interval_bytes: int) -> None:
        """Walk the headers of all batches; stops where there is no batch."""
        self.offsets = OffsetIndex(array("q"), 0)
        self.times = TimeIndex(0, NO_TIMESTAMP, 0)
        self.size = size  # of what they cover
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        last_position = 0
        last_offset = base_offset - 1
        scan = BatchScan(descriptor, 0, size, False)
        while scan.advance():
            if not last_offset < scan.last_offset <= base_offset + RELATIVE_OFFSET_MAX:
                continue  # a damaged batch: it has no place in an index
            last_offset = scan.last_offset
            if scan.max_timestamp > self.max_timestamp:
                self.max_timestamp = scan.max_timestamp
                self.max_timestamp_offset = scan.last_offset
            if scan.position - last_position > interval_bytes:
                self.offsets.append(scan.last_offset - base_offset, scan.position)
                self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset - base_offset)
                last_position = scan.position
        self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset - base_offset)


def read_time_entry(descriptor: int, place: int) -> bytes:
    return os.pread(descriptor, TIME_ENTRY_BYTES, place * TIME_ENTRY_BYTES)


def truncate_path(path: str, length: int) -> None:
    with files.opened(path, files.CREATE_FLAGS) as descriptor:
        files.truncate(descriptor, length)


def to_big_endian(entries: array[int]) -> bytes:
    if IS_LITTLE_ENDIAN:
        entries.byteswap()
    return entries.tobytes()
