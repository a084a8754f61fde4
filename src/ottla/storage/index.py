"""The offset index and time index of a segment, in Kafka's file formats.

Offset index: 8 bytes per entry, relative offset int32 and file position int32. The batch at that position ends with
that offset. Time index: 12 bytes per entry, timestamp int64 and relative offset int32. No earlier batch of the segment
has a larger timestamp. Both only grow; they are appended to and never preallocated.

New entries are buffered in memory and written in groups, at the latest when the segment is flushed, rolled or closed.
After a crash recovery rebuilds everything past the recovery point.
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
    """The offset index of one segment in memory; an entry is relative offset << 32 | position."""

    __slots__ = ("entries", "written_count")

    def __init__(self, entries: array[int], written: int) -> None:
        self.entries = entries
        self.written_count = written  # number of entries in the file

    def append(self, relative_offset: int, position: int) -> None:
        self.entries.append(relative_offset << 32 | position)

    def lookup(self, relative_offset: int) -> int:
        """Return the index of the last entry at or before this offset, or -1."""
        return bisect_right(self.entries, relative_offset << 32 | POSITION_MASK) - 1

    def count_before_position(self, position: int) -> int:
        """Return the number of entries below this file position. Positions ascend together with offsets."""
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
        """Write pending entries to the file. After an OSError the next call writes the same entries again."""
        count = len(self.entries)
        if count > self.written_count:
            with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
                files.write_all(descriptor, to_big_endian(self.entries[self.written_count :]), self.written_count * 8)
            self.written_count = count

    def truncate_to_entries(self, count: int, path: str) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        del self.entries[count:]
        if self.written_count > count:
            with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
                files.truncate(descriptor, count * OFFSET_ENTRY_BYTES)
            self.written_count = count

    def __repr__(self) -> str:
        return f"<OffsetIndex {len(self.entries)} entries, {self.written_count} written>"


class TimeIndex:
    """The last entry of one segment's time index, and the entries that are not in the file yet."""

    __slots__ = ("count", "last_relative_offset", "last_timestamp", "pending", "written_count")

    def __init__(self, count: int, last_timestamp: int, last_relative_offset: int) -> None:
        self.count = count
        self.written_count = count
        self.last_timestamp = last_timestamp
        self.last_relative_offset = last_relative_offset
        self.pending: bytearray = bytearray()

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Append an entry if its timestamp is larger than the last one; other timestamps are ignored, as in Kafka."""
        if timestamp > self.last_timestamp:
            self.pending += TIME_ENTRY.pack(timestamp, relative_offset)
            self.last_timestamp = timestamp
            self.last_relative_offset = relative_offset
            self.count += 1

    def write_pending(self, path: str) -> None:
        if self.pending:
            with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
                files.write_all(descriptor, bytes(self.pending), self.written_count * TIME_ENTRY_BYTES)
            self.pending = bytearray()
            self.written_count = self.count

    def __repr__(self) -> str:
        return f"<TimeIndex {self.count} entries, {self.written_count} written, last {self.last_timestamp}>"


def load_offset_index(path: str) -> OffsetIndex:
    """Return all entries of the file; a missing file is an empty index. Padding is truncated."""
    entries = array("q")
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return OffsetIndex(entries, 0)
    whole = len(data) - len(data) % OFFSET_ENTRY_BYTES
    if whole and not any(data[whole - OFFSET_ENTRY_BYTES : whole]):
        # A killed Apache Kafka leaves 10 MB of zeros after the last entry.
        whole = -(-len(data.rstrip(b"\0")) // OFFSET_ENTRY_BYTES) * OFFSET_ENTRY_BYTES
        truncate_file(path, whole)
    entries.frombytes(data[:whole])
    if IS_LITTLE_ENDIAN:
        entries.byteswap()
    return OffsetIndex(entries, len(entries))


def last_offset_entry(path: str) -> tuple[int, int]:
    """Return relative offset and position of the last entry in the file; (0, 0) if there is none. Truncates padding."""
    with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
        count = os.fstat(descriptor).st_size // OFFSET_ENTRY_BYTES
        if count == 0:
            return 0, 0
        relative_offset, position = OFFSET_ENTRY.unpack(
            os.pread(descriptor, OFFSET_ENTRY_BYTES, (count - 1) * OFFSET_ENTRY_BYTES)
        )
    if relative_offset == 0 and position == 0:
        return truncate_padding(path)
    return relative_offset, position


def truncate_padding(path: str) -> tuple[int, int]:
    index = load_offset_index(path)
    index.truncate_to_entries(ascending_prefix(index.entries, POSITION_MASK), path)
    return (index.entries[-1] >> 32, index.last_position()) if index.entries else (0, 0)


def load_time_index(path: str) -> TimeIndex:
    """Load a time index: only the number of entries and the last one."""
    try:
        with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
            count = os.fstat(descriptor).st_size // TIME_ENTRY_BYTES
            if count == 0:
                return TimeIndex(0, NO_TIMESTAMP, 0)
            timestamp, relative_offset = TIME_ENTRY.unpack(read_time_entry(descriptor, count - 1))
    except FileNotFoundError:
        return TimeIndex(0, NO_TIMESTAMP, 0)
    if timestamp == 0 and relative_offset == 0:
        return truncate_time_index(path, RELATIVE_OFFSET_MAX + 1)
    return TimeIndex(count, timestamp, relative_offset)


def lookup_time(path: str, timestamp: int) -> tuple[int, int]:
    """Return the last entry (timestamp, relative offset) at or before this timestamp; (-1, 0) if there is none.

    The file itself is searched, because lookups are rare. Records at or after `timestamp` are at or after that offset.
    """
    found = (NO_TIMESTAMP, 0)
    with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
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


def truncate_time_index(path: str, relative_offset: int) -> TimeIndex:
    """Remove the entries at or past this offset from the file, and those before it that do not ascend."""
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return TimeIndex(0, NO_TIMESTAMP, 0)
    count = 0
    last_timestamp = NO_TIMESTAMP
    last_offset = -1
    for timestamp, offset in TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_BYTES]):
        is_padding = timestamp == 0 and offset == 0  # padding after the last entry of a killed Apache Kafka
        if timestamp <= last_timestamp or offset <= last_offset or offset >= relative_offset or is_padding:
            break
        count += 1
        last_timestamp = timestamp
        last_offset = offset
    if len(data) != count * TIME_ENTRY_BYTES:
        truncate_file(path, count * TIME_ENTRY_BYTES)
    return TimeIndex(count, last_timestamp, max(last_offset, 0))


def ascending_prefix(entries: array[int], log_bytes: int) -> int:
    """Return the number of leading entries that ascend and point into the log.

    Zero padding ends them like any damage.
    """
    previous_offset = 0  # the first batch of a segment never has an entry, so zeros are never valid
    previous_position = 0
    for place, entry in enumerate(entries):
        offset = entry >> 32
        position = entry & POSITION_MASK
        if offset <= previous_offset or not previous_position < position < log_bytes:
            return place
        previous_offset = offset
        previous_position = position
    return len(entries)


class RebuiltIndexes:
    """Both indexes of a segment, rebuilt from its batch headers, and its largest timestamp.

    Any thread may build them.
    """

    __slots__ = ("max_timestamp", "max_timestamp_offset", "offsets", "size", "times")

    def __init__(self, descriptor: int, size: int, base_offset: int, interval_bytes: int) -> None:
        """Scan the headers of all batches, up to the first invalid one."""
        self.offsets = OffsetIndex(array("q"), 0)
        self.times = TimeIndex(0, NO_TIMESTAMP, 0)
        self.size = size  # of the covered part of the segment
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        last_position = 0
        last_offset = base_offset - 1
        scan = BatchScan(descriptor, 0, size, False)
        while scan.advance():
            if not last_offset < scan.last_offset <= base_offset + RELATIVE_OFFSET_MAX:
                continue  # a corrupt batch has no index entry
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


def truncate_file(path: str, length: int) -> None:
    with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
        files.truncate(descriptor, length)


def to_big_endian(entries: array[int]) -> bytes:
    if IS_LITTLE_ENDIAN:
        entries.byteswap()
    return entries.tobytes()
