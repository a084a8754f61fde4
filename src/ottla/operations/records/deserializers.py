"""Bytes of keys, values and headers as text, under the names of Kafka's deserializers.

Each function takes the bytes of one field and returns the bytes that Kafka's console consumer would print for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from uuid import UUID

from ottla.operations.records.java_numbers import java_float

Deserializer = Callable[[bytes], bytes]


class DeserializationError(Exception):
    """Bytes that are not what they were said to be."""


def deserializer(name: str) -> Deserializer | None:
    """By class name, with or without package, or by a short name such as `int`; None if there is none."""
    simple = name.rpartition(".")[2]
    return _BY_NAME.get(simple.removesuffix("Deserializer").lower())


def _raw(data: bytes) -> bytes:
    return data


def _number(name: str, layout: str) -> Deserializer:
    codec = struct.Struct(layout)

    def deserialize(data: bytes) -> bytes:
        if len(data) != codec.size:
            raise DeserializationError(f"Size of data received by {name}Deserializer is not {codec.size}")
        return str(codec.unpack(data)[0]).encode()

    return deserialize


def _double(data: bytes) -> bytes:
    if len(data) != 8:
        raise DeserializationError("Size of data received by DoubleDeserializer is not 8")
    return java_float(struct.unpack(">d", data)[0]).encode()


def _float(data: bytes) -> bytes:
    if len(data) != 4:
        raise DeserializationError("Size of data received by FloatDeserializer is not 4")
    return java_float(struct.unpack(">f", data)[0], _shortest_float).encode()


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise DeserializationError("Unexpected byte received by BooleanDeserializer")
    return b"true" if data == b"\1" else b"false"


def _uuid(data: bytes) -> bytes:
    try:
        return str(UUID(data.decode("ascii"))).encode()
    except ValueError:
        raise DeserializationError("Error parsing data into UUID") from None


def _void(_data: bytes) -> bytes:
    raise DeserializationError("Data should be null for a VoidDeserializer.")


def _bytes(data: bytes) -> bytes:
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in data).encode()


def _hex(data: bytes) -> bytes:
    return data.hex().encode()


_BY_NAME: dict[str, Deserializer] = {
    "string": _raw,
    "bytearray": _raw,
    "bytebuffer": _raw,
    "raw": _raw,
    "short": _number("Short", ">h"),
    "integer": _number("Integer", ">i"),
    "int": _number("Integer", ">i"),
    "long": _number("Long", ">q"),
    "double": _double,
    "float": _float,
    "boolean": _boolean,
    "uuid": _uuid,
    "void": _void,
    "bytes": _bytes,
    "hex": _hex,
}
NAMES = tuple(_BY_NAME)


def _shortest_float(value: float) -> str:
    """The fewest digits that give the same 32-bit number back."""
    for precision in range(1, 10):
        text = f"{value:.{precision}g}"
        if struct.pack(">f", float(text)) == struct.pack(">f", value):
            break
    return repr(float(text))
