"""Encoding and decoding of messages.

The functions are generated at first use, once per (message class, version), from the declarations of the class
(schema.py): see decoding.py and encoding.py. `generated_source` returns the generated code.

Malformed input raises a ProtocolError with message and field. No memory is allocated for a length or count that exceeds
the available bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.base.file_range import FileRange
from ottla.protocol.decoding import make_decoder
from ottla.protocol.encoding import make_encoder
from ottla.protocol.primitives import ANSWER_ITEMS_MAX, ProtocolError
from ottla.protocol.schema import layout_of

__all__ = [
    "Encoded",
    "EncodedBody",
    "ProtocolError",
    "decode",
    "decode_whole",
    "decoder_for",
    "encode",
    "encode_into",
    "encoder_for",
]

T = TypeVar("T")
Decoder = Callable[..., tuple[Any, int]]
Encoder = Callable[[Any, "Encoded"], "Encoded"]

_decoders: dict[tuple[type, int], Decoder] = {}
_encoders: dict[tuple[type, int], Encoder] = {}


class Encoded(bytearray):
    """An encoded message.

    Records in files are not copied: `holes` lists (position, range), in ascending order. The bytes of the range belong
    before the byte at that position; positions do not count the bytes of earlier ranges.
    """

    __slots__ = ("holes",)

    holes: list[tuple[int, FileRange]]

    def total_bytes(self) -> int:
        """Return the number of bytes to send, including the holes."""
        return len(self) + sum(range_.length for _, range_ in self.holes)


class EncodedBody:
    """An encoded message, for responses that are assembled from cached parts."""

    __slots__ = ("body", "holes")

    def __init__(self, body: bytes | bytearray, holes: list[tuple[int, FileRange]] | None = None) -> None:
        self.body = body
        self.holes = holes or []  # as in Encoded


def encode(message: Any, version: int) -> Encoded:
    out = Encoded()
    out.holes = []
    encoder = _encoders.get((type(message), version)) or encoder_for(type(message), version)
    return encoder(message, out)


def encode_into(out: Encoded, message: Any, version: int) -> Encoded:
    """Append a message to bytes that may already contain its header."""
    encoder = _encoders.get((type(message), version)) or encoder_for(type(message), version)
    return encoder(message, out)


def decode(cls: type[T], version: int, buffer: memoryview, position: int = 0) -> tuple[T, int]:
    """Return the message that starts at `position`, and the position after it."""
    decoder = _decoders.get((cls, version)) or decoder_for(cls, version)
    return decoder(buffer, position)


def decode_response(cls: type[T], version: int, buffer: memoryview, position: int = 0) -> tuple[T, int]:
    """Decode a response, which may have more items than a request."""
    decoder = _decoders.get((cls, version)) or decoder_for(cls, version)
    return decoder(buffer, position, ANSWER_ITEMS_MAX)


def decode_whole(cls: type[T], version: int, buffer: memoryview, position: int = 0) -> T:
    """Return the message that fills the buffer from `position` to its end."""
    decoder = _decoders.get((cls, version)) or decoder_for(cls, version)
    message, after = decoder(buffer, position)
    if after != len(buffer):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(buffer) - after} bytes follow the message")
    decoded: T = message
    return decoded


def decoder_for(cls: type, version: int) -> Decoder:
    """Return the generated function (buffer, position, items allowed = ITEMS_MAX) -> (message, position after it)."""
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = make_decoder(cls, version, _is_flexible(cls, version))[0]
    return found


def encoder_for(cls: type, version: int) -> Encoder:
    """Return the generated function (message, out) -> out."""
    if cls is EncodedBody:
        return _append_body
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = make_encoder(cls, version, _is_flexible(cls, version))[0]
    return found


def generated_source(cls: type, version: int) -> str:
    """Return the generated code of decoder and encoder, for debugging."""
    flexible = _is_flexible(cls, version)
    sources = make_decoder(cls, version, flexible)[1], make_encoder(cls, version, flexible)[1]
    return "\n\n".join("\n".join(source.lines) for source in sources)


def _append_body(message: EncodedBody, out: Encoded) -> Encoded:
    before = len(out)
    out += message.body
    out.holes += [(before + position, file_range) for position, file_range in message.holes]
    return out


def _is_flexible(cls: type, version: int) -> bool:
    layout = layout_of(cls)
    if not layout.min_version <= version <= layout.max_version:
        raise ProtocolError(f"{cls.__name__} has versions {layout.min_version}-{layout.max_version}, not {version}")
    return version >= layout.flexible_since
