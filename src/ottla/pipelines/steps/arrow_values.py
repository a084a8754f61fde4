"""Checks and converts Python values before Arrow takes them, because Arrow converts some wrong values silently.

Arrow truncates the fraction of a number for an integer column, takes a number as microseconds or days since 1970, and
takes a tuple as a struct if no other row has a dict there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ottla.pipelines.steps.lookups.lookup_client import Row

ValueCheck = Callable[[Any], bool]  # for a value that is not None


@lru_cache(64)
def build_value_check(schema: pa.DataType) -> Callable[[Mapping[str, Any]], str | None]:
    """A check for rows of this struct: it returns the problem, or None."""
    checks = [(field.name, field.type, _value_check(field.type)) for field in schema]
    wanted = [(name, kind, is_wrong) for name, kind, is_wrong in checks if is_wrong is not None]

    def find(row: Mapping[str, Any]) -> str | None:
        for name, kind, is_wrong in wanted:
            value = row.get(name)
            if value is not None and is_wrong(value):
                return f"column {name!r}: {value!r} does not fit {kind}"
        return None

    return find


def _value_check(kind: pa.DataType) -> ValueCheck | None:
    if pa.types.is_integer(kind):
        return has_fraction
    if pa.types.is_temporal(kind):
        return _is_number
    if pa.types.is_struct(kind):
        inside = build_value_check(kind)
        return lambda value: not isinstance(value, Mapping) or inside(value) is not None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        element = _value_check(kind.item_type if pa.types.is_map(kind) else kind.value_type)
        if element is None:
            return None
        return lambda value: any(each is not None and element(each) for each in _elements(value))
    return None


def has_fraction(value: Any) -> bool:
    if isinstance(value, Decimal):
        return not value.is_finite() or value != int(value)
    is_whole = getattr(value, "is_integer", None)  # NumPy numbers have it as well
    return is_whole is not None and not is_whole()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal)


def _elements(value: Any) -> Iterable[Any]:
    """Values other than lists and maps are left to Arrow."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set) else ()


def to_declared_types(row: Row, wanted: pa.DataType) -> Row:
    """Convert the values of a lookup result to the declared columns. JSON and databases represent times and numbers
    differently. Raises ValueError with the column that does not fit."""
    made: Row = {}
    for each in wanted:
        try:
            made[each.name] = pa.array([_convert_value(row.get(each.name), each.type)], type=each.type)[0].as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError, InvalidOperation):
            shown = repr(row.get(each.name))
            text = shown if len(shown) <= 60 else f"{shown[:60]}…"
            raise ValueError(f"{each.name}: {text} does not fit {each.type}") from None
    return made


def _convert_value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else _text(value)
    if pa.types.is_boolean(kind):
        # SQLite stores Booleans as numbers
        return bool(value) if value in (0, 1) and not isinstance(value, float) else value
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise TypeError("no time")  # Arrow would accept a number, but its unit is unknown
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None and kind.tz is not None else moment
    if pa.types.is_date(kind):
        day = date.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(day, date) or isinstance(day, datetime):
            raise TypeError("no date")
        return day
    if pa.types.is_decimal(kind) and isinstance(value, str | int | float | Decimal):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    if pa.types.is_floating(kind) and isinstance(value, Decimal):
        return float(value)
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and isinstance(value, bool):
        raise TypeError("no number")
    if pa.types.is_integer(kind) and has_fraction(value):
        raise TypeError("no whole number")  # Arrow would truncate it
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()  # raises ValueError
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
