"""The records of the internal topics as bytes, read without ottla's own code."""

import struct
from typing import NamedTuple

from tests.conformance.peer import Peer
from tests.conformance.raw_batches import CONTROL, LENGTH_COVERS_FROM, TRANSACTIONAL, read_batches

RECORDS_FROM = 61
PARTITIONS = 50


class Stored(NamedTuple):
    key: bytes
    value: bytes | None
    is_transactional: bool


def records_about(peer: Peer, topic: str, name: str) -> list[Stored]:
    """All records of the group or transactional id, oldest first."""
    partition = partition_of(name)
    found: list[Stored] = []
    offset, end = 0, peer.end_offset(topic, partition)
    while offset < end:
        data = bytes(peer.fetch(topic, offset, partition, max_wait_ms=0).records)
        position = 0
        for header in read_batches(data):
            size = LENGTH_COVERS_FROM + header.length
            if not header.attributes & CONTROL:
                rows = read_records(data[position + RECORDS_FROM : position + size], header.record_count)
                found += [Stored(*row, bool(header.attributes & TRANSACTIONAL)) for row in rows]
            position += size
            offset = header.next_offset
    return [record for record in found if name.encode() in record.key]


def read_records(data: bytes, count: int) -> list[tuple[bytes, bytes | None]]:
    rows = []
    position = 0
    for _ in range(count):
        size, position = read_varint(data, position)
        end = position + size
        position += 1  # attributes
        _, position = read_varint(data, position)  # time
        _, position = read_varint(data, position)  # offset
        key, position = read_bytes(data, position)
        value, position = read_bytes(data, position)
        rows.append((key or b"", value))
        position = end
    return rows


def read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position


def partition_of(name: str) -> int:
    """Java's String.hashCode, for names of plain letters."""
    value = 0
    for letter in name.encode("ascii"):
        value = (31 * value + letter) & 0xFFFFFFFF
    (signed,) = struct.unpack(">i", struct.pack(">I", value))
    return abs(signed) % PARTITIONS
