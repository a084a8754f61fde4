"""Rows as Redis keeps them: keys, fields, JSON text, and the commands that write them. Pure.

  hash      a key a row; a field has a column's value as text, and one without value has no field
  string    a key a row: the row as JSON
  stream    an entry a row, with fields as in a hash
  list      an element a row: the row as JSON

The key of a row is TABLE:VALUE, with several key columns TABLE:VALUE:VALUE. What could be mistaken for something else
is written as in URLs: `%` always, `:` where there are several values. No value is `%null`.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.tables import Kind, TableColumn

Type = Literal["hash", "string", "stream", "list"]
Command = tuple[Any, ...]
Row = Sequence[Any]  # values of a database without types for dates and decimals

KEYED: Final[tuple[Type, ...]] = ("hash", "string")
NO_VALUE: Final = "%null"
NUMBERS: Final[tuple[Kind, ...]] = ("integer", "float", "decimal")


def row_key(table: str, values: Row) -> str:
    return ":".join([table, *(_part(value, len(values) > 1) for value in values)])


def put_commands(
    kind: Type, key: str, row: Row, columns: Sequence[TableColumn], expire_ms: int | None
) -> list[Command]:
    """Change the row of a key; fields of a hash that are not columns stay."""
    if kind == "string":
        return [("SET", key, json_text(row, columns), *(("PX", expire_ms) if expire_ms else ()))]
    fields = hash_fields(row, columns)
    gone = [column.name for column in columns if column.name not in fields[::2]]
    commands: list[Command] = [("HSET", key, *fields)]
    commands += [("HDEL", key, *gone)] if gone else []
    return [*commands, ("PEXPIRE", key, expire_ms)] if expire_ms else commands


def append_commands(kind: Type, table: str, rows: Sequence[Row], columns: Sequence[TableColumn]) -> list[Command]:
    if kind == "list":
        return [("RPUSH", table, *(json_text(row, columns) for row in rows))] if rows else []
    return [("XADD", table, "*", *hash_fields(row, columns)) for row in rows]


def hash_fields(row: Row, columns: Sequence[TableColumn]) -> list[Any]:
    """Names and values in turn; of a row without any value an empty one, for Redis keeps nothing that has no fields."""
    found: list[Any] = []
    for value, column in zip(row, columns, strict=True):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        found += [column.name, value if isinstance(value, bytes) else _text(value)]
    return found or [columns[0].name, ""]


def json_text(row: Row, columns: Sequence[TableColumn]) -> str:
    """Nested values are JSON already. NaN and the infinities are null, bytes are Base64."""
    parts = [
        f"{json.dumps(column.name)}:{_json(value, column.kind)}" for value, column in zip(row, columns, strict=True)
    ]
    return "{" + ",".join(parts) + "}"


def is_newer(stored: Any, given: Any, kind: Kind) -> bool:
    """Whether the stored row must stay. One without a value is older than any other. Raises SinkError."""
    old, new = _comparable(stored, kind), _comparable(given, kind)
    return old is not None and (new is None or new < old)


def _comparable(value: Any, kind: Kind) -> Any:
    """Dates and times are text that sorts as they do."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if text is None or kind not in NUMBERS:
        return text
    try:
        number = Decimal(str(text))
    except InvalidOperation:
        raise SinkError(f"newest_by: {text!r} is stored there, which is no number") from None
    return None if number.is_nan() else number


def _part(value: Any, is_one_of_several: bool) -> str:
    if value is None:
        return NO_VALUE
    text = value.hex() if isinstance(value, bytes) else _text(value)
    text = text.replace("%", "%25")
    return text.replace(":", "%3A") if is_one_of_several else text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(value)


def _json(value: Any, kind: Kind) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "null"
    if kind in ("json", "decimal"):
        return str(value)
    return json.dumps(b64encode(value).decode() if isinstance(value, bytes) else value, ensure_ascii=False)
