"""The interface of steps that process the rows of one key in time order. Pure: no Spark, no clock.

A program receives the rows that the watermark has passed, and its stored state of the key. It returns output rows, the
new state, and when to be called without a row. A batch passes all rows at once, a stream a few at a time: the results
are equal.

Rules:
1. Rows come in time order, and after the watermark of the previous call.
2. Output of one call is in time order, and not after the watermark.
3. `watermark_ms` None means the end of time: all rows of a batch were passed.

Rows and state are stored as JSON text, with tagged objects for types that JSON does not have. A row is the same dict
whether it comes from a batch or from the state of a stream: times are in UTC, independent of the process's zone. Unlike
pickle, reading runs no code, because a checkpoint may come from elsewhere.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

Row = dict[str, Any]

TYPE_MARK = "$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class InputRow(NamedTuple):
    """An input row; `instant` in microseconds since 1970; `flags` has 0 or 1 for each condition of the step."""

    instant: int
    row: Row
    flags: str = ""


class OutputRow(NamedTuple):
    """An output row; or, with `problem`, a dead row: `input_index` is its index in the input."""

    instant: int
    row: Row | None
    problem: str | None = None
    input_index: int | None = None


class ProgramResult(NamedTuple):
    """The result of a call. `memory` None: no state is kept for the key."""

    made: list[OutputRow]
    state: str | None
    wake_ms: int | None


class Program(Protocol):
    """Pickled to Spark's workers."""

    def run(self, rows: list[InputRow], memory: str | None, watermark_ms: int | None) -> ProgramResult: ...


def ceil_ms(instant: int) -> int:
    """Milliseconds, rounded up: nothing is released before its time."""
    return -(-instant // 1000)


def pack(value: Any) -> str:
    """Raises TypeError for values that no column can hold."""
    return json.dumps(_encode_value(value), ensure_ascii=False, separators=(",", ":"))


def unpack(text: str) -> Any:
    return json.loads(text, object_hook=_decode_value)


def from_micros(instant: int) -> datetime:
    """The time for microseconds since 1970."""
    return EPOCH + instant * MICROSECOND


def to_micros(value: datetime) -> int:
    """Microseconds since 1970. Raises ValueError for a time without zone."""
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return (value - EPOCH) // MICROSECOND


def _encode_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        if any(not isinstance(key, str) or key.startswith(TYPE_MARK) for key in value):
            return {"$dict": [[_encode_value(key), _encode_value(each)] for key, each in value.items()]}
        return {key: _encode_value(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [_encode_value(each) for each in value]}
    if isinstance(value, list):
        return [_encode_value(each) for each in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return {"$local": value.isoformat()}
        return {"$at": to_micros(value)}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, timedelta):
        return {"$span": value // MICROSECOND}
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored")


DECODERS: dict[str, Any] = {
    "$dict": dict,
    "$tuple": tuple,
    "$local": datetime.fromisoformat,
    "$at": from_micros,
    "$date": date.fromisoformat,
    "$decimal": Decimal,
    "$bytes": base64.b64decode,
    "$span": lambda span: span * MICROSECOND,
}


def _decode_value(found: Row) -> Any:
    if len(found) == 1:
        ((name, value),) = found.items()
        if name in DECODERS:
            return DECODERS[name](value)
    return found
