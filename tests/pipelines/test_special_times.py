"""'now' and 'today' as times: Spark uses one value for all rows, so every expression refuses them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.running import pipeline_of
from tests.pipelines.test_sql_command import Prompt, prompt  # noqa: F401 (a fixture)

from ottla.pipelines import topic
from ottla.pipelines.expressions.texts import check_condition, check_expression
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Builder
from ottla.pipelines.running.realtime import check_realtime
from ottla.pipelines.running.special_times import special_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "timestamp '2026-01-01 00:00:00' AS at", "date '2026-01-01' AS day", "'now' AS text", "id"
REFUSED = [
    "cast('now' as timestamp)",
    "cast(concat('n', 'ow') as timestamp)",
    "CAST(' Today ' AS DATE)",
    "'now'::timestamp",
    "try_cast('yesterday' as timestamp_ntz)",
    "cast('today UTC' as timestamp)",
    "cast('yesterday Asia/Tokyo' as timestamp)",
    "to_timestamp('now')",
    "try_to_timestamp('now')",
    "to_timestamp_ntz('now')",
    "to_date('today')",
    "date('now')",
    "timestamp('now')",
    "at > 'now'",
    "day BETWEEN 'yesterday' AND 'today'",
    "at IN ('now', '2026-01-01')",
    "date_add('today', 1)",
    "coalesce(at, upper('now'))",
    "CASE WHEN id > 3 THEN day ELSE 'tomorrow' END",
    "transform(array(at), x -> x > 'now')",
]
ALLOWED = [
    "cast('epoch' as timestamp)",
    "cast('2026-01-01' as date)",
    "try_cast(text as timestamp)",  # a column: null where it says 'now'
    "text = 'now'",
    "upper('today')",
    "cast(null as timestamp)",
    "current_timestamp()",  # of the batch, and the same when it is repeated
]
FILE = """\
name: frozen
bootstrap.servers: 127.0.0.1:1
from: {topic: events}
steps:
  - parse: {format: json, schema: {id: long, at: timestamp}}
"""
STEPS = [
    "- derive: {x: cast(lower('NOW') as timestamp)}",
    "- filter: at > 'yesterday'",
    "- filter: {equals: {at: today}}",
    "- rule: {fresh: at > 'yesterday'}",
    "- select: {columns: {x: to_date(lower('TODAY'))}}",
    "- sql: SELECT * FROM stream WHERE at > cast(lower('now') as timestamp)",
    "- sql: SELECT *, (SELECT to_date(lower('TODAY'))) AS day FROM stream",
    "- window: {total: true, by: [id], aggregates: {n: count_if(at > 'now')}}",
]
EXAMPLE = re.compile(r"> (SELECT[^;]*);")
# Constants of the session, and a function that only has one of them for an argument that is left out.
NOT_CLOCKS = {
    *("current_catalog", "current_database", "current_path", "current_schema", "current_timezone", "current_user"),
    *("session_user", "user", "convert_timezone"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_becomes_the_time_of_the_query_is_found(spark: SparkSession, text: str) -> None:
    found = special_time(spark.range(1).selectExpr(*COLUMNS).selectExpr(f"{text} AS x"))
    assert found is not None
    assert found[0].strip().lower().startswith(("now", "today", "tomorrow", "yesterday"))


@pytest.mark.parametrize("text", ALLOWED)
def test_other_texts_and_columns_are_left_alone(spark: SparkSession, text: str) -> None:
    assert special_time(spark.range(1).selectExpr(*COLUMNS).selectExpr(f"{text} AS x")) is None


@pytest.mark.parametrize("step", STEPS)
def test_every_step_with_an_expression_refuses_a_frozen_time(spark: SparkSession, step: str) -> None:
    with pytest.raises(PipelineError) as wrong:
        Builder(spark, pipeline_of(f"{FILE}  {step}\nto: {{console: 5}}\noutput: update\n")).query("main")
    (problem,) = wrong.value.problems
    assert "once for all rows" in problem.text()
    assert problem.path[:3] == ("steps", 1, next(iter(re.findall(r"\w+", step))))


def test_a_sink_refuses_a_frozen_time(spark: SparkSession) -> None:
    pipeline = pipeline_of(f"{FILE}to: {{console: 5, where: at > 'today'}}\n")
    with pytest.raises(PipelineError, match="once for all rows"):
        Builder(spark, pipeline).query("main")


def test_a_pipeline_that_is_written_in_python_refuses_a_frozen_time(spark: SparkSession) -> None:
    stream = (
        topic("events").parse(format="json", schema={"id": "long"}).derive(columns={"x": "to_date(lower('TODAY'))"})
    )
    with pytest.raises(PipelineError, match="once for all rows"):
        stream.frame(spark, bootstrap_servers="127.0.0.1:1")


def test_sql_and_create_pipeline_refuse_a_frozen_time(prompt: Prompt) -> None:  # noqa: F811
    prompt.write("orders", [{"id": 1}])
    for text in (
        "SELECT id, cast(lower('now') as timestamp) AS at FROM orders$",
        "SELECT id, cast(lower('now') as timestamp) AS at FROM orders$ EMIT CHANGES",
    ):
        assert "once for all rows" in prompt.refused(text)
    assert "when the query starts" in prompt.refused("SELECT id, TIMESTAMP 'now' AS at FROM orders$")


def test_every_function_of_spark_that_asks_a_clock_or_chance_is_known(spark: SparkSession) -> None:
    """By the examples in Spark's own description of its functions."""
    current = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    checked = 0
    for (name,) in spark.sql("SHOW FUNCTIONS").collect():
        if not name[0].isalpha() or name in NOT_CLOCKS:
            continue
        described = "\n".join(line for (line,) in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
        for example in EXAMPLE.findall(described):
            try:
                plan = spark.sql(example)._jdf.queryExecution().analyzed()
            except Exception:  # noqa: BLE001 (examples of features that are switched off)
                continue
            checked += 1
            text = example.removeprefix("SELECT ")
            assert plan.deterministic() or check_expression(text), example
            assert not plan.containsPattern(current) or check_condition(text), example
    assert checked > 500


def test_real_time_mode_refuses_a_clock_in_a_column(spark: SparkSession) -> None:
    """Its batches last: all rows of one would have the same time."""
    text = "  - derive: {x: id + 1, seen: current_timestamp()}\nto: {topic: out, delivery: at-least-once}\n"
    pipeline = pipeline_of(f"latency: realtime\n{FILE}{text}")
    with pytest.raises(PipelineError) as wrong:
        check_realtime(spark, pipeline, pipeline.streams["main"], {})
    assert [problem.cause for problem in wrong.value.problems] == [
        "seen: real-time mode has one time for all rows between two checkpoints"
    ]
