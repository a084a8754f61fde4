"""Failures that concern a value, and the search for the failing record."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.problems import Problem
from ottla.pipelines.running.checkpoint import Checkpoint
from ottla.pipelines.running.failed_record import FailedRecord, Piece, halves, is_of_value, ranges_of_batch
from ottla.pipelines.steps.step_table import STEPS

ENRICH = "steps:\n  - enrich: {http: 'http://h/{id}', schema: {a: long}}\n"
VALUES = [
    "pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'abc'",
    "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero",
    "org.apache.spark.SparkDateTimeException: [CAST_INVALID_INPUT] The value",
    "SparkRuntimeException: [DUPLICATED_MAP_KEY] Duplicate map key",
]
OTHERS = [
    "SinkError: table t: NumberFormatException: [X] is what the database says",
    "SparkException: [STREAM_FAILED] terminated",
    "SparkRuntimeException: [CANNOT_LOAD_STATE_STORE.X] An error occurred",
    "java.io.IOException: No space left on device",
    "DataLossError: records are gone; NumberFormatException: [X]",
]


def read(steps: str = "") -> Pipeline:
    text = f"name: views\nfrom: {{topic: site}}\n{steps}to: console\n"
    return read_pipeline(parse_document(text, "p.yaml").values, STEPS)


@pytest.mark.parametrize("words", VALUES)
def test_a_value_is_to_blame(words: str) -> None:
    assert is_of_value(RuntimeError(words), read())
    assert is_of_value(RuntimeError(words), read(ENRICH))


@pytest.mark.parametrize("words", OTHERS)
def test_no_record_is_searched_for_where_something_else_is_to_blame(words: str) -> None:
    assert not is_of_value(RuntimeError(words), read())


def test_a_user_function_is_called_again_and_a_service_is_not() -> None:
    failed = RuntimeError("pyspark.errors.exceptions.captured.PythonException: ValueError: bad")
    assert is_of_value(failed, read())
    assert not is_of_value(failed, read(ENRICH))


def test_halves_have_all_records_once_and_end_at_one() -> None:
    pieces = [Piece("a", 0, 5, 12), Piece("a", 1, 0, 1), Piece("b", 0, 3, 9)]
    records = {(topic, n, at) for topic, n, first, end in pieces for at in range(first, end)}
    found = set()
    waiting = [pieces]
    while waiting:
        some = waiting.pop()
        count = sum(end - first for _, _, first, end in some)
        if count == 1:
            found.add(some[0][:3])
            continue
        parts = halves(some)
        sizes = [sum(end - first for _, _, first, end in half) for half in parts]
        assert sizes == [count // 2, count - count // 2]
        waiting += parts
    assert found == records


def test_the_batch_that_has_failed_is_the_one_that_was_begun(tmp_path: Path) -> None:
    start = {"site": {0: 3}}
    assert ranges_of_batch(Checkpoint(None, str(tmp_path)), start) == {}
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"site":{"0":10}}')
    assert ranges_of_batch(Checkpoint(None, str(tmp_path)), start) == {"site": {0: (3, 10)}}
    assert ranges_of_batch(Checkpoint(None, str(tmp_path)), None) == {}
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert ranges_of_batch(Checkpoint(None, str(tmp_path)), start) == {}
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"site":{"0":10,"1":4}}')
    assert ranges_of_batch(Checkpoint(None, str(tmp_path)), start) == {"site": {1: (0, 4)}}


def test_the_message_names_the_record_and_how_to_go_on() -> None:
    found = FailedRecord("main", "step 2 (derive)", [Piece("site", 1, 7, 8)])
    text = found.named_in(Problem(("steps",), "The value 'abc' is bad.")).text()
    assert "The value 'abc' is bad (stream main, step 2 (derive), topic site, partition 1, offset 7); " in text
    assert "NOT (topic = 'site' AND partition = 1 AND offset = 7)" in text
    several = FailedRecord("main", "", [Piece("site", 1, 0, 4)]).named_in(Problem((), "overflow")).text()
    assert "(stream main, topic site, partition 1, offsets 0 to 3)" in several
    assert "filter" not in several
