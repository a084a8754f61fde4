"""The types of columns of tables that are joined with a stream."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.pipelines.steps.join_tables import EXACT_MAX, _column_type


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 0.5], "double"),
        ([EXACT_MAX, -EXACT_MAX, 0.5], "double"),
        ([EXACT_MAX + 1, 0.5], "string"),  # a double does not hold this number
        ([-EXACT_MAX - 1, 0.5], "string"),
        ([1, "x"], "string"),
        ([1, 2], "bigint"),
    ],
)
def test_whole_numbers_and_fractions_are_doubles_if_these_hold_them_exactly(values: list[Any], kind: str) -> None:
    assert _column_type(values) == kind
