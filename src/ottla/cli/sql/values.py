r"""Formats row values for terminals and programs.

A pipe has one line per row and a tab between columns, so both are escaped in values (\n and \t, with \\ for a
backslash); null is NULL. In JSON, bytes are base64 and decimals are text, so nothing is rounded. Times are in UTC.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

NULL = "NULL"
WRITTEN_OUT = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def cell(value: Any) -> str:
    """A value as a table cell or a field of a line."""
    if value is None:
        return NULL
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return _moment(value).removesuffix("Z").replace("T", " ")
    plain = plain_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def line(row: Sequence[Any]) -> str:
    return "\t".join(cell(value).translate(WRITTEN_OUT) for value in row)


def json_line(columns: Sequence[str], row: Sequence[Any]) -> str:
    named = {name: plain_value(value) for name, value in zip(columns, row, strict=True)}
    return json.dumps(named, ensure_ascii=False)


def plain_value(value: Any) -> Any:
    """A value in JSON types."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return b64encode(bytes(value)).decode()
    fields = getattr(value, "__fields__", None)
    if fields is not None:  # a struct
        return {name: plain_value(entry) for name, entry in zip(fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {cell(key): plain_value(entry) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [plain_value(entry) for entry in value]
    return str(value)


def _moment(value: datetime) -> str:
    """Convert a time to UTC: Spark returns naive times in the zone of this machine."""
    try:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    except (OverflowError, ValueError):  # at the limits of the calendar
        return value.isoformat()
