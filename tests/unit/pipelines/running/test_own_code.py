"""Pipelines that may need more of Spark than their steps show."""

import pytest

from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.running.own_code import has_own_code
from ottla.pipelines.steps.step_table import STEPS

PLAIN = {"name": "x", "from": {"topic": "x"}, "to": "console"}
MODEL = {"model": "m.joblib", "features": ["n"], "keep": ["a"]}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, False),
        ({"steps": [{"filter": {"where": "n > 1"}}, {"sql": "SELECT * FROM stream"}]}, False),
        ({"spark": {"spark.driver.memory": "2g"}}, False),
        ({"steps": [{"filter": {"classifier": MODEL}}]}, True),
        ({"to": {"foreach_batch": "f.py:f"}}, True),
        ({"spark": {"spark.sql.catalogImplementation": "hive"}}, True),
    ],
)
def test_user_code_and_models_are_found(more: dict[str, object], expected: bool) -> None:
    assert has_own_code(read_pipeline({**PLAIN, **more}, STEPS)) is expected
