"""Values that somebody's Python has made, before Arrow takes them: it is lenient where data would be wrong.

It cuts the fraction off a number for a whole one, takes a number for microseconds or days since 1970, and a tuple for a
struct as long as no other row has a dict there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

IsWrong = Callable[[Any], bool]  # of a value that is not None


@lru_cache(64)
def misfits(schema: pa.DataType) -> Callable[[Mapping[str, Any]], str | None]:
    """Of a row by this struct: what is wrong with it, or None."""
    checks = [(field.name, field.type, _check(field.type)) for field in schema]
    wanted = [(name, kind, is_wrong) for name, kind, is_wrong in checks if is_wrong is not None]

    def find(row: Mapping[str, Any]) -> str | None:
        for name, kind, is_wrong in wanted:
            value = row.get(name)
            if value is not None and is_wrong(value):
                return f"column {name!r}: {value!r} is no {kind}"
        return None

    return find


def _check(kind: pa.DataType) -> IsWrong | None:
    if pa.types.is_integer(kind):
        return has_fraction
    if pa.types.is_temporal(kind):
        return _is_number
    if pa.types.is_struct(kind):
        inside = misfits(kind)
        return lambda value: not isinstance(value, Mapping) or inside(value) is not None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        element = _check(kind.item_type if pa.types.is_map(kind) else kind.value_type)
        if element is None:
            return None
        return lambda value: any(each is not None and element(each) for each in _elements(value))
    return None


def has_fraction(value: Any) -> bool:
    if isinstance(value, Decimal):
        return not value.is_finite() or value != int(value)
    is_whole = getattr(value, "is_integer", None)  # also of NumPy's numbers
    return is_whole is not None and not is_whole()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal)


def _elements(value: Any) -> Iterable[Any]:
    """What is neither a list nor a map is left to Arrow."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set) else ()
