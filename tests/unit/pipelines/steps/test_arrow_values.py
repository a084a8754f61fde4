"""Values of user code reach the column unchanged, or are an error: nothing is truncated or guessed."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from ottla.pipelines.steps.arrow_values import build_value_check
from ottla.pipelines.steps.python import batch_caller

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
def test_values_that_fit(row: dict[str, Any]) -> None:
    assert build_value_check(SCHEMA)(row) is None


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"n": 1.9}, "column 'n': 1.9 does not fit int32"),
        ({"n": Decimal("1.5")}, "column 'n': Decimal('1.5') does not fit int32"),
        ({"at": 1700000000}, "column 'at': 1700000000 does not fit timestamp[us, tz=UTC]"),
        ({"day": 5}, "column 'day': 5 does not fit date32[day]"),
        ({"list": [1, 1.5]}, "column 'list': [1, 1.5] does not fit list<"),
        ({"map": {"a": 1.5}}, "column 'map': {'a': 1.5} does not fit map<"),
        ({"inner": {"at": 5}}, "column 'inner': {'at': 5} does not fit struct<"),
        ({"inner": (1, 2)}, "column 'inner': (1, 2) does not fit struct<"),
    ],
)
def test_values_that_do_not_fit(row: dict[str, Any], told: str) -> None:
    assert (build_value_check(SCHEMA)(row) or "").startswith(told)


@pytest.mark.parametrize(("at", "is_refused"), [([1], True), ([1.5], True), (["2026-01-01"], False), ([None], False)])
def test_a_frame_with_numbers_where_times_belong_ends_the_run(at: list[Any], is_refused: bool) -> None:
    calling = batch_caller(lambda batch: batch, ["n", "at"], ["at"], "main, step 2, python")
    batch = pd.DataFrame({"n": [1], "at": at})
    if is_refused:
        with pytest.raises(RuntimeError, match="main, step 2, python: column 'at' has numbers"):
            calling(batch)
    else:
        assert calling(batch) is batch
