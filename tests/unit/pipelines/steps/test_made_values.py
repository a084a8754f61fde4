"""What somebody's Python made is what a column gets, or it is told: nothing is cut off or guessed."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipelines.steps.made_values import misfits

SCHEMA = pa.struct(
    [
        ("n", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("price", pa.float64()),
        ("list", pa.list_(pa.int64())), ("map", pa.map_(pa.string(), pa.int64())), ("text", pa.string()),
        ("inner", pa.struct([("n", pa.int32()), ("at", pa.timestamp("us", "UTC"))])),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        {"n": 1}, {"n": 2.0}, {"n": Decimal(3)}, {"n": None}, {"at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"day": date(2026, 1, 1)}, {"price": 1.5}, {"list": [1, None, 2.0]}, {"map": {"a": None, "b": 1}},
        {"inner": {"n": 1, "at": None}}, {"inner": None}, {"text": "x"}, {},
    ],
)  # fmt: skip
def test_what_fits(row: dict[str, Any]) -> None:
    assert misfits(SCHEMA)(row) is None


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"n": 1.9}, "column 'n': 1.9 is no int32"),
        ({"n": Decimal("1.5")}, "column 'n': Decimal('1.5') is no int32"),
        ({"at": 1700000000}, "column 'at': 1700000000 is no timestamp[us, tz=UTC]"),
        ({"day": 5}, "column 'day': 5 is no date32[day]"),
        ({"list": [1, 1.5]}, "column 'list': [1, 1.5] is no list<"),
        ({"map": {"a": 1.5}}, "column 'map': {'a': 1.5} is no map<"),
        ({"inner": {"at": 5}}, "column 'inner': {'at': 5} is no struct<"),
        ({"inner": (1, 2)}, "column 'inner': (1, 2) is no struct<"),
    ],
)
def test_what_does_not_fit(row: dict[str, Any], told: str) -> None:
    assert (misfits(SCHEMA)(row) or "").startswith(told)
