"""Types of columns that meet: a union, a join, a branch of an expression."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812

from ottla.pipelines.steps.columns import loses_digits


@pytest.mark.parametrize(
    ("one", "other", "loses"),
    [
        ((38, 0), (38, 0), False),
        ((20, 2), (22, 20), False),  # 18 whole digits and 20 after the point
        ((21, 2), (22, 20), True),
        ((22, 20), (21, 2), True),
        ((38, 38), (1, 0), True),
        ((38, 20), (30, 20), False),
    ],
)
def test_two_decimals_lose_digits_if_38_do_not_hold_those_of_both(
    one: tuple[int, int], other: tuple[int, int], loses: bool
) -> None:
    assert loses_digits(T.DecimalType(*one), T.DecimalType(*other)) is loses


def test_other_types_lose_no_digits() -> None:
    assert not loses_digits(T.DoubleType(), T.DecimalType(38, 38))
    assert not loses_digits(T.DecimalType(38, 38), T.LongType())
