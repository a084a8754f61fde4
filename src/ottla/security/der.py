"""Just enough of DER (X.690) to read certificates and protected keys: tags, lengths, contents. Pure.

Everything is bounded by the bytes that are there; whatever does not fit raises DerError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

BOOLEAN: Final = 0x01
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
UTC_TIME: Final = 0x17
SEQUENCE: Final = 0x30
LENGTH_BYTES_MAX: Final = 4


class DerError(ValueError):
    """Bytes that are not DER, or not what should be there."""


class Item(NamedTuple):
    """One value: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes

    def children(self) -> list[Item]:
        return list(items(self.content))

    def expect(self, tag: int) -> Item:
        if self.tag != tag:
            raise DerError(f"tag {self.tag:#04x} where {tag:#04x} should be")
        return self


def parse(data: bytes) -> Item:
    """The value that these bytes begin with."""
    for item in items(data):
        return item
    raise DerError("no bytes")


def items(data: bytes) -> Iterator[Item]:
    """The values that follow each other in `data`."""
    position = 0
    while position < len(data):
        start = position
        if position + 2 > len(data):
            raise DerError("cut off")
        tag, length = data[position], data[position + 1]
        position += 2
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= LENGTH_BYTES_MAX or position + count > len(data):
                raise DerError("a length of another form")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise DerError("cut off")
        yield Item(tag, data[position : position + length], data[start : position + length])
        position += length


def object_identifier(content: bytes) -> str:
    """The dotted form: 2.5.4.3."""
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise DerError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
