"""Names in the result of a query must be unique."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.sql import equal_name

TWO = T.StructType().add("x", T.IntegerType()).add("x", T.IntegerType())
ONE = T.StructType().add("x", T.IntegerType()).add("X", T.IntegerType())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (T.LongType(), None),
        (ONE, None),
        (TWO, "x"),
        (T.StructType().add("a", T.ArrayType(TWO)), "x"),
        (T.MapType(T.StringType(), TWO), "x"),
        (T.MapType(TWO, T.StringType()), "x"),
        (T.StructType().add("a", ONE).add("b", ONE), None),
    ],
)
def test_equal_names_are_found_at_any_depth(kind: T.DataType, name: str | None) -> None:
    assert equal_name(kind) == name
