"""Formats of keys and values for tools: text, numbers, hex, base64, JSON, structs.

A format has three functions: `encode` turns a line of text or a JSON value into bytes, `decode` turns bytes into a JSON
value, `text` returns the bytes for a line of plain output. Bytes that are not valid UTF-8 are `{"base64": "…"}` in
JSON, in both directions, so every value survives a round trip.
A struct is a layout such as `struct:id=int,price=double,name=string`: its fields are concatenated, numbers big-endian
as in Kafka's serializers, strings and bytes with an int32 length prefix.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from ottla.operations.errors import WrongInputError
from ottla.operations.records.deserializers import DeserializationError, Deserializer, deserializer

NAMES = ("string", "short", "int", "long", "float", "double", "boolean", "uuid", "bytes", "hex", "base64", "json")
FORMATS_HELP = f"{', '.join(NAMES)} or struct:name=type,..."
STRUCT_PREFIX = "struct:"
BASE64_FIELD = "base64"
_LENGTH = struct.Struct(">i")
_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")


class FieldError(WrongInputError):
    """A text or JSON value that this format cannot encode."""


class FieldFormat(NamedTuple):
    """One format; see the module docstring."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    text: Deserializer


class Number(NamedTuple):
    """The binary layout of a number."""

    name: str
    layout: struct.Struct
    parse: Callable[[str], int | float]

    def encode(self, value: Any) -> bytes:
        try:
            number = self.parse(value) if isinstance(value, str) else value
            if isinstance(number, bool) or (isinstance(number, float) and self.parse is int):
                raise FieldError(f"{value!r} is not of type {self.name}")
            return self.layout.pack(number)
        except (ValueError, TypeError, OverflowError, struct.error):
            raise FieldError(f"{_short(value)} is not of type {self.name}") from None

    def decode(self, data: bytes) -> Any:
        if len(data) != self.layout.size:
            raise DeserializationError(f"{len(data)} bytes are not a {self.name}, which has {self.layout.size}")
        number = self.layout.unpack(data)[0]
        return number if math.isfinite(number) else str(number)  # JSON has no infinity and NaN


def make_format(spec: str) -> FieldFormat:
    """A format by name or struct layout. Raises FieldError."""
    if spec.startswith(STRUCT_PREFIX):
        return _struct_format(spec)
    found = _FORMATS.get(_ALIASES.get(spec, spec))
    if found is None:
        raise FieldError(f"unknown format {spec!r}: use {FORMATS_HELP}")
    return found


def text_value(data: bytes) -> Any:
    """The bytes as a JSON string, or as base64 if they are not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64_FIELD: base64.b64encode(data).decode()}


def text_bytes(value: Any) -> bytes:
    """The reverse; any other JSON value is stored as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and set(value) == {BASE64_FIELD} and isinstance(value[BASE64_FIELD], str):
        return _from_base64(value[BASE64_FIELD])
    return _json_bytes(value)


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")


def _encode_json(value: Any) -> bytes:
    """A line of text must be JSON; a JSON value is encoded."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise FieldError(f"{_short(value)} is not JSON") from None
    return _json_bytes(value)


def _decode_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise DeserializationError("the bytes are not JSON") from None


def _encode_boolean(value: Any) -> bytes:
    words = {"true": b"\1", "false": b"\0"}
    found = words.get(str(value).lower())
    if found is None:
        raise FieldError(f"{_short(value)} is neither true nor false")
    return found


def _encode_uuid(value: Any) -> bytes:
    try:
        return str(UUID(str(value))).encode()
    except ValueError:
        raise FieldError(f"{_short(value)} is not a UUID") from None


def _encode_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (ValueError, TypeError):
        raise FieldError(f"{_short(value)} is not hexadecimal") from None


def _from_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise FieldError(f"{_short(value)} is not base64") from None


def _encode_escaped(value: Any) -> bytes:
    return _ESCAPE.sub(lambda match: bytes.fromhex(match.group(1).decode()), text_bytes(value))


def _deserializer(name: str) -> Deserializer:
    found = deserializer(name)
    assert found is not None, name
    return found


def _json_printer(decode: Callable[[bytes], Any]) -> Deserializer:
    return lambda data: _json_bytes(decode(data))


def _as_text(name: str, encode: Callable[[Any], bytes]) -> FieldFormat:
    """A format whose JSON form is a string, equal to its plain output."""
    text = _deserializer(name)
    return FieldFormat(name, encode, lambda data: text(data).decode(), text)


def _number(name: str, layout: str, parse: Callable[[str], int | float]) -> FieldFormat:
    number = Number(name, struct.Struct(layout), parse)
    return FieldFormat(name, number.encode, number.decode, _deserializer(name))


def _base64_text(data: bytes) -> bytes:
    return base64.b64encode(data)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_BOOLEAN = _deserializer("boolean")
_FORMATS = {
    found.name: found
    for found in (
        FieldFormat("string", text_bytes, text_value, _deserializer("string")),
        _number("short", ">h", int),
        _number("int", ">i", int),
        _number("long", ">q", int),
        _number("float", ">f", float),
        _number("double", ">d", float),
        FieldFormat("boolean", _encode_boolean, lambda data: _BOOLEAN(data) == b"true", _BOOLEAN),
        _as_text("uuid", _encode_uuid),
        _as_text("bytes", _encode_escaped),
        _as_text("hex", _encode_hex),
        FieldFormat("base64", _from_base64, lambda data: _base64_text(data).decode(), _base64_text),
        FieldFormat("json", _encode_json, _decode_json, _json_printer(_decode_json)),
    )
}
_ALIASES = {"integer": "int", "raw": "string"}
_NUMBER_BYTES = {"short": 2, "int": 4, "long": 8, "float": 4, "double": 8, "boolean": 1}


def _struct_format(spec: str) -> FieldFormat:
    fields = _struct_fields(spec)

    def encode(value: Any) -> bytes:
        if isinstance(value, str):
            value = _decode_json(value.encode("utf-8", "surrogateescape"))
        if not isinstance(value, dict) or set(value) != {name for name, _ in fields}:
            raise FieldError(f"{_short(value)} does not have the fields {', '.join(name for name, _ in fields)}")
        return b"".join(_pack(part, part.encode(value[name])) for name, part in fields)

    def decode(data: bytes) -> dict[str, Any]:
        found, position = {}, 0
        for name, part in fields:
            piece, position = _unpack(part, data, position)
            found[name] = part.decode(piece)
        if position != len(data):
            raise DeserializationError(f"{len(data) - position} bytes follow the last field of the struct")
        return found

    return FieldFormat(spec, encode, decode, _json_printer(decode))


def _struct_fields(spec: str) -> list[tuple[str, FieldFormat]]:
    fields: list[tuple[str, FieldFormat]] = []
    for word in spec.removeprefix(STRUCT_PREFIX).split(","):
        name, _, kind = word.partition("=")
        if not name or kind not in _FORMATS or name in dict(fields):
            raise FieldError(f"{word!r} is not a field: write struct:id=int,name=string with each name once")
        fields.append((name, _FORMATS[kind]))
    return fields


def _pack(part: FieldFormat, data: bytes) -> bytes:
    return data if part.name in _NUMBER_BYTES else _LENGTH.pack(len(data)) + data


def _unpack(part: FieldFormat, data: bytes, position: int) -> tuple[bytes, int]:
    length = _NUMBER_BYTES.get(part.name)
    if length is None:
        if len(data) - position < _LENGTH.size:
            raise DeserializationError("the bytes end inside the struct")
        length = _LENGTH.unpack_from(data, position)[0]
        position += _LENGTH.size
    if not 0 <= length <= len(data) - position:
        raise DeserializationError("the bytes end inside the struct")
    return data[position : position + length], position + length
