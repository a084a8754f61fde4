"""The records of one batch, as compaction sees them: which keys, which to keep. Compiled with mypyc.

Works on the bytes that follow a batch header, after decompression (protocol/records.py has the format). Records that
stay are copied byte by byte: offsets and times count from the batch's own first ones, and those stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.protocol.records import Record, RecordReader, malformed, read_varint, write_varint
from ottla.storage.cleaning.key_map import KeyMap

if TYPE_CHECKING:
    from mypy_extensions import i64

INT64_MIN: Final = -(2**63)

Policy = Callable[[Record], bool]
"""Whether a record stays."""


class Cursor:
    """Stands on one record after the other. What does not fit its own lengths raises KafkaError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end: i64 = len(data)
        self.start: i64 = 0
        self.end: i64 = 0
        self.timestamp_delta: i64 = 0
        self.after_timestamp: i64 = 0  # where the offset delta begins
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


class Filtered:
    """What stays of a batch."""

    def __init__(self, payload: bytes | bytearray, kept: int, has_tombstone: bool, newest_delta: int) -> None:
        self.payload = payload
        self.kept = kept
        self.has_tombstone = has_tombstone
        self.newest_delta = newest_delta  # the largest timestamp delta

    def __repr__(self) -> str:
        return f"<Filtered {self.kept} records, {len(self.payload)} bytes>"


class RecordFilter:
    """Keeps the newest record of each key, and of those what the other policies keep."""

    def __init__(self, key_map: KeyMap | None, latest_offset: int, policy: Policy | None) -> None:
        self._key_map = key_map  # None: keys do not matter
        self._latest_offset: i64 = latest_offset  # what comes later is not for this round
        self._policy = policy

    def filter(
        self, data: bytes, count: i64, base_offset: i64, base_timestamp: int, keeps_tombstones: bool
    ) -> Filtered:
        cursor = Cursor(data)
        out = bytearray()
        kept: i64 = 0
        run_start: i64 = 0  # records that stay are copied in one piece
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
            return Filtered(data, kept, has_tombstone, newest)
        out += data[run_start:]
        return Filtered(out, kept, has_tombstone, newest)

    def _keeps(
        self, cursor: Cursor, data: bytes, base_offset: i64, base_timestamp: int, keeps_tombstones: bool
    ) -> bool:
        offset = base_offset + cursor.offset_delta
        if offset > self._latest_offset:
            return True
        key_map = self._key_map
        if key_map is not None:
            if cursor.key_bytes < 0 or offset < key_map.get(cursor.key()):
                return False
            if cursor.value_bytes < 0 and not keeps_tombstones:
                return False
        if self._policy is None:
            return True
        reader = RecordReader(data, base_offset, base_timestamp)
        reader.position = cursor.start
        return self._policy(reader.read_record())


def note_keys(data: bytes, count: i64, base_offset: i64, first_offset: i64, key_map: KeyMap) -> bool:
    """Put all keys from this offset on into the map; False as soon as it is full."""
    cursor = Cursor(data)
    index: i64 = 0
    while index < count:
        cursor.advance()
        offset = base_offset + cursor.offset_delta
        if cursor.key_bytes >= 0 and offset >= first_offset and not key_map.put(cursor.key(), offset):
            return False
        index += 1
    return True


def shift_timestamps(data: bytes, count: i64, shift: int) -> bytearray:
    """The same records for a batch whose base timestamp is smaller by `shift`."""
    cursor = Cursor(data)
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
