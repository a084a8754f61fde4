"""Finds the error codes in an answer, wherever its message class has them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.protocol.layout import Type, types_of

FIELD: Final = "error_code"
CODES_MAX: Final = 1000  # of one answer: Metadata of ten thousand partitions is not walked to its end


class Place(NamedTuple):
    """A field whose structs hold error codes somewhere."""

    field: str
    is_array: bool
    struct: type


def error_codes(response: object) -> list[int]:
    """The codes of an answer, success (0) included; at most CODES_MAX."""
    found: list[int] = []
    for code in _walk(response, type(response)):
        found.append(code)
        if len(found) == CODES_MAX:
            break
    return found


def _walk(value: Any, struct: type) -> Iterator[int]:
    has_code, places = _places(struct)
    if has_code:
        yield value.error_code
    for place in places:
        below = getattr(value, place.field)
        if below is not None:
            for item in below if place.is_array else (below,):
                yield from _walk(item, place.struct)


@cache
def _places(struct: type) -> tuple[bool, tuple[Place, ...]]:
    found = []
    for name, kind in types_of(struct).items():
        item: Type = kind.array_item if kind.kind == "array" else kind
        if item.kind == "struct":
            has_code, below = _places(item.struct_class)
            if has_code or below:
                found.append(Place(name, kind.kind == "array", item.struct_class))
    return FIELD in types_of(struct), tuple(found)
