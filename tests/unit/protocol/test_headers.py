"""Request and response headers."""

from __future__ import annotations

import io
import struct
from uuid import UUID

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from ottla.base.file_range import FileRange
from ottla.protocol import headers
from ottla.protocol.apis import APIS
from ottla.protocol.codec import ProtocolError, decode_whole, encode
from ottla.protocol.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_frame,
    response_header_bytes,
)
from ottla.protocol.messages.cluster import ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.groups import HeartbeatResponse

TOPIC_ID = UUID(int=77)
EVERY_VERSION = [(api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


class Owner:
    def release_range(self) -> None: ...


@pytest.mark.parametrize("client_id", [None, "", "producer-1", "Ω" * 200])
def test_headers_of_every_api_and_version_are_those_of_kio(client_id: str | None) -> None:
    for key, version in EVERY_VERSION:
        flexible = version >= APIS[key].flexible_since
        header = KioHeaderV2 if flexible else KioHeaderV1
        theirs = io.BytesIO()
        entity_writer(header)(  # type: ignore[type-var]
            theirs,
            header(
                request_api_key=key,
                request_api_version=version,
                correlation_id=-5,
                client_id=client_id,
            ),
        )
        written = encode_request_header(key, version, -5, client_id)
        assert written == theirs.getvalue()
        read = decode_request_header(memoryview(written + b"body"))
        assert (read.api_key, read.api_version, read.correlation_id, read.client_id) == (key, version, -5, client_id)
        assert read.body_position == len(written)


def test_an_unknown_api_key_is_left_to_the_caller() -> None:
    read = decode_request_header(memoryview(struct.pack(">hhih", 12_345, 7, 1, -1)))
    assert (read.api_key, read.api_version, read.client_id, read.body_position) == (12_345, 7, None, 10)


def test_a_version_that_is_newer_than_ours_is_read_as_flexible() -> None:
    read = decode_request_header(memoryview(struct.pack(">hhih", 18, 99, 1, 1) + b"c\x00"))
    assert (read.api_version, read.client_id, read.body_position) == (99, "c", 12)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    read = decode_request_header(memoryview(struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x05\x02ab" + b"body"))
    assert read.body_position == 15


def test_a_client_id_that_is_not_utf8_is_read_with_replacements() -> None:
    assert decode_request_header(memoryview(struct.pack(">hhih", 3, 0, 1, 2) + b"\xff\xfe")).client_id == "��"


def test_the_repr_of_a_header_shows_its_fields() -> None:
    read = decode_request_header(memoryview(encode_request_header(3, 0, 9, "me")))
    assert repr(read) == "<RequestHeader key=3 v0 correlation=9 client='me' body at 12>"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the bytes end too early"),
        (struct.pack(">hhi", 3, 0, 1), "the bytes end too early"),
        (struct.pack(">hhih", 3, 0, 1, 5) + b"abc", "client id of 5 bytes announced, 3 left"),
        (struct.pack(">hhih", 3, 0, 1, -2), "client id of negative length -2"),
        (struct.pack(">hhih", 3, 9, 1, -1), "the bytes end too early"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\xe9\x07", "1001 tagged fields"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x00\x7f", "127 bytes announced, 0 left"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\xff\x01", "varint longer than 5 bytes"),
    ],
)
def test_a_broken_header_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=f"request header: {reason}"):
        decode_request_header(memoryview(raw))


def test_only_so_many_client_ids_are_kept() -> None:
    for number in range(headers.CACHED_CLIENT_IDS_MAX + 10):
        name = f"client-{number}"
        assert decode_request_header(memoryview(encode_request_header(3, 0, 1, name))).client_id == name
    assert len(headers._client_ids) <= headers.CACHED_CLIENT_IDS_MAX
    huge = "x" * (headers.CLIENT_ID_KEPT_BYTES_MAX + 1)
    assert decode_request_header(memoryview(encode_request_header(3, 0, 1, huge))).client_id == huge
    assert huge.encode() not in headers._client_ids


def test_a_response_header_has_tagged_fields_in_flexible_versions_except_for_api_versions() -> None:
    for key, version in EVERY_VERSION:
        flexible = version >= APIS[key].flexible_since and key != 18
        assert response_header_bytes(key, version) == (5 if flexible else 4)
        written = struct.pack(">i", -2) + (b"\x00" if flexible else b"")
        assert decode_response_header(key, version, memoryview(written + b"body")) == (-2, len(written))


def test_a_broken_response_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="response header"):
        decode_response_header(3, 0, memoryview(b"\0\0\0"))
    with pytest.raises(ProtocolError, match="response header"):
        decode_response_header(3, 9, memoryview(b"\0\0\0\0\x01\x00\x05"))


@pytest.mark.parametrize(("key", "version"), [(12, 0), (12, 4)])
def test_a_response_frame_is_size_header_and_body(key: int, version: int) -> None:
    response = HeartbeatResponse(error_code=3)
    body = struct.pack(">i", 11) + (b"\x00" if version == 4 else b"") + encode(response, version)
    assert encode_response_frame(key, version, 11, response) == struct.pack(">i", len(body)) + body


def test_the_frame_of_an_api_versions_response_is_not_flexible() -> None:
    frame = encode_response_frame(18, 3, 11, ApiVersionsResponse())
    assert decode_whole(ApiVersionsResponse, 3, memoryview(frame), 8) == ApiVersionsResponse()


@pytest.mark.parametrize("version", [4, 12, 17])
def test_the_size_of_a_frame_counts_its_file_ranges(version: int) -> None:
    ranges = [FileRange(Owner(), 3, 0, 5_000), FileRange(Owner(), 3, 5_000, 70)]
    partitions = [
        PartitionData(partition_index=index, high_watermark=9, records=range_) for index, range_ in enumerate(ranges)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=partitions)])
    frame = encode_response_frame(1, version, 11, response)
    assert [range_ for _, range_ in frame.holes] == ranges
    (size,) = struct.unpack_from(">i", frame)
    assert size == frame.total_bytes() - 4 == len(frame) + 5_070 - 4
    whole = bytearray(frame)
    for position, range_ in reversed(frame.holes):
        whole[position:position] = bytes(range_.length)
    body_position = 4 + response_header_bytes(1, version)
    read = decode_whole(FetchResponse, version, memoryview(whole), body_position)
    assert [len(partition.records or b"") for partition in read.responses[0].partitions] == [5_000, 70]
