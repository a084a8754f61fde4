"""Random pairs of an expression and a record: `raises` agrees with plain Spark (failing_pairs.py).

`pytest -m faults tests/pipelines/test_failing_pairs.py` compares 20,000 pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipelines.failing_pairs import disagreements
from tests.pipelines.test_on_error import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 10


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_pair_fails_exactly_if_it_fails_alone(spark: SparkSession, is_compiled: bool) -> None:
    with settings(spark, is_compiled):
        wrong, failing = disagreements(spark, int(is_compiled), expressions=20, count=RECORDS)
    assert wrong == []
    assert 20 < failing < 180  # both kinds are there


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(2, 52))
def test_many_pairs_fail_exactly_if_they_fail_alone(spark: SparkSession, seed: int) -> None:
    with settings(spark, is_compiled=seed % 2 == 0):
        wrong, _ = disagreements(spark, seed, expressions=40, count=RECORDS)
    assert wrong == []
