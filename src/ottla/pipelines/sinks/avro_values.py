"""Values that fastavro would write as others: it cuts the fraction off a number for a whole one, writes 2^31 as an
`int`, which no other reader takes, makes true of the text "false", and infinity of what no `float` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

INT_MAX = 2**31 - 1
FLOAT_MAX = 3.4028235677973366e38  # from here on a double is rounded to infinity

Misfit = Callable[[Any], str | None]  # of a value that is not None: where and why it does not fit


def misfits(schema: Any, place: str = "", named: dict[str, Misfit | None] | None = None) -> Misfit | None:
    """By a schema that fastavro has parsed; None where nothing can be wrong that fastavro does not see."""
    named = {} if named is None else named
    if isinstance(schema, list):
        real = [branch for branch in schema if branch != "null"]
        return misfits(real[0], place, named) if len(real) == 1 else None  # of several fastavro looks for one that fits
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in PRIMITIVES:
        is_wrong = PRIMITIVES[kind]
        return lambda value: f"{place}: {value!r} is no {kind}" if is_wrong(value) else None
    if kind == "record":
        return _record(schema, place, named)
    if kind in ("array", "map"):
        inside = misfits(schema["items" if kind == "array" else "values"], place, named)
        return None if inside is None else lambda values: _first(inside, values)
    return named.get(kind) if isinstance(kind, str) else None


def _record(schema: dict[str, Any], place: str, named: dict[str, Misfit | None]) -> Misfit:
    checks: list[tuple[str, Misfit]] = []

    def find(row: Any) -> str | None:
        for name, check in checks:
            value = row.get(name)
            problem = None if value is None else check(value)
            if problem is not None:
                return problem
        return None

    named[schema["name"]] = find  # first, for a record may contain itself
    for field in schema["fields"]:
        check = misfits(field["type"], f"{place}.{field['name']}".lstrip("."), named)
        if check is not None:
            checks.append((field["name"], check))
    return find


def _first(inside: Misfit, values: Any) -> str | None:
    for value in values.values() if isinstance(values, Mapping) else values:
        problem = None if value is None else inside(value)
        if problem is not None:
            return problem
    return None


def _is_not_whole(value: Any) -> bool:
    """Moments and days are fastavro's to turn into numbers."""
    return isinstance(value, bool | float | Decimal)


PRIMITIVES: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: _is_not_whole(value) or (isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX),
    "long": _is_not_whole,
    "boolean": lambda value: not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float | Decimal) and FLOAT_MAX <= abs(float(value)) < float("inf"),
}
