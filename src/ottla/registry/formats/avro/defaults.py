"""Whether a default has the type of its field, as Avro's Java checks it when a schema is parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.registry.formats.avro.model import Type

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


class Defaults:
    """Remembers what it has seen: a value may have to be tried with many branches, and each of these with many more."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], bool] = {}

    def fits(self, of: Type, value: Any) -> bool:
        """A union takes the default of any of its branches."""
        if of.type in SCALARS:
            return SCALARS[of.type](value)
        pair = (id(of), id(value))
        if pair not in self.known:
            self.known[pair] = self.is_composed(of, value)
        return self.known[pair]

    def is_composed(self, of: Type, value: Any) -> bool:
        if of.type == "union":
            return any(self.fits(branch, value) for branch in of.branches)
        if of.type == "array":
            return isinstance(value, list) and all(self.fits(of.items or of, each) for each in value)
        if of.type == "map":
            return isinstance(value, dict) and all(self.fits(of.items or of, each) for each in value.values())
        return isinstance(value, dict) and all(
            self.fits(each.type, value[each.name]) if each.name in value else each.has_default for each in of.fields
        )


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_int(value: Any) -> bool:
    return is_whole(value, INT_MAX)


def is_long(value: Any) -> bool:
    return is_whole(value, LONG_MAX)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def is_null(value: Any) -> bool:
    return value is None


def is_whole(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit - 1 <= value <= limit


SCALARS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("string", "bytes", "enum", "fixed"), is_text),
    **dict.fromkeys(("float", "double"), is_number),
    "int": is_int,
    "long": is_long,
    "boolean": is_boolean,
    "null": is_null,
}
