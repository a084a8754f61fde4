"""Values of an answer as the columns that a step declares: JSON and databases write times and numbers in their ways."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from ottla.pipelines.steps.lookups.asking import Row
from ottla.pipelines.steps.made_values import has_fraction


def fitted(row: Row, wanted: pa.DataType) -> Row:
    """Raises ValueError with the column that does not fit."""
    made: Row = {}
    for each in wanted:
        try:
            made[each.name] = pa.array([_as(row.get(each.name), each.type)], type=each.type)[0].as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError, InvalidOperation):
            shown = repr(row.get(each.name))
            text = shown if len(shown) <= 60 else f"{shown[:60]}…"
            raise ValueError(f"{each.name}: {text} is no {each.type}") from None
    return made


def _as(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else _text(value)
    if pa.types.is_boolean(kind):
        return bool(value) if value in (0, 1) and not isinstance(value, float) else value  # SQLite has only numbers
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise TypeError("no time")  # Arrow would take a number, and nobody has said of what
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
        raise TypeError("no whole number")  # Arrow would cut it off
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()  # raises ValueError
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
