"""Whether a default has the type of its field, as Avro's Java checks it when a schema is parsed."""

from __future__ import annotations

from typing import Any

from ottla.registry.formats.avro.model import Type

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


def fits(of: Type, value: Any) -> bool:
    """A union takes the default of any of its branches."""
    match of.type:
        case "string" | "bytes" | "enum" | "fixed":
            return isinstance(value, str)
        case "int":
            return is_whole(value, INT_MAX)
        case "long":
            return is_whole(value, LONG_MAX)
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list) and of.items is not None and all(fits(of.items, each) for each in value)
        case "map":
            return (
                isinstance(value, dict)
                and of.items is not None
                and all(fits(of.items, each) for each in value.values())
            )
        case "union":
            return any(fits(branch, value) for branch in of.branches)
        case _:
            return isinstance(value, dict) and all(
                fits(each.type, value[each.name]) if each.name in value else each.has_default for each in of.fields
            )


def is_whole(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit - 1 <= value <= limit
