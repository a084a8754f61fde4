"""Confluent's wire format: how a record names its schema. Pure.

before the data         0, the ID as 4 bytes, big-endian
in a header             `__key_schema_id`, `__value_schema_id`: the same five bytes, or 1 and a GUID of 16 bytes;
                        then the data has no prefix
Protobuf                after the ID or GUID: the message index. 0 for the first message, otherwise the number of
                        indexes and the indexes, as zigzag varints: a path from the file into its messages
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.base.errors import KafkaError
from ottla.operations.schema_registry.errors import SchemaError
from ottla.protocol.records import read_varint, write_varint

ID_MAGIC, GUID_MAGIC = 0, 1
PREFIX_BYTES = 5
GUID_PREFIX_BYTES = 17
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
FIRST_MESSAGE = (0,)
DEPTH_MAX = 32  # nesting of messages
ID_MAX = 2**31 - 1

SchemaName = int | str  # ID or GUID


class FramedRecord(NamedTuple):
    """The schema and the data (for Protobuf with the message index)."""

    name: SchemaName
    data: bytes


def read_frame(data: bytes, header: bytes | None = None) -> FramedRecord | None:
    """None if the record names no schema. Raises SchemaError for an invalid header."""
    if header is not None:
        name, start = read_name(header)
        return FramedRecord(name, header[start:] + data)
    if len(data) < PREFIX_BYTES or data[0] != ID_MAGIC:
        return None
    return FramedRecord(int.from_bytes(data[1:PREFIX_BYTES], "big"), data[PREFIX_BYTES:])


def frame(schema_id: int, data: bytes) -> bytes:
    """Encoded data with the ID in front."""
    assert 0 <= schema_id <= ID_MAX
    return b"\0" + schema_id.to_bytes(4, "big") + data


def schema_header(headers: Iterable[tuple[str, bytes | None]], *, is_key: bool) -> bytes | None:
    """The schema header of the key or value; the last one counts."""
    wanted = KEY_HEADER if is_key else VALUE_HEADER
    found = None
    for name, value in headers:
        if name == wanted and value is not None:
            found = value
    return found


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The message index, and the position after it. Raises SchemaError."""
    try:
        count, position = read_varint(data, 0, 32)
        if count == 0:
            return FIRST_MESSAGE, position
        if not 0 < count <= DEPTH_MAX:
            raise SchemaError(f"a message index cannot have {count} levels")
        found = []
        for _ in range(count):
            index, position = read_varint(data, position, 32)
            found.append(index)
    except (KafkaError, IndexError):
        raise SchemaError("the bytes end inside the message index") from None
    return tuple(found), position


def write_indexes(path: Sequence[int]) -> bytes:
    if tuple(path) == FIRST_MESSAGE:
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        write_varint(out, number)
    return bytes(out)


def read_name(header: bytes) -> tuple[SchemaName, int]:
    """The ID or GUID at the beginning, and the position after it. Raises SchemaError."""
    if header[:1] == b"\0" and len(header) >= PREFIX_BYTES:
        return int.from_bytes(header[1:PREFIX_BYTES], "big"), PREFIX_BYTES
    if header[:1] == b"\1" and len(header) >= GUID_PREFIX_BYTES:
        return str(UUID(bytes=header[1:GUID_PREFIX_BYTES])), GUID_PREFIX_BYTES
    raise SchemaError("the header with the schema ID contains neither an ID nor a GUID")
