"""Rows as text and back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from ottla.pipelines.steps.key_program import from_micros, pack, to_micros, unpack

AT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        {"a": None, "b": True, "c": 1, "d": 1.5, "e": "ü\n", "f": [1, [2]], "g": {"h": {"i": []}}},
        {"at": AT, "day": date(2026, 1, 1), "local": AT.replace(tzinfo=None), "span": timedelta(days=-1, seconds=3)},
        {"price": Decimal("-1.10"), "large": Decimal(10) ** 37, "raw": b"\x00\xff", "empty": b""},
        {"$at": 5}, {"map": {"$at": 5}}, {"map": {1: "a", AT: "b"}}, {"pairs": [("a", 1), ("b", None)]}, {"": 2**62},
        {"infinite": math.inf, "old": datetime(1, 1, 1, tzinfo=UTC), "far": datetime(9999, 12, 31, 23, tzinfo=UTC)},
    ],
    ids=str,
)  # fmt: skip
def test_packed_values_are_restored(value: object) -> None:
    assert unpack(pack(value)) == value
    assert repr(unpack(pack(value))) == repr(value)


def test_nan_comes_back_and_moments_come_back_in_utc() -> None:
    assert math.isnan(unpack(pack([math.nan]))[0])
    elsewhere = AT.astimezone(timezone(timedelta(hours=5)))
    assert unpack(pack(elsewhere)) == AT
    assert unpack(pack(elsewhere)).tzinfo is UTC


def test_a_value_without_column_type_is_refused() -> None:
    with pytest.raises(TypeError, match="of type object cannot be stored"):
        pack({"a": object()})
    with pytest.raises(ValueError, match="has no time zone"):
        to_micros(AT.replace(tzinfo=None))
    assert from_micros(to_micros(AT)) == AT
