"""Kafka's deserializers: keys, values and headers as text.

Each function takes the bytes of one field and returns the bytes that Kafka's console consumer prints for them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

# Numbers that Double.parseDouble accepts, except hexadecimal ones. Python also accepts other digits and underscores.
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_SPACE = "".join(map(chr, range(33)))


def parse_double(text: str) -> float:
    """Parse a number like Double.parseDouble. Raises ValueError."""
    trimmed = text.strip(_SPACE)
    if not _DOUBLE.fullmatch(trimmed):
        raise ValueError(f"not a number: {text}")
    return float(trimmed if trimmed[-1] in "Ny" else trimmed.rstrip("fFdD"))


def java_float(value: float, shortest: Callable[[float], str] = repr) -> str:
    """Format a number like Double.toString: with an exponent below 0.001 and from ten million on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = shortest(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text if "e" not in text else f"{value:.1f}"
    number = Decimal(text)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


Deserializer = Callable[[bytes], bytes]


class DeserializationError(Exception):
    """The bytes have the wrong format."""


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
    """The fewest digits that yield the same 32-bit number."""
    for precision in range(1, 10):
        text = f"{value:.{precision}g}"
        if struct.pack(">f", float(text)) == struct.pack(">f", value):
            break
    return repr(float(text))
