"""Request and response headers.

A request starts with api key, api version, correlation id and client id (header v1); flexible versions of an API add
tagged fields (v2). The client id keeps its two-byte length even then, so that a broker can read the header of an
ApiVersions request that is newer than itself. A response starts with the correlation id (v0), followed by tagged fields
in flexible versions (v1), except for ApiVersions, whose client cannot know the version yet.

Header v0 without client id belonged to ControlledShutdown v0, which Kafka 4 has removed.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import Encoded, ProtocolError, encode_into
from ottla.protocol.primitives import DECODE_ERRORS, ITEMS_MAX, reason_of, skip_tags

API_VERSIONS_KEY: Final = 18
CACHED_CLIENT_IDS_MAX: Final = 1_000
CLIENT_ID_KEPT_BYTES_MAX: Final = 255
FIXED_BYTES: Final = 10

_unpack_fixed = struct.Struct(">hhih").unpack_from  # key, version, correlation id, length of client id
_pack_fixed = struct.Struct(">hhih").pack
_pack_frame_start = struct.Struct(">ii").pack
_pack_frame_start_with_tags = struct.Struct(">iix").pack
_pack_size_into = struct.Struct(">i").pack_into
_flexible_since: dict[int, int] = {api.key: api.flexible_since for api in ALL_APIS.values()}
_client_ids: dict[bytes, str] = {}


class RequestHeader:
    __slots__ = ("api_key", "api_version", "body_position", "client_id", "correlation_id")

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int

    def __repr__(self) -> str:
        return (
            f"<RequestHeader key={self.api_key} v{self.api_version} correlation={self.correlation_id} "
            f"client={self.client_id!r} body at {self.body_position}>"
        )


_new_header = RequestHeader.__new__


def decode_request_header(buffer: memoryview) -> RequestHeader:
    """Return the header of a request frame (without its size).

    An unknown api key is not an error here, because the caller decides on the response; its header is read as v1.
    """
    header = _new_header(RequestHeader)
    try:
        header.api_key, header.api_version, header.correlation_id, length = _unpack_fixed(buffer, 0)
        position = FIXED_BYTES
        if length < 0:
            if length != -1:
                raise ProtocolError(f"client id of negative length {length}")
            header.client_id = None
        else:
            position += length
            raw = buffer[FIXED_BYTES:position].tobytes()
            if len(raw) != length:
                raise ProtocolError(f"client id of {length} bytes announced, {len(raw)} left")
            header.client_id = _client_ids.get(raw) or _cache_client_id(raw)
        if header.api_version >= _flexible_since.get(header.api_key, 32767):
            tags = buffer[position]
            position += 1
            if tags:
                position, _ = skip_tags(buffer, position, len(buffer), tags, ITEMS_MAX)
        header.body_position = position
    except DECODE_ERRORS as error:
        raise ProtocolError(f"request header: {reason_of(error)}") from None
    return header


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return a request header without the frame's size, for the client side."""
    tags = b"\0" if version >= _flexible_since.get(api_key, 32767) else b""
    if client_id is None:
        return _pack_fixed(api_key, version, correlation_id, -1) + tags
    raw = client_id.encode()
    return _pack_fixed(api_key, version, correlation_id, len(raw)) + raw + tags


def response_header_bytes(api_key: int, version: int) -> int:
    """Return the length of a response header without tagged fields, as Kafka sends it: 4 or 5."""
    if api_key == API_VERSIONS_KEY:
        return 4
    return 5 if version >= _flexible_since.get(api_key, 32767) else 4


def encode_response_frame(api_key: int, version: int, correlation_id: int, response: Any) -> Encoded:
    """Return a complete response frame: size, header and body in one buffer, with the holes of the body."""
    flexible = version >= _flexible_since.get(api_key, 32767) and api_key != API_VERSIONS_KEY
    out = Encoded((_pack_frame_start_with_tags if flexible else _pack_frame_start)(0, correlation_id))
    out.holes = []
    encode_into(out, response, version)
    size = len(out) - 4
    for _, range_ in out.holes:
        size += range_.length
    _pack_size_into(out, 0, size)
    return out


def encode_body_frame(api_key: int, version: int, correlation_id: int, body: bytes | bytearray) -> Encoded:
    """Return a complete response frame for an encoded body without holes."""
    header_bytes = response_header_bytes(api_key, version)
    pack = _pack_frame_start if header_bytes == 4 else _pack_frame_start_with_tags
    out = Encoded(pack(header_bytes + len(body), correlation_id) + body)
    out.holes = []
    return out


def decode_response_header(api_key: int, version: int, buffer: memoryview) -> tuple[int, int]:
    """Return correlation id and position of the body of a response frame without its size, for the client side."""
    try:
        (correlation_id,) = struct.unpack_from(">i", buffer, 0)
        position = 4
        if response_header_bytes(api_key, version) == 5:
            tags = buffer[4]
            position, _ = skip_tags(buffer, 5, len(buffer), tags, ITEMS_MAX)
    except DECODE_ERRORS as error:
        raise ProtocolError(f"response header: {reason_of(error)}") from None
    return correlation_id, position


def _cache_client_id(raw: bytes) -> str:
    """Return the client id as text, cached because clients repeat it in every request."""
    client_id = raw.decode(errors="replace")  # as in Kafka: an invalid name for logs does not close the connection
    if len(raw) <= CLIENT_ID_KEPT_BYTES_MAX:
        if len(_client_ids) >= CACHED_CLIENT_IDS_MAX:
            _client_ids.clear()
        _client_ids[raw] = client_id
    return client_id
