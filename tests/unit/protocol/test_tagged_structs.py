"""Tagged structs that may be null: Kafka sends 0 for null and 1 before a struct, unlike structs in line (-1 and 1)."""

from __future__ import annotations

from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.messages.coordinator_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)

# Written by Apache Kafka 4.3.1, without the version in front.
WITHOUT = bytes.fromhex("0000077265616465720b2f3132372e302e302e3102076f726465727301000493e00001000100")


def test_null_is_read_and_written_as_kafka_does() -> None:
    value = decode_whole(ConsumerGroupMemberMetadataValue, 0, memoryview(WITHOUT))
    assert (value.client_id, value.classic_member_metadata) == ("reader", None)
    assert encode(value, 0) == WITHOUT


def test_a_struct_makes_the_round_trip() -> None:
    value = decode_whole(ConsumerGroupMemberMetadataValue, 0, memoryview(WITHOUT))
    protocols = [ClassicProtocol(name="range", metadata=b"m")]
    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=7, supported_protocols=protocols)
    data = encode(value, 0)
    assert data[len(WITHOUT) - 4 :][:2] == b"\x01\x00"  # one tag, number 0
    assert data[len(WITHOUT) - 1] == 1  # not null
    assert decode_whole(ConsumerGroupMemberMetadataValue, 0, memoryview(data)) == value
