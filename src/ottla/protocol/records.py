"""The records inside one batch (format v2): checking, reading and writing them.

This file works on the bytes that follow a batch header, after decompression. Compiled with mypyc where possible.

    record: length varint | attributes int8 | timestamp delta varlong | offset delta varint
            | key length varint, key | value length varint, value | header count varint
            | per header: key length varint, key, value length varint, value
Varints are zigzag-coded; a negative length means null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.errors import Error, KafkaError

if TYPE_CHECKING:
    # mypyc turns these into machine integers; plain Python never evaluates the annotation of a local variable.
    from mypy_extensions import i64

RECORD_ERRORS_MAX: Final = 1000  # Kafka lists every bad record; the limit keeps the response small
RECORD_ERRORS_SHOWN: Final = 3
NO_TIMESTAMP: Final = -1
INT64_MAX: Final = 2**63 - 1
NO_ATTRIBUTES: Final = b"\0"
NULL_LENGTH: Final = b"\1"
CACHED_VARINTS: Final = 1024


class InvalidRecords(KafkaError):  # noqa: N818 - it is named after the records, and every KafkaError is an error
    """Records that are well-formed but not allowed here, each with its place in the batch and the reason."""

    def __init__(self, error: Error, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class Record(NamedTuple):
    """One record as applications see it. When building a batch, offset -1 means one after the previous record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Limits(NamedTuple):
    """Constraints of a topic on records, beyond their format."""

    partition: str  # for error messages
    is_compacted: bool  # every record needs a key
    timestamp_min: int
    timestamp_max: int


def walk_records(data: bytes, count: i64, delta_min: i64, delta_max: i64, needs_keys: bool) -> tuple[i64, bool]:  # noqa: C901, PLR0912, PLR0915
    """Check the format of all records: lengths, offset deltas 0, 1, 2…, headers, and that no bytes follow.

    Returns the highest timestamp delta, and whether a record lacks a required key or has a timestamp delta outside the
    given range: a second, slower pass then finds that record. Varints of one and two bytes are read inline, five times
    over, because a call per field would double the time.
    """
    position: i64 = 0
    end: i64 = len(data)
    index: i64 = 0
    newest: i64 = -INT64_MAX
    is_suspicious = False
    byte: i64
    second: i64
    length: i64
    value: i64
    try:
        while index < count:
            byte = data[position]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    length = (byte & 0x7F) | (second << 7)
                    length = (length >> 1) ^ -(length & 1)
                    position += 2
                else:
                    length, position = read_varint(data, position, 32)
            record_end: i64 = position + length
            if length < 0 or record_end > end:
                raise malformed(f"record {index} claims {length} bytes, {end - position} are left")

            position += 1  # attributes: Kafka ignores them
            byte = data[position]
            if byte < 0x80:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    value = (byte & 0x7F) | (second << 7)
                    value = (value >> 1) ^ -(value & 1)
                    position += 2
                else:
                    value, position = read_varint(data, position, 64)
            newest = max(newest, value)
            if value < delta_min or value > delta_max:
                is_suspicious = True

            byte = data[position]
            if byte < 0x80:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    value = (byte & 0x7F) | (second << 7)
                    value = (value >> 1) ^ -(value & 1)
                    position += 2
                else:
                    value, position = read_varint(data, position, 32)
            if value != index:
                raise malformed(f"record {index} has offset delta {value}")

            byte = data[position]
            if byte < 0x80:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    value = (byte & 0x7F) | (second << 7)
                    value = (value >> 1) ^ -(value & 1)
                    position += 2
                else:
                    value, position = read_varint(data, position, 32)
            if value > 0:
                position += value
            elif value < 0 and needs_keys:
                is_suspicious = True

            byte = data[position]
            if byte < 0x80:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    value = (byte & 0x7F) | (second << 7)
                    value = (value >> 1) ^ -(value & 1)
                    position += 2
                else:
                    value, position = read_varint(data, position, 32)
            if value > 0:
                position += value

            if data[position] == 0:
                position += 1
            else:
                position = skip_headers(data, position)
            if position != record_end:
                raise malformed(f"record {index} claims {length} bytes but needs {position - record_end + length}")
            index += 1
    except IndexError:
        raise malformed(f"record {index} of {count} is cut off") from None
    if position != end:
        raise malformed(f"{end - position} bytes follow the last of {count} records")
    return newest, is_suspicious


def skip_headers(data: bytes, position: i64) -> i64:
    """Return the end of the headers that start here. A wrong count ends at the end of the bytes and costs no memory."""
    count: i64
    length: i64
    count, position = read_varint(data, position, 32)
    if count < 0:
        raise malformed(f"{count} headers")
    while count > 0:
        length, position = read_varint(data, position, 32)
        if length < 0:
            raise malformed("a header has no key")
        position += length
        length, position = read_varint(data, position, 32)
        if length > 0:
            position += length
        count -= 1
    return position


def read_varint(data: bytes, position: i64, bits: i64) -> tuple[i64, i64]:
    """Return the zigzag varint at this position and its end; bits past 32 or 64 are dropped, as in Java."""
    value: i64 = 0
    shift: i64 = 0
    while shift < bits:
        byte: i64 = data[position]
        position += 1
        if shift == 63:
            if byte < 0x80:
                return ((value >> 1) | ((byte & 1) << 62)) ^ -(value & 1), position
        else:
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if bits == 32:
                    value &= 0xFFFFFFFF
                return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise malformed("a varint is too long")


def check_records(data: bytes, count: int, base_timestamp: int, limits: Limits) -> None:
    """Raise InvalidRecords with every record that lacks its key or has a timestamp out of range.

    Only called after `walk_records` found well-formed records with a violation among them.
    """
    reader = RecordReader(data, 0, base_timestamp)
    error = Error.INVALID_RECORD
    total = 0
    record_errors: list[tuple[int, str]] = []
    for index in range(count):
        record = reader.read_record()
        if limits.is_compacted and record.key is None:
            problem = f"Compacted topic cannot accept message without key in topic partition {limits.partition}"
        elif record.timestamp != NO_TIMESTAMP and not limits.timestamp_min <= record.timestamp <= limits.timestamp_max:
            error = Error.INVALID_TIMESTAMP
            problem = (
                f"Timestamp {record.timestamp} of message with offset {index} is out of range. "
                f"The timestamp should be within [{limits.timestamp_min}, {limits.timestamp_max}]"
            )
        else:
            continue
        total += 1
        if len(record_errors) < RECORD_ERRORS_MAX:
            record_errors.append((index, problem))
    if total:
        raise InvalidRecords(error, rejection_message(error, total, record_errors), record_errors)


def rejection_message(error: Error, total: int, record_errors: list[tuple[int, str]]) -> str:
    """Return Kafka's message about a batch with invalid records."""
    if error == Error.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{problem}')"
        for index, problem in record_errors[:RECORD_ERRORS_SHOWN]
    )
    return (
        f"One or more records have been rejected due to {total} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


class RecordReader:
    """Reads records in order; malformed data raises KafkaError(INVALID_RECORD)."""

    def __init__(self, data: bytes, base_offset: int, base_timestamp: int) -> None:
        self.data = data
        self.position = 0
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp

    def __repr__(self) -> str:
        return f"<RecordReader at {self.position} of {len(self.data)} bytes, base offset {self.base_offset}>"

    def read_record(self) -> Record:
        length = self.read_number(32)
        start = self.position
        if length < 0 or length > len(self.data) - start:
            raise malformed(f"a record claims {length} bytes, {len(self.data) - start} are left")
        self.position = start + 1
        timestamp = self.base_timestamp + self.read_number(64)
        offset = self.base_offset + self.read_number(32)
        key = self.read_nullable()
        value = self.read_nullable()
        headers = self.read_headers()
        if self.position != start + length:
            raise malformed(f"a record claims {length} bytes but has {self.position - start}")
        return Record(offset, timestamp, key, value, headers)

    def read_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        count = self.read_number(32)
        if count == 0:
            return ()
        if count < 0:
            raise malformed(f"{count} headers")
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(count):  # a wrong count ends at the end of the bytes
            name = self.read_nullable()
            if name is None:
                raise malformed("a header has no key")
            headers.append((name.decode("utf-8", "surrogateescape"), self.read_nullable()))
        return tuple(headers)

    def read_nullable(self) -> bytes | None:
        length = self.read_number(32)
        if length < 0:
            return None
        start = self.position
        if length > len(self.data) - start:
            raise malformed(f"a field claims {length} bytes, {len(self.data) - start} are left")
        self.position = start + length
        return self.data[start : start + length]

    def read_number(self, bits: int) -> int:
        try:
            value, self.position = read_varint(self.data, self.position, bits)
        except IndexError:
            raise malformed("the bytes end inside a number") from None
        return value


def write_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    """Append one record in wire format."""
    parts = [NO_ATTRIBUTES, varint(timestamp_delta), varint(offset_delta)]
    add_nullable(parts, record.key)
    add_nullable(parts, record.value)
    headers = record.headers
    parts.append(varint(len(headers)))
    for name, value in headers:
        add_nullable(parts, name.encode("utf-8", "surrogateescape"))
        add_nullable(parts, value)
    body = b"".join(parts)
    out += varint(len(body))
    out += body


def write_plain_record(out: bytearray, key: bytes | None, value: bytes | None, offset_delta: int) -> None:
    """Append one record without headers, with the timestamp of the batch."""
    parts = [NO_ATTRIBUTES, _varints[0], varint(offset_delta)]
    add_nullable(parts, key)
    add_nullable(parts, value)
    parts.append(_varints[0])
    body = b"".join(parts)
    out += varint(len(body))
    out += body


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint (int32 and int64 alike)."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def varint(value: int) -> bytes:
    """Return a varint as bytes. Most are lengths and deltas, so they are cached."""
    if 0 <= value < CACHED_VARINTS:
        return _varints[value]
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def add_nullable(parts: list[bytes], value: bytes | None) -> None:
    """Append bytes with a length prefix; None has length -1."""
    if value is None:
        parts.append(NULL_LENGTH)
    else:
        parts.append(varint(len(value)))
        parts.append(value)


def _small_varints() -> list[bytes]:
    kept = []
    for value in range(CACHED_VARINTS):
        out = bytearray()
        write_varint(out, value)
        kept.append(bytes(out))
    return kept


_varints: Final = _small_varints()


def malformed(problem: str) -> KafkaError:
    return KafkaError(Error.INVALID_RECORD, f"Malformed records: {problem}")
