"""The limits of Spark's real-time mode."""

from types import SimpleNamespace

import pytest

from ottla.pipelines.model.sink_specs import SqliteSink, TopicSink
from ottla.pipelines.spark.realtime import (
    STEPS_ALLOWED,
    STEPS_REFUSED,
    cores_problem,
    sink_problem,
    step_problem,
    trigger_arguments,
)
from ottla.pipelines.steps.step_table import STEPS


@pytest.mark.parametrize(
    "name", ["filter", "select", "rename", "cast", "mask", "watermark", "explode", "parse", "join"]
)
def test_steps_over_single_rows_are_permitted(name: str) -> None:
    assert step_problem(name) is None


@pytest.mark.parametrize(
    "name", ["window", "deduplicate", "top", "associations", "anomalies", "order", "pattern", "stateful"]
)
def test_steps_with_state_are_refused(name: str) -> None:
    assert step_problem(name) == f"{name}: keeps state between rows, which needs a shuffle"


@pytest.mark.parametrize(
    ("format_name", "is_allowed"), [("json", True), ("csv", True), ("avro", False), ("grok", False)]
)
def test_formats_that_python_reads_are_refused(format_name: str, is_allowed: bool) -> None:
    assert (step_problem("parse", SimpleNamespace(format=format_name)) is None) is is_allowed


def test_a_stream_can_be_joined_with_a_table_but_not_with_a_stream() -> None:
    assert step_problem("join", SimpleNamespace(with_stream=None, table="pages.csv")) is None
    assert "keeps state" in str(step_problem("join", SimpleNamespace(with_stream="other")))


def test_every_step_that_exists_has_a_verdict() -> None:
    assert set(STEPS) == STEPS_ALLOWED | set(STEPS_REFUSED)
    assert not STEPS_ALLOWED & set(STEPS_REFUSED)


def test_a_classifier_is_refused_and_other_filters_are_not() -> None:
    assert step_problem("filter", SimpleNamespace(where="a > 1", classifier=None)) is None
    assert "runs Python" in str(step_problem("filter", SimpleNamespace(classifier=object())))


def test_rows_go_to_a_topic_at_least_once_in_a_format_that_java_writes() -> None:
    assert sink_problem(TopicSink(topic="t", delivery="at-least-once")) is None
    assert "at least once" in str(sink_problem(TopicSink(topic="t")))
    assert "runs Python" in str(sink_problem(TopicSink(topic="t", delivery="at-least-once", format="avro", schema="s")))
    assert "topics only" in str(sink_problem(SqliteSink(sqlite="x.db", table="t")))


def test_unknown_steps_are_refused() -> None:
    assert step_problem("surprise") == "surprise: not known to work in real-time mode"


@pytest.mark.parametrize(("partitions", "cores", "is_enough"), [(4, 4, True), (5, 4, False), (99, None, True)])
def test_there_must_be_a_core_for_each_partition(partitions: int, cores: int | None, is_enough: bool) -> None:
    assert (cores_problem(partitions, cores) is None) is is_enough


def test_the_cure_for_too_few_cores_can_be_typed() -> None:
    assert "--master 'local[5]'" in str(cores_problem(5, 4))


def test_checkpoints_come_no_more_often_than_spark_permits() -> None:
    assert trigger_arguments() == {"realTime": "5 seconds"}
    assert trigger_arguments(1) == {"realTime": "5 seconds"}
    assert trigger_arguments(60) == {"realTime": "60 seconds"}
