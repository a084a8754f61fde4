"""Steps without state on a real Spark: their results, the rows that they mark, and the reasons."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import ParseException, PySparkException
from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from tests.pipelines.frames import Around, fates, living, records, table, through, utc
from tests.unit.pipelines.expressions.test_safety import GOOD_EXPRESSIONS

from ottla.pipelines.expressions.texts import check_expression
from ottla.pipelines.expressions.tree import parse_expression, to_spark
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.steps.frame import FATE, REASON, Frame, source_frame
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = [("ann", 31, "a@x.org", 1.5), ("bob", None, "b@x.org", 2.5), ("cat", 17, None, float("nan"))]
SCHEMA = "name string, age int, email string, score double"


@pytest.fixture
def people(spark: SparkSession) -> Frame:
    return table(spark, PEOPLE, SCHEMA)


def test_filter_by_condition_expression_and_value(people: Frame) -> None:
    by_all = through(
        people,
        {"filter": {"where": "age > 18", "matches": {"email": r"@x\.(org|com)$"}, "equals": {"name": ["ann", "bob"]}}},
    )
    assert fates(by_all) == [(0, None), (1, None), (1, None)]
    with pytest.raises(StepError, match="there is no column 'mail'"):
        through(people, {"filter": {"equals": {"mail": "x"}}})


def test_text_that_looks_like_a_variable_of_spark_is_text(people: Frame) -> None:
    """Spark would put the environment of the process into it, and its settings, behind all that was looked at."""
    made = through(
        people,
        {"filter": {"where": "'${env:PATH}' = concat('$', '{env:PATH}')"}},
        {"derive": {"path": "'${env:PATH}'", "version": "r'${spark.app.name}'"}},
        {"sql": "SELECT path, version, '${system:user.home}' AS home FROM stream WHERE age > 18"},
    )
    assert living(made) == [{"path": "${env:PATH}", "version": "${spark.app.name}", "home": "${system:user.home}"}]


def test_rules_kill_what_breaks_them_and_nulls_break_them(people: Frame) -> None:
    ruled = through(people, {"rule": {"has an email": "email IS NOT NULL", "is of age": "age >= 18"}})
    assert fates(ruled) == [(0, None), (-1, "rule broken: is of age"), (-1, "rule broken: has an email")]


def test_columns_are_chosen_renamed_dropped_and_made(people: Frame) -> None:
    made = through(
        people,
        {"derive": {"year": "2026 - age", "old": "year < 2000"}},
        {"rename": {"name": "who"}},
        {"drop": ["email", "score"]},
        {"select": {"who": "upper(who)", "old": "old"}},
    )
    assert living(made) == [{"who": "ANN", "old": True}, {"who": "BOB", "old": None}, {"who": "CAT", "old": False}]
    for step in ({"select": ["nope"]}, {"drop": ["nope"]}, {"rename": {"nope": "x"}}, {"cast": {"nope": "int"}}):
        with pytest.raises(StepError, match="there is no column 'nope'"):
            through(people, step)


def test_casts_that_fail_kill_the_row_or_give_null(spark: SparkSession) -> None:
    frame = table(spark, [("1", "2026-01-02", b"ok"), ("x", "12:30", b"\xff")], "n string, at string, raw binary")
    types = {"n": "int", "at": "timestamp", "raw": "string"}
    assert living(through(frame, {"cast": types})) == [{"n": 1, "at": utc(2026, 1, 2), "raw": "ok"}]
    assert fates(through(frame, {"cast": types}))[1] == (-1, 'column `n`: "x" is no int')
    assert living(through(frame, {"cast": {"columns": types, "on_error": "null"}}))[1] == {
        "n": None,
        "at": None,
        "raw": None,
    }


def test_masks(people: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P_SALT", "pepper and salt")
    masked = through(
        people,
        {
            "mask": {
                "columns": {"name": "hash", "email": "last 4", "age": "null", "score": "redact"},
                "salt_env": "P_SALT",
            }
        },
    )
    rows = living(masked)
    assert [row["email"] for row in rows] == ["********.org", "********.org", None]
    assert {(row["age"], row["score"]) for row in rows} == {(None, "***")}
    assert len({row["name"] for row in rows}) == 3
    assert all(len(row["name"]) == 64 for row in rows)
    with pytest.raises(StepError, match="has no salt"):
        through(people, {"mask": {"columns": {"name": "hash"}, "salt_env": "P_NOT_THERE"}})


def test_structs_are_flattened_and_lists_exploded(spark: SparkSession) -> None:
    rows = [(1, ("x", (7,)), ["a", "b"], {"k": 1}), (2, None, [], {})]
    schema = "id int, place struct<city:string,at:struct<zip:int>>, items array<string>, tags map<string,int>"
    frame = table(spark, rows, schema)
    flat = through(frame, {"flatten": {}})
    assert flat.columns == ["id", "place_city", "place_at_zip", "items", "tags"]
    assert living(
        through(
            flat,
            {"explode": {"column": "items", "into": "item", "position": "n"}},
            {"select": ["id", "n", "item", "place_city"]},
        )
    ) == [
        {"id": 1, "n": 0, "item": "a", "place_city": "x"},
        {"id": 1, "n": 1, "item": "b", "place_city": "x"},
    ]
    entries = through(frame, {"select": ["id", "tags"]}, {"explode": {"column": "tags", "keep_empty": True}})
    assert living(entries) == [{"id": 1, "key": "k", "tags": 1}, {"id": 2, "key": None, "tags": None}]
    with pytest.raises(StepError, match="not a list or map"):
        through(frame, {"explode": "id"})


def test_exploded_rows_know_where_they_came_from(spark: SparkSession) -> None:
    frame = through(
        records(spark, [b'{"l":[1,2,-1]}']),
        {"parse": {"format": "json", "schema": "l array<int>"}},
        {"explode": {"column": "l"}},
        {"rule": {"positive": "l > 0"}},
    )
    assert [(row["_offset"], row["_value"], row[FATE]) for row in frame.rows.collect()] == [
        (0, b'{"l":[1,2,-1]}', 0),
        (0, b'{"l":[1,2,-1]}', 0),
        (0, b'{"l":[1,2,-1]}', -3),
    ]


def test_a_union_has_the_rows_and_columns_of_both(spark: SparkSession) -> None:
    left = through(records(spark, [b'{"a":1}', b"?"]), {"parse": {"format": "json", "schema": "a int"}})
    right = through(records(spark, [b'{"a":2,"b":"x"}']), {"parse": {"format": "json", "schema": "a int, b string"}})
    left.context.streams["other"] = right  # type: ignore[attr-defined]
    both = through(left.drop_marked(), {"union": "other"})
    assert living(both) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert "_offset" in both.rows.columns


def test_a_union_of_decimals_that_spark_would_round_is_refused(spark: SparkSession) -> None:
    left = through(records(spark, [b'{"a":1}']), {"parse": {"format": "json", "schema": "a decimal(38,0)"}})
    right = through(records(spark, [b'{"a":1.5}']), {"parse": {"format": "json", "schema": "a decimal(38,18)"}})
    left.context.streams["other"] = right  # type: ignore[attr-defined]
    with pytest.raises(StepError, match=r"a is decimal\(38,0\), and in stream other decimal\(38,18\)"):
        through(left.drop_marked(), {"union": "other"})


def test_a_sample_is_always_the_same_one(spark: SparkSession) -> None:
    frame = records(spark, [str(number).encode() for number in range(1000)])
    first = [row["offset"] for row in living(through(frame, {"sample": 0.3}))]
    again = [row["offset"] for row in living(through(frame, {"sample": 0.3}))]
    assert first == again
    assert 230 < len(first) < 370
    assert living(through(frame, {"sample": {"fraction": 0, "by": ["value"]}})) == []


# sql


def test_sql_filters_aggregates_and_joins(spark: SparkSession, people: Frame, tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("who,city\nann,Oslo\nbob,Bern\n")
    frame = table(spark, PEOPLE, SCHEMA, tmp_path)
    frame.context.streams["grown"] = people.drop_marked()  # type: ignore[attr-defined]
    query = """
        SELECT c.city, count(*) AS n, max(stream.age) AS oldest   -- one line for each city
        FROM stream JOIN cities c ON stream.name = c.who JOIN others o ON o.name = c.who
        GROUP BY c.city ORDER BY c.city
    """
    joined = through(
        frame, {"sql": {"query": query, "tables": {"cities": "cities.csv"}, "streams": {"others": "grown"}}}
    )
    assert living(joined) == [{"city": "Bern", "n": 1, "oldest": None}, {"city": "Oslo", "n": 1, "oldest": 31}]
    assert spark.catalog.listTables() == []


def test_the_same_sql_runs_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    spark.createDataFrame(PEOPLE, SCHEMA).write.json(str(tmp_path / "in" / "a"))
    rows = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in" / "*"))
    frame = source_frame(rows, Around(spark, str(tmp_path), is_streaming=True))
    made = through(
        frame,
        {"filter": "name <> 'cat'"},
        {"sql": "SELECT name, age + 1 AS next, '{}' AS braces FROM stream"},
        {"rule": {"known": "next > 0"}},
    )
    writer = made.drop_marked().rows.select("name", "next").writeStream.format("memory").queryName("p_sql_stream")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in spark.table("p_sql_stream").collect()] == [("ann", 32)]
    observed = query.recentProgress[0]["observedMetrics"]
    figures = [observed[name].asDict() for name in sorted(observed)]
    assert [(each["in"], each["out"]) for each in figures] == [(3, 2), (2, 1)]
    spark.catalog.dropTempView("p_sql_stream")


def test_spark_reads_every_good_expression_as_we_do(spark: SparkSession) -> None:
    for text in GOOD_EXPRESSIONS:
        try:
            F.expr(text)
        except ParseException as problem:
            pytest.fail(f"{text}: {problem}")


def test_strings_with_backslashes_end_where_spark_ends_them(spark: SparkSession) -> None:
    for text in ("'it\\'s'", "'it''s'", "r'it\\'", '"a\\"b"', "'a\\\\'"):
        assert check_expression(text) is None
        assert spark.sql(f"SELECT {to_spark(parse_expression(text))} AS x").count() == 1


def test_what_we_refuse_would_have_worked_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The reason for the strict checks: these attacks are real."""
    (tmp_path / "secret").write_text("s3cret\n")
    assert spark.sql(f"SELECT * FROM text.`{tmp_path}/secret`").collect()[0][0] == "s3cret"
    assert spark.sql("SELECT reflect('java.lang.Integer', 'toString', 5)").collect()[0][0] == "5"
    aliased = f"SELECT * FROM (SELECT 1) where (a), text.`{tmp_path}/secret`"
    assert spark.sql(aliased).collect()[0]["value"] == "s3cret"
    script = f"SELECT TRANSFORM(1) USING 'touch {tmp_path}/made'"
    assert spark.sql(script).count() == 0
    assert (tmp_path / "made").exists()


# python


def test_a_function_for_rows_kills_the_row_that_it_cannot_take(people: Frame, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "FACTOR = 2\n"
        "def double(row):\n"
        "    if row['name'] == 'cat':\n"
        "        return None\n"
        "    return {'name': row['name'], 'twice': FACTOR * row['age']}\n"
    )
    frame = Frame(people.rows, Around(people.context.spark, str(tmp_path)))
    made = through(frame, {"python": {"function": "mine:double", "each": "row", "schema": "name string, twice int"}})
    assert fates(made) == [
        (0, None),
        (-1, "mine.py:5: TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'"),
        (1, None),
    ]
    assert living(made) == [{"name": "ann", "twice": 62}]


def test_what_does_not_fit_the_schema_kills_the_row_too(people: Frame) -> None:
    answers: dict[str, Any] = {"ann": {"n": 2**40}, "bob": {"x": 1}, "cat": 5}
    made = through(people, {"python": {"function": lambda row: answers[row["name"]], "each": "row", "schema": "n int"}})
    reasons = [reason for _, reason in fates(made)]
    assert reasons[0].startswith("a value does not fit its type")
    assert reasons[1:] == ["the function returned an unknown column 'x'", "the function returned int, not a dict"]
    wrong: dict[str, Any] = {"ann": {"n": 1, "s": {"x": 1}}, "bob": {"n": 1.5, "s": None}, "cat": {"n": 2.0, "s": (1,)}}
    schema = "n int, s struct<x:int>"
    made = through(people, {"python": {"function": lambda row: wrong[row["name"]], "each": "row", "schema": schema}})
    assert fates(made)[:2] == [(0, None), (-1, "column 'n': 1.5 does not fit int32")]
    assert fates(made)[2][1] == "column 's': (1,) does not fit struct<x: int32>"
    partial = through(people, {"python": {"function": lambda row: {"name": row["name"]}, "each": "row"}})
    assert {reason for _, reason in fates(partial)} == {"the function did not return the column 'age'"}


def test_functions_for_batches_and_frames(people: Frame) -> None:
    by_batch = through(
        people, {"python": {"function": lambda rows: rows.assign(age=rows.age.fillna(0) + 1), "each": "batch"}}
    )
    assert [row["age"] for row in living(by_batch)] == [32, 1, 18]
    by_frame = through(people, {"python": {"function": lambda rows: rows.where("age > 20").select("name")}})
    assert living(by_frame) == [{"name": "ann"}]
    with pytest.raises(StepError, match="returned int, not a DataFrame"):
        through(people, {"python": {"function": lambda _: 5}})


def test_a_function_that_fails_is_named_with_step_file_and_line(people: Frame, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def f(rows):\n    return helper(rows)\ndef helper(rows):\n    raise KeyError('x')\n"
    )
    frame = Frame(people.rows, Around(people.context.spark, str(tmp_path)))
    with pytest.raises(StepError, match=r"^mine\.py:4: KeyError: 'x'$"):
        through(frame, {"python": {"function": "mine:f"}})
    with pytest.raises(PySparkException) as caught:
        living(through(frame, {"python": {"function": "mine:f", "each": "batch"}}))
    assert first_cause(str(caught.value)) == "main, step 1, python: mine.py:4: KeyError: 'x'"
    with pytest.raises(PySparkException) as caught:
        living(through(frame, {"python": {"function": lambda rows: rows[["name"]], "each": "batch"}}))
    assert first_cause(str(caught.value)) == "main, step 1, python: the function did not return the column 'age'"


def test_a_function_that_cannot_be_had_is_told(people: Frame, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "failing.py").write_text("x = 1\nx / 0\n")
    frame = Frame(people.rows, Around(people.context.spark, str(tmp_path)))
    for function, said in (
        ("nope:f", "there is no nope.py"),
        ("broken:f", "SyntaxError"),
        ("failing:f", r"failing cannot be loaded: failing\.py:2: ZeroDivisionError"),
        ("json:nope", "no function 'nope'"),
    ):
        with pytest.raises(StepError, match=said):
            through(frame, {"python": {"function": function}})


# models


def test_a_model_of_scikit_learn_keeps_its_class(spark: SparkSession, tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.LogisticRegression().fit(
        [[0.0, 0.0], [1.0, 0.0], [9.0, 5.0], [8.0, 6.0]], ["ham", "ham", "spam", "spam"]
    )
    joblib.dump(model, tmp_path / "spam.joblib")
    rows = [(0.5, 0), (9.0, 6), (None, 1), (float("nan"), 1)]
    frame = table(spark, rows, "length double, links int", tmp_path)
    chosen = {"model": "spam.joblib", "features": ["length", "links"], "keep": "ham"}
    expected = [(0, None), (1, None), (-1, "feature `length` is null"), (-1, "feature `length` is not a finite number")]
    assert fates(through(frame, {"filter": {"classifier": chosen}})) == expected
    assert fates(through(frame, {"filter": {"classifier": {**chosen, "threshold": 0.5}}})) == expected
    for wrong, said in (
        ({"keep": "eggs"}, "no class 'eggs'"),
        ({"features": ["links"]}, "wants 2 features"),
        ({"model": "x"}, "no model"),
    ):
        with pytest.raises(StepError, match=said):
            through(frame, {"filter": {"classifier": {**chosen, **wrong}}})
    (tmp_path / "other.joblib").write_bytes(pickle.dumps({"no": "model"}))
    with pytest.raises(StepError, match="has no predict"):
        through(frame, {"filter": {"classifier": {**chosen, "model": "other.joblib"}}})


def test_a_model_of_mllib_keeps_its_class(spark: SparkSession, tmp_path: Path) -> None:
    seen = [("de", 0.0, 0.0), ("de", 1.0, 0.0), ("us", 9.0, 1.0), ("us", 8.0, 1.0)]
    stages = [
        StringIndexer(inputCol="country", outputCol="country_number"),
        VectorAssembler(inputCols=["country_number", "size"], outputCol="features"),
        LogisticRegression(maxIter=5),
    ]
    model = Pipeline(stages=stages).fit(spark.createDataFrame(seen, "country string, size double, label double"))
    model.write().overwrite().save(str(tmp_path / "model"))
    frame = table(
        spark,
        [("de", 0.5), ("us", 9.5), ("xx", 1.0), (None, 1.0), ("de", None)],
        "country string, size double",
        tmp_path,
    )
    chosen = {
        "model": "model",
        "features": ["country", "size"],
        "keep": "good",
        "labels": ["good", "bad"],
        "threshold": 0.5,
    }
    kept = through(frame, {"filter": {"classifier": chosen}})
    assert [fate for fate, _ in fates(kept)] == [0, 1, -1, -1, -1]
    assert [row[REASON] for row in kept.rows.collect()][2:] == [
        "feature `country` has a value that the model was not trained with",
        "feature `country` is null",
        "feature `size` is null",
    ]
    assert kept.columns == ["country", "size"]


def test_dates_stay_dates(spark: SparkSession) -> None:
    frame = table(spark, [("2026-01-02",), ("2026-13-01",)], "day string")
    assert living(through(frame, {"cast": {"day": "date"}})) == [{"day": date(2026, 1, 2)}]
