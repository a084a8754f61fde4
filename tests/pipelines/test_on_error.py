"""`on_error`: a row with which an expression fails dies, has a null, or ends the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.frames import fates, living, problems_of, records, table, through
from tests.pipelines.running import produce, read_all

from ottla.pipelines.steps import failing_values
from ottla.pipelines.steps.frame import SOURCE_RECORD, Frame
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {id: long, n: string}}
"""
STEPS = {
    "derive": ("{v: cast(n as int)}", "cast(n as int) fails"),
    "filter": ("cast(n as int) > 0", "cast(n as int) > 0 fails"),
    "rule": ("{positive: cast(n as int) > 0}", "cast(n as int) > 0 fails"),
    "select": ("{columns: {v: 100 / cast(n as int)}}", "100 / cast(n as int) fails"),
}
NOT_EVALUATED = (
    "if(n = '1', cast(n as int), 0)",
    "coalesce(i, cast(n as int))",
    "CASE WHEN n = '1' THEN cast(n as int) ELSE 0 END",
    "n = '1' AND cast(n as int) = 1",
    "n <> '1' OR cast(n as int) = 1",
    "nvl2(i, 1, cast(n as int))",
)
EVALUATED = (
    "array(cast(n as int))",
    "named_struct('a', cast(n as int))",
    "named_struct('a', array(named_struct('b', cast(n as int))))",
    "transform(array(n), x -> cast(x as int))",
    "exists(array(n), x -> cast(x as int) > 0)",
    "1 / (i - 2)",
    "array(5, 6)[i]",
    "9223372036854775806L + i",
    "to_date(n, 'd')",
    "cast(coalesce(n, '') as int)",
)


def _with_origin(frame: Frame) -> Frame:
    return replace(frame, rows=frame.rows.withColumn("_offset", F.lit(0)))


@contextmanager
def settings(spark: SparkSession, is_compiled: bool) -> Iterator[None]:
    """Plans that are compiled to Java, as in a run, or interpreted, as in other tests."""
    wanted = {
        "spark.sql.codegen.wholeStage": str(is_compiled).lower(),
        "spark.sql.codegen.factoryMode": "FALLBACK" if is_compiled else "NO_CODEGEN",
    }
    before = {key: spark.conf.get(key) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


@pytest.mark.parametrize("step", STEPS)
def test_a_record_with_which_an_expression_fails_is_a_dead_letter(command: Command, step: str) -> None:  # noqa: F811
    topic = command.make_topic(2)
    produce(command.bootstrap, topic, [{"id": n, "n": str(n + 1)} for n in range(50)], partition=0)
    produce(command.bootstrap, topic, [{"id": n, "n": "abc" if n == 7 else "1"} for n in range(20)], partition=1)
    fields, reason = STEPS[step]
    command.write(f'{FILE}  - {step}: {fields}\nto: {{topic: "{{name}}-out"}}\n')
    done = command.run()
    assert (done.code, done.steps[f"main {step}"]["dead"], done.steps[f"main {step}"]["kept"]) == (0, 1, 69), done
    assert len(read_all(command.bootstrap, f"{command.name}-out")) == 69
    (letter,) = read_all(command.bootstrap, f"{command.name}-dead-letters")
    assert letter.json == {"id": 7, "n": "abc"}
    told = {name.removeprefix("ottla."): text for name, text in letter.headers.items()}
    assert (told["step"], told["reason"]) == (f"main 2 {step}", f'{reason} with n = "abc"')
    assert (told["topic"], told["partition"], told["offset"]) == (topic, "1", "7")


def test_a_run_over_the_whole_history_sends_the_same_letter(command: Command) -> None:  # noqa: F811
    topic = command.make_topic()
    produce(command.bootstrap, topic, [{"id": n, "n": "abc" if n == 7 else "1"} for n in range(20)])
    command.write(f'{FILE}  - derive: {{v: cast(n as int)}}\nto: {{topic: "{{name}}-out"}}\n')
    done = command.run("--from", "beginning")
    assert (done.code, done.steps["main derive"]["dead"]) == (0, 1)
    assert [letter.json["id"] for letter in read_all(command.bootstrap, f"{command.name}-dead-letters")] == [7]


def test_a_pipeline_whose_input_is_broken_ends(command: Command) -> None:  # noqa: F811
    topic = command.make_topic()
    produce(command.bootstrap, topic, [{"id": n, "n": "abc" if n % 2 else "1"} for n in range(200)])
    command.write(f'{FILE}  - derive: {{v: cast(n as int)}}\nmax_dead: 5 %\nto: {{topic: "{{name}}-out"}}\n')
    assert "100 of 200 rows are dead (50 %), more than max_dead: 5 % allows" in command.run().errors[-1]


@pytest.mark.parametrize("expression", NOT_EVALUATED)
def test_a_branch_that_is_not_evaluated_kills_nothing(spark: SparkSession, expression: str) -> None:
    frame = table(spark, [("abc", 1), ("1", 1)], "n string, i int")
    made = through(_with_origin(frame), {"derive": {"v": expression}})
    assert [fate for fate, _ in fates(made)] == [0, 0]


@pytest.mark.parametrize("expression", EVALUATED)
@pytest.mark.parametrize("is_compiled", [True, False])
def test_failures_inside_of_values_count(spark: SparkSession, expression: str, is_compiled: bool) -> None:
    """Also of expressions that are never null, and of parts that two columns share."""
    frame = _with_origin(table(spark, [("abc", 2), ("1", 1), ("3", 1)], "n string, i int"))
    with settings(spark, is_compiled):
        made = through(frame, {"derive": {"columns": {"v": expression, "w": expression, "z": f"array({expression})"}}})
        assert [fate for fate, _ in fates(made)] == [-1, 0, 0]
        assert len(living(made)) == 2
        nulls = through(
            frame, {"derive": {"columns": {"v": expression, "z": f"array({expression})"}, "on_error": None}}
        )
        assert [row["v"] is None for row in living(nulls)] == [True, False, False]


@pytest.mark.parametrize(
    "expression",
    ["map('a', 1, 'b', cast(n as int))", "MAP (n, 1)", "str_to_map(n)", "to_json(m)", "format_number(1.5D, n)"],
)
def test_functions_that_keep_something_between_rows_are_not_tried(spark: SparkSession, expression: str) -> None:
    """`map('a', 1, 'b', cast(n as int))` fails with a row half-way: 'a' would be a duplicate in the next one."""
    frame = _with_origin(table(spark, [("abc", {"a": 1}), ("1", {"a": 1})], "n string, m map<string,int>"))
    for on_error in ("dead", None):
        with pytest.raises(StepError, match=r"keeps something between rows; compute what can fail in a column"):
            through(frame, {"derive": {"columns": {"v": expression}, "on_error": on_error}})
    before = {"derive": {"w": "cast(n as int)"}}
    after = {"derive": {"v": "map('a', 1, 'b', w)"}}
    assert living(through(frame, before, after)) == [{"n": "1", "m": {"a": 1}, "w": 1, "v": {"a": 1, "b": 1}}]


@pytest.mark.parametrize("text", ["`current_timestamp`", "concat(`current_time`, n)", "current_user"])
def test_a_missing_column_is_not_read_as_the_clock_or_the_session(spark: SparkSession, text: str) -> None:
    frame = _with_origin(table(spark, [("abc",)], "n string"))
    with pytest.raises(StepError, match="there is no column"):
        through(frame, {"derive": {"v": text}})


def test_a_column_that_is_named_like_the_clock_is_read(spark: SparkSession) -> None:
    frame = _with_origin(table(spark, [("abc", "x")], "current_user string, `current_timestamp` string"))
    assert living(through(frame, {"derive": {"v": "concat(current_user, `current_timestamp`)"}}))[0]["v"] == "abcx"


def test_columns_that_are_only_renamed_are_not_tried(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = _with_origin(table(spark, [("abc",)], "n string"))
    tried: list[Column] = []
    raises = failing_values.raises
    monkeypatch.setattr(failing_values, "raises", lambda value: tried.append(value) or raises(value))
    through(frame, {"select": {"columns": {"v": "`n`"}}})
    assert not tried
    through(frame, {"select": {"columns": {"v": "upper(n)"}}})
    assert len(tried) == 1


def test_a_column_whose_name_looks_like_the_expression_is_another_one(spark: SparkSession) -> None:
    frame = _with_origin(table(spark, [(7, 1, 0), (7, 4, 2)], "`a / b` int, a int, b int"))
    assert [fate for fate, _ in fates(through(frame, {"derive": {"x": "a / b"}}))] == [-1, 0]


def test_later_columns_see_what_earlier_ones_have_become(spark: SparkSession) -> None:
    frame = _with_origin(table(spark, [("abc",), ("4",)], "n string"))
    columns = {"v": "cast(n as int)", "w": "v + 1", "n": "v * 2"}
    assert living(through(frame, {"derive": columns})) == [{"n": 8, "v": 4, "w": 5}]
    nulls = through(frame, {"derive": {"columns": columns, "on_error": "null"}})
    assert living(nulls) == [{"n": None, "v": None, "w": None}, {"n": 8, "v": 4, "w": 5}]


def test_null_filters_rows_whose_condition_fails(spark: SparkSession) -> None:
    frame = _with_origin(table(spark, [("abc",), ("4",), ("0",)], "n string"))
    for step in ({"filter": {"where": "1 / cast(n as int) > 0"}}, {"filter": {"equals": {"n": 4}}}):
        assert [fate for fate, _ in fates(through(frame, step))] == [-1, 0, -1 if "where" in step["filter"] else 1]
        ((name, fields),) = step.items()
        assert [fate for fate, _ in fates(through(frame, {name: {**fields, "on_error": "null"}}))] == [1, 0, 1]
    rule = {"rule": {"rules": {"large": "cast(n as int) > 0"}, "on_error": "null"}}
    assert fates(through(frame, rule))[0] == (-1, "rule broken: large")


def test_rows_without_a_record_of_their_own_end_the_run(spark: SparkSession) -> None:
    frame = table(spark, [("abc",)], "n string")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        living(through(frame, {"derive": {"v": "cast(n as int)"}}))
    with pytest.raises(StepError, match=r"no record that could become a dead letter.*on_error: null"):
        through(frame, {"derive": {"columns": {"v": "cast(n as int)"}, "on_error": "dead"}})
    assert living(through(frame, {"derive": {"columns": {"v": "cast(n as int)"}, "on_error": "null"}}))[0]["v"] is None


def test_an_expression_that_asks_for_the_time_ends_the_run_if_the_step_says_nothing(spark: SparkSession) -> None:
    frame = records(spark, ["x"])
    frame = frame.with_columns({"n": F.lit("1")})
    columns = {"v": "date_add(current_date(), cast(n as int))"}
    assert living(through(frame, {"derive": columns}))
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        living(through(frame, {"derive": {"v": "date_add(current_date(), cast(topic as int))"}}))
    chosen = through(frame, {"derive": {"columns": columns, "on_error": "dead"}})
    assert SOURCE_RECORD in chosen.rows.columns  # the letter comes with the batch, in which the time is known


def test_behind_deduplicate_letters_come_with_the_batch_if_the_step_says_so(command: Command) -> None:  # noqa: F811
    topic = command.make_topic()
    steps = "  - deduplicate: {by: [id], within: 1 hour}\n  - derive: {columns: {v: cast(n as int)}ON_ERROR}\n"
    text = f'{FILE}{steps}to: {{topic: "{{name}}-out"}}\n'
    produce(command.bootstrap, topic, [{"id": n, "n": "1"} for n in range(3)])
    command.write(text.replace("ON_ERROR", ", on_error: dead"))
    assert command.run().code == 0
    produce(command.bootstrap, topic, [{"id": n, "n": "abc"} for n in range(5)])
    done = command.run()
    assert (done.code, done.steps["main derive"]["dead"]) == (0, 2), done
    letters = read_all(command.bootstrap, f"{command.name}-dead-letters")
    assert [letter.json["id"] for letter in letters] == [3, 4]  # 0 to 2 were known before
    produce(command.bootstrap, topic, [{"id": 7, "n": "abc"}])
    command.write(text.replace("ON_ERROR", ""))
    assert "offset 8); change the expression" in command.refused()


def test_how_on_error_is_written() -> None:
    columns = {"a": "int"}
    for value in ("dead", "null", "fail", "die", None):
        assert problems_of("cast", {"columns": columns, "on_error": value}) == []
    assert "dead, null, fail" in problems_of("derive", {"columns": {"a": "1"}, "on_error": "stop"})[0]
