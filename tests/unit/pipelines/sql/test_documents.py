"""A SELECT over tables becomes an ordinary pipeline document; positions map back to the user's text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.pipelines.expressions.problems import SqlError, UnknownTableError
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.source.data_loss import LOSS_HINT
from ottla.pipelines.sql.completion import candidates
from ottla.pipelines.sql.documents import Head, document_of, late_words, output_of, tables_in, without_limit
from ottla.pipelines.sql.execution import records_per_task, without_checkpoints
from ottla.pipelines.sql.losses import Losses, count_losses
from ottla.pipelines.sql.tables import Table, stream_of
from ottla.pipelines.steps.step_table import STEPS

ORDERS = Table("orders", "orders", columns={"id": "bigint", "at": "timestamp"}, event_time="AT", delay="5 seconds")
CUSTOMERS = Table("customers", "people", columns={"id": "bigint"}, key=("id",))
VIEWS = Table("page-views", "page-views", "csv", {"c1": "string"}, parsing={"delimiter": ";"})
TABLES = {"orders": ORDERS, "customers": CUSTOMERS, "page-views": VIEWS}


def document(text: str, **details: Any) -> Any:
    query, names = tables_in(text, TABLES)
    made = document_of(query, {name: TABLES[name] for name in names}, Head("b:1"), **details)
    read_pipeline(made, STEPS)  # it is valid
    return made


def test_one_table_is_the_stream() -> None:
    made = document("SELECT id FROM Orders WHERE orders.id > 1")
    assert made["streams"]["orders"] == {
        "from": {"topic": "orders"},
        "steps": [
            {"parse": {"format": "json", "schema": dict(ORDERS.columns), "tombstone": "filter"}},
            {"watermark": {"time": "at", "delay": "5 seconds"}},
        ],
    }
    step = made["streams"]["result"]["steps"][0]["sql"]
    assert step == {"query": "SELECT id FROM stream AS `orders` WHERE orders . id > 1"}


def test_other_tables_are_streams_and_those_with_a_key_are_the_newest_rows() -> None:
    made = document("SELECT o.id FROM customers c JOIN orders o ON o.id = c.id JOIN `page-views` ON c1 = 'x'")
    result = made["streams"]["result"]
    assert result["from"] == "orders"
    step = result["steps"][0]["sql"]
    assert step["streams"] == {"page_views": "page_views"}
    assert step["newest_of"] == {"customers": ["id"]}
    assert "FROM customers AS c JOIN stream AS o" in step["query"]
    assert "JOIN page_views AS `page-views`" in step["query"]


def test_a_key_that_only_the_record_has_is_read_from_there() -> None:
    table = Table("users", "users", columns={"id": "bigint", "n": "int"}, key=("id",), in_record_key="id")
    steps = stream_of(table)["steps"]
    assert isinstance(steps, list)
    assert steps[0] == {"derive": {"rowkey": "cast(key AS string)"}}
    rules = {
        "the key of the record is no bigint": "`id` IS NOT NULL OR rowkey IS NULL",
        "id is null": "`id` IS NOT NULL",
    }
    key = {"derive": {"id": "coalesce(`id`, try_cast(rowkey AS bigint))"}}
    assert steps[2:] == [key, {"rule": rules}, {"drop": "rowkey"}]
    strict: Any = stream_of(replace(table, required=("id", "n")))["steps"]
    assert strict[1]["parse"]["required"] == ["n"]  # id may be in the key only
    assert {"drop": "rowkey"} not in stream_of(table, ["rowkey"])["steps"]  # type: ignore[operator]


def test_tables_with_a_key_alone() -> None:
    made = document("SELECT * FROM customers")
    assert made["streams"]["result"]["from"] == "customers"
    assert made["streams"]["result"]["steps"][0]["sql"]["newest_of"] == {"customers": ["id"]}


def test_record_columns_exist_for_queries_that_name_them() -> None:
    steps: Any = stream_of(VIEWS, {"rowtime", "c1"})["steps"]
    assert steps[0] == {"derive": {"rowtime": "timestamp"}}
    assert steps[1]["parse"]["keep"] == ["rowtime"]
    assert steps[1]["parse"]["delimiter"] == ";"
    own = Table("t", "t", columns={"RowTime": "bigint"})
    assert len(stream_of(own, {"rowtime"})["steps"]) == 1  # type: ignore[arg-type]
    timed: Any = stream_of(Table("t", "t", columns={"a": "int"}, event_time="ROWTIME"))["steps"]
    assert timed[-1] == {"watermark": {"time": "rowtime", "delay": "10 seconds"}}


@pytest.mark.parametrize("name", ["stream", "result", "select", "1st", "__x", "a.b", "värde", "table", "where"])
def test_topics_of_any_name_can_be_read(name: str) -> None:
    table = Table(name, name, columns={"a": "int"})
    query, names = tables_in(f"SELECT a FROM `{name}`", [name])
    read_pipeline(document_of(query, {name: table}, Head("b:1")), STEPS)
    query, names = tables_in(f"SELECT o.a FROM orders o JOIN `{name}` x ON o.a = x.a", [name, "orders"])
    assert names == ["orders", name]
    read_pipeline(document_of(query, {"orders": ORDERS, name: table}, Head("b:1")), STEPS)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(UnknownTableError) as unknown:
        tables_in("SELECT 1 FROM orders, fish", TABLES)
    assert (unknown.value.name, unknown.value.at) == ("fish", 22)
    for text in ("SELECT 1", "SELECT 1 FROM stream", "SELECT 1 FROM parquet.`/etc/passwd`", "SELECT reflect('a')"):
        with pytest.raises(SqlError):
            tables_in(text, TABLES)


def test_a_position_in_sparks_text_maps_to_the_users_text() -> None:
    text = "SELECT id,\n  nope -- a comment\nFROM   orders"
    query, _ = tables_in(text, TABLES)
    sparks = "SELECT id , nope FROM view_3f9a AS `orders`"
    assert query.origin(sparks, sparks.index("nope")) == text.index("nope")
    assert query.origin(sparks, sparks.index("view_")) == text.index("orders")
    assert query.origin(sparks, 1000) is None


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("SELECT id FROM orders", "append"),
        ("SELECT count(*) FROM orders GROUP BY id", "update"),
        ("SELECT count(*) FROM orders GROUP BY window(at, '1 minute')", "append"),
        ("SELECT count(*) FROM `page-views` GROUP BY window(rowtime, '1 minute')", "update"),
    ],
)
def test_the_output_mode_of_a_pipeline(text: str, output: str) -> None:
    query, names = tables_in(text, TABLES)
    assert output_of(query, [TABLES[name] for name in names]) == output


@pytest.mark.parametrize(
    ("text", "left", "limit"),
    [
        ("SELECT a FROM t LIMIT 3", "SELECT a FROM t ", 3),
        ("SELECT a FROM t", "SELECT a FROM t", None),
        ("SELECT a FROM t ORDER BY a LIMIT 3", "SELECT a FROM t ORDER BY a LIMIT 3", None),
        ("SELECT a FROM t LIMIT 3 OFFSET 2", "SELECT a FROM t LIMIT 3 OFFSET 2", None),
        ("SELECT a FROM (SELECT a FROM t LIMIT 3)", "SELECT a FROM (SELECT a FROM t LIMIT 3)", None),
    ],
)
def test_a_limit_at_the_end_is_taken_from_outside(text: str, left: str, limit: int | None) -> None:
    assert without_limit(text) == (left, limit)


def test_tasks_are_small_but_not_too_many() -> None:
    assert records_per_task(1_000_000, False) == 100_000
    assert records_per_task(1_000_000, True) == 10_000
    assert records_per_task(10**9, True) == 2_000_000


def test_losses_of_all_observations_are_summed() -> None:
    observed = [{"in": 5, "out": 2, "dead_1": 2, "filtered_1": 1}, {"in": 2, "dead_2": None}, {}]
    assert count_losses(observed) == Losses(unreadable=2, empty=1)


@pytest.mark.parametrize(
    ("before", "begun", "found"),
    [
        ("", "se", ["SELECT ", "SET "]),
        ("SHOW TABLES; ", "hel", ["HELP "]),
        ("SELECT * FROM ", "", ["orders ", "`page-views` "]),
        ("SHOW ", "t", ["TABLES;", "TOPICS;"]),
        ("SELECT ", "am", ["amount "]),
        ("SELECT ", "co", ["count("]),
    ],
)
def test_completion(before: str, begun: str, found: list[str]) -> None:
    assert candidates(before, begun, ["orders", "page-views"], ["amount"]) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT id FROM orders", "2 rows came later than the watermark allows: not in the result"),
        ("SELECT 1 FROM orders GROUP BY session_window(at, '1 minute')", "2 rows came later"),
        ("SELECT k FROM orders GROUP BY k, window(at, '1 minute')", "rows of 2 groups came later"),
    ],
)
def test_late_rows_are_described_as_spark_counts_them(text: str, words: str) -> None:
    query, _ = tables_in(text, ["orders"])
    assert late_words(query, 2).startswith(words)


def test_the_hint_for_lost_records_applies_to_a_prompt() -> None:
    assert without_checkpoints(f"t-0 is gone. {LOSS_HINT}") == "t-0 is gone; begin the query again"
