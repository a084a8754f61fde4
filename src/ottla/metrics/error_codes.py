"""Finds the error codes in an answer, wherever its message class has them. Compiled with mypyc where possible."""

from __future__ import annotations

from typing import Any, Final

from ottla.protocol.layout import Type, types_of

FIELD: Final = "error_code"
CODES_MAX: Final = 1000  # of one answer: Metadata of ten thousand partitions is not walked to its end


class Place:
    """A field whose structs hold error codes somewhere."""

    def __init__(self, field: str, is_array: bool, below: Places) -> None:
        self.field = field
        self.is_array = is_array
        self.below = below

    def __repr__(self) -> str:
        return f"<Place {self.field}>"


class Places:
    """Where a struct holds error codes: in itself, and in its fields."""

    def __init__(self, has_code: bool, fields: list[Place]) -> None:
        self.has_code = has_code
        self.fields = fields

    def __repr__(self) -> str:
        return f"<Places {self.has_code}, {self.fields}>"


_known: Final[dict[type, Places]] = {}


def error_codes(response: object) -> list[int]:
    """The codes of an answer, success (0) included; at most CODES_MAX."""
    found: list[int] = []
    _collect(response, _places(type(response)), found)
    return found


def _collect(value: Any, places: Places, found: list[int]) -> None:
    if len(found) >= CODES_MAX:
        return
    if places.has_code:
        found.append(value.error_code)
    for place in places.fields:
        below = getattr(value, place.field)
        if below is None:
            continue
        if not place.is_array:
            _collect(below, place.below, found)
            continue
        for item in below:
            if len(found) >= CODES_MAX:
                return
            _collect(item, place.below, found)


def _places(struct: type) -> Places:
    known = _known.get(struct)
    if known is None:
        fields = []
        for name, kind in types_of(struct).items():
            item: Type = kind.array_item if kind.kind == "array" else kind
            if item.kind == "struct":
                below = _places(item.struct_class)
                if below.has_code or below.fields:
                    fields.append(Place(name, kind.kind == "array", below))
        known = _known[struct] = Places(FIELD in types_of(struct), fields)
    return known
