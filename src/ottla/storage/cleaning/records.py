"""The records of one batch during compaction. Compiled with mypyc.

Works on the bytes after a batch header, decompressed (protocol/records.py has the format). Records that stay are copied
byte by byte: their offsets and timestamps are relative to those of the batch, which do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.protocol.records import Record, RecordReader, malformed, read_varint, write_varint
from ottla.storage.cleaning.offset_map import OffsetMap

if TYPE_CHECKING:
    from mypy_extensions import i64

INT64_MIN: Final = -(2**63)

Policy = Callable[[Record], bool]
"""Returns whether a record stays."""


class RecordCursor:
    """Iterates over records without decoding them. Raises KafkaError for invalid lengths."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end: i64 = len(data)
        self.start: i64 = 0
        self.end: i64 = 0
        self.timestamp_delta: i64 = 0
        self.after_timestamp: i64 = 0  # position of the offset delta
        self.offset_delta: i64 = 0
        self.key_start: i64 = 0
        self.key_bytes: i64 = -1
        self.value_bytes: i64 = -1

    def advance(self) -> None:
        data = self._data
        self.start = self.end
        length: i64
        try:
            length, position = read_varint(data, self.start, 32)
            end = position + length
            if length < 0 or end > self._end:
                raise malformed(f"a record claims {length} bytes, {self._end - position} are left")
            self.timestamp_delta, position = read_varint(data, position + 1, 64)
            self.after_timestamp = position
            self.offset_delta, position = read_varint(data, position, 32)
            self.key_bytes, position = read_varint(data, position, 32)
            self.key_start = position
            if self.key_bytes > 0:
                position += self.key_bytes
            self.value_bytes, position = read_varint(data, position, 32)
        except IndexError:
            raise malformed("the bytes end inside a record") from None
        if position > end:
            raise malformed(f"a record claims {length} bytes but has more")
        self.end = end

    def key(self) -> bytes:
        return self._data[self.key_start : self.key_start + self.key_bytes]


class FilteredBatch:
    """The records of a batch that stay."""

    def __init__(self, payload: bytes | bytearray, kept: int, has_tombstone: bool, newest_delta: int) -> None:
        self.payload = payload
        self.kept = kept
        self.has_tombstone = has_tombstone
        self.newest_delta = newest_delta  # the largest timestamp delta

    def __repr__(self) -> str:
        return f"<FilteredBatch {self.kept} records, {len(self.payload)} bytes>"


class RecordFilter:
    """Keeps the newest record of each key, if the custom policies also keep it."""

    def __init__(self, offset_map: OffsetMap | None, latest_offset: int, policy: Policy | None) -> None:
        self._offset_map = offset_map  # None without compaction by key
        self._latest_offset: i64 = latest_offset  # later records are not part of this cleaning
        self._policy = policy

    def filter(
        self, data: bytes, count: i64, base_offset: i64, base_timestamp: int, keeps_tombstones: bool
    ) -> FilteredBatch:
        cursor = RecordCursor(data)
        out = bytearray()
        kept: i64 = 0
        run_start: i64 = 0  # adjacent records that stay are copied together
        has_tombstone = False
        newest: i64 = INT64_MIN
        index: i64 = 0
        while index < count:
            cursor.advance()
            if self._keeps(cursor, data, base_offset, base_timestamp, keeps_tombstones):
                kept += 1
                newest = max(newest, cursor.timestamp_delta)
                if cursor.value_bytes < 0:
                    has_tombstone = True
            else:
                if run_start < cursor.start:
                    out += data[run_start : cursor.start]
                run_start = cursor.end
            index += 1
        if cursor.end != len(data):
            raise malformed(f"{len(data) - cursor.end} bytes follow the last of {count} records")
        if kept == count:
            return FilteredBatch(data, kept, has_tombstone, newest)
        out += data[run_start:]
        return FilteredBatch(out, kept, has_tombstone, newest)

    def _keeps(
        self, cursor: RecordCursor, data: bytes, base_offset: i64, base_timestamp: int, keeps_tombstones: bool
    ) -> bool:
        offset = base_offset + cursor.offset_delta
        if offset > self._latest_offset:
            return True
        offset_map = self._offset_map
        if offset_map is not None:
            if cursor.key_bytes < 0 or offset < offset_map.get(cursor.key()):
                return False
            if cursor.value_bytes < 0 and not keeps_tombstones:
                return False
        if self._policy is None:
            return True
        reader = RecordReader(data, base_offset, base_timestamp)
        reader.position = cursor.start
        return self._policy(reader.read_record())


def add_keys(data: bytes, count: i64, base_offset: i64, first_offset: i64, offset_map: OffsetMap) -> bool:
    """Add all keys from this offset on to the map; false if it is full."""
    cursor = RecordCursor(data)
    index: i64 = 0
    while index < count:
        cursor.advance()
        offset = base_offset + cursor.offset_delta
        if cursor.key_bytes >= 0 and offset >= first_offset and not offset_map.put(cursor.key(), offset):
            return False
        index += 1
    return True


def shift_timestamps(data: bytes, count: i64, shift: int) -> bytearray:
    """Return the same records for a batch with a base timestamp that is smaller by `shift`."""
    cursor = RecordCursor(data)
    out = bytearray()
    index: i64 = 0
    while index < count:
        cursor.advance()
        body = bytearray(1)  # attributes
        write_varint(body, cursor.timestamp_delta + shift)
        body += data[cursor.after_timestamp : cursor.end]
        write_varint(out, len(body))
        out += body
        index += 1
    return out
