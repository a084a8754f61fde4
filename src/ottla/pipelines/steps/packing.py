"""Rows as text and back: what is kept between batches by steps that hold whole rows.

JSON, with the values that JSON has not under a mark of their own. A row is the same dict whether it came straight from
a batch or out of the state of a stream: moments are in UTC, and no process's time zone plays a part. Reading runs no
code, as pickles would: a checkpoint may come from elsewhere.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

MARK = "$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

Row = dict[str, Any]


def pack(value: Any) -> str:
    """Raises TypeError for what no column holds."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def unpack(text: str) -> Any:
    return json.loads(text, object_hook=_value)


def moment(instant: int) -> datetime:
    """Of microseconds since 1970."""
    return EPOCH + instant * MICROSECOND


def instant_of(value: datetime) -> int:
    """Microseconds since 1970; raises ValueError for a time without zone."""
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return (value - EPOCH) // MICROSECOND


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        if any(not isinstance(key, str) or key.startswith(MARK) for key in value):
            return {"$dict": [[_plain(key), _plain(each)] for key, each in value.items()]}
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [_plain(each) for each in value]}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return {"$local": value.isoformat()}
        return {"$at": instant_of(value)}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, timedelta):
        return {"$span": value // MICROSECOND}
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept")


READERS: dict[str, Any] = {
    "$dict": dict,
    "$tuple": tuple,
    "$local": datetime.fromisoformat,
    "$at": moment,
    "$date": date.fromisoformat,
    "$decimal": Decimal,
    "$bytes": base64.b64decode,
    "$span": lambda span: span * MICROSECOND,
}


def _value(found: Row) -> Any:
    if len(found) == 1:
        ((name, value),) = found.items()
        if name in READERS:
            return READERS[name](value)
    return found
