"""What consumers put into the metadata and assignments of a classic group (protocol type "consumer").

Both begin with an int16 version; a reader takes the fields that it knows and ignores what follows, so a newer version
than the last one here is read as that one.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from ottla.protocol.codec import ProtocolError, decode, encode
from ottla.protocol.schema import Int32, layout_of, message, part, wire

CONSUMER = "consumer"  # the protocol type

_VERSION = Struct(">h")
T = TypeVar("T")


@part
class OwnedPartitions:
    topic: str
    partitions: list[Int32]


@message(versions="0-3")
class Subscription:
    """v1 partitions held now (KIP-429); v2 generation; v3 rack (KIP-881)."""

    topics: list[str]
    user_data: bytes | None = wire(nullable=0, default=None)
    owned_partitions: list[OwnedPartitions] = wire(since=1, default_factory=list)
    generation_id: Int32 = wire(since=2, default=-1)
    rack_id: str | None = wire(since=3, nullable=3, default=None)


@message(versions="0-3")
class Assignment:
    assigned_partitions: list[OwnedPartitions]
    user_data: bytes | None = wire(nullable=0, default=None)


def read_versioned(cls: type[T], data: bytes) -> T:
    """Raises ProtocolError when the bytes are not what they should be."""
    version = read_version(data)
    known, _ = decode(cls, min(version, layout_of(cls).max_version), memoryview(data), _VERSION.size)
    return known


def read_version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("what a consumer wrote has no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"what a consumer wrote has version {version}")
    return version


def write_versioned(message_: Subscription | Assignment, version: int) -> bytes:
    return _VERSION.pack(version) + encode(message_, version)
