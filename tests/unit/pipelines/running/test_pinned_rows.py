"""Rows that are staged before the first of several sinks has them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, NullType, StructField, StructType

from ottla.pipelines.running.delivery import pins_rows
from ottla.pipelines.steps.frame import AppliedStep
from ottla.pipelines.steps.step_table import STEPS

STEADY = (
    "parse",
    "filter",
    "rule",
    "select",
    "rename",
    "drop",
    "cast",
    "derive",
    "mask",
    "flatten",
    "explode",
    "union",
)


def rows_of(kind: DataType) -> StructType:
    return StructType([StructField("void", LongType()), StructField("n", kind)])


def passage(step: str, kind: str | None = None) -> AppliedStep:
    return AppliedStep("main", 1, step, 1, kind or STEPS[step].KIND)


@pytest.mark.parametrize("step", sorted(STEPS))
def test_rows_that_a_repetition_may_change_are_pinned_for_several_sinks(step: str) -> None:
    kind = "marks" if step == "python" else None  # each: row
    rows = rows_of(LongType())
    is_steady = step in STEADY or step in ("sample", "watermark", "outliers")
    assert pins_rows([passage("parse"), passage(step, kind)], 2, rows) is not is_steady
    assert pins_rows([passage("parse"), passage(step, kind)], 1, rows) is (step == "enrich")


@pytest.mark.parametrize("kind", [NullType(), ArrayType(NullType())])
def test_columns_that_no_file_holds_are_not_pinned(kind: DataType) -> None:
    assert not pins_rows([passage("sql")], 2, rows_of(kind))
