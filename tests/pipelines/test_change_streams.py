"""Streams of changes, with a real Spark: deletions by tombstones and change records."""

from __future__ import annotations

import json
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import SCHEMA, Around, fates, living, through

from ottla.pipelines.steps.frame import source_frame
from pipelines.running import pipeline_of, produce, run_batch, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOMBSTONES = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 3}
steps:
  - parse: {format: json, schema: {city: string}, keep: [key, value], tombstone: keep}
  - cast: {key: string}
to:
  - {sqlite: users.db, table: users, mode: upsert, key: key, columns: [key, city], delete_when: value IS NULL}
  - {sqlite: users.db, table: changes, columns: [key, city]}
"""


DEBEZIUM = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {topic: "{name}", max_per_batch: 4}
steps:
  - parse: {format: debezium, schema: {id: int, city: string, since: date}, timestamp_format: epoch days}
to: {sqlite: users.db, table: users, mode: upsert, key: id, columns: [id, city, since], delete_when: op = 'd'}
"""


def change(op: str, before: Any, after: Any, is_wrapped: bool = False) -> str:
    record = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "users"}}
    return json.dumps({"schema": {"type": "struct"}, "payload": record} if is_wrapped else record)


def user(number: int, city: str, since: int | None = 20454) -> dict[str, Any]:
    return {"id": number, "city": city, "since": since}


def rows_of(file: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as database:
        return sorted(database.execute(statement).fetchall(), key=repr)


def started(text: str, bootstrap: str) -> tuple[str, str]:
    """The text of the pipeline, and its name."""
    name = f"changes-{uuid.uuid4().hex[:8]}"
    return text.replace("{name}", name).replace("{bootstrap}", bootstrap), name


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_a_record_without_value_removes_the_row_of_its_key(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    text, name = started(TOMBSTONES, bootstrap)
    changes: list[tuple[str, Any]] = [
        ("ann", {"city": "Oslo"}), ("bob", {"city": "Rome"}), ("ann", None), ("cid", {"city": "Bern"}), ("bob", None),
        ("bob", {"city": "Bonn"}), ("dan", None), ("eve", {}),
    ]  # fmt: skip
    produce(bootstrap, name, changes, partition=0)
    run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    assert rows_of(tmp_path / "users.db", "SELECT * FROM users") == [("bob", "Bonn"), ("cid", "Bern"), ("eve", None)]
    assert len(rows_of(tmp_path / "users.db", "SELECT * FROM changes")) == len(changes)


@pytest.mark.parametrize("run", [run_once, run_batch])
def test_changes_of_debezium_make_the_table_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path, run: Any
) -> None:
    text, name = started(DEBEZIUM, bootstrap)
    changes: list[tuple[str, Any]] = [
        ('{"id":1}', change("r", None, user(1, "Oslo"))),
        ('{"schema":{},"payload":{"id":2}}', change("c", None, user(2, "Rome"), True)),
        ('{"id":3}', change("c", None, user(3, "Bern"))),
        ('{"id":4}', change("c", None, user(4, "Graz"))),
        ('{"id":1}', change("u", user(1, "Oslo"), user(1, "Bonn", None))),
        ('{"schema":{},"payload":{"id":2}}', change("d", user(2, "Rome"), None, True)),
        ('{"schema":{},"payload":{"id":2}}', None),
        ('{"id":3}', None),  # compaction has removed the deletion itself
        ('{"id":5}', change("c", None, user(5, "Lyon"))),
        ('{"id":5}', change("d", user(5, "", None), None)),
        ('{"id":5}', None),
        ('{"id":5}', change("c", None, user(5, "Nice"))),
        ("", change("t", None, None)),
    ]  # fmt: skip
    produce(bootstrap, name, changes, partition=0)
    (parse,) = run(spark, pipeline_of(text, tmp_path), tmp_path / "state")
    found = rows_of(tmp_path / "users.db", "SELECT * FROM users")
    assert found == [(1, "Bonn", None), (4, "Graz", "2026-01-01"), (5, "Nice", "2026-01-01")]
    assert (parse.came, parse.dead) == (len(changes), 1)


def test_what_is_no_change_of_a_row_dies(spark: SparkSession) -> None:
    cases: list[tuple[str | None, str | None, str | None]] = [
        ("1", change("u", None, {"id": 1, "city": "x"}), None),
        ("1", change("u", None, {"id": "one"}, True), 'field `payload.after.id`: "one" is no int'),
        ("1", change("t", None, None), 'op "t" changes no single row'),
        ("1", change("d", None, {"id": 1}), 'op "d" without before'),
        ("1", change("c", {"id": 1}, None, True), 'op "c" without after'),
        ("1", '{"id": 1}', "no `op`: not a change record of Debezium"),
        ("1", "x", 'not JSON: "x"'),
        ("1", change("u", None, {"id": 1, "city": "__debezium_unavailable_value"}), "field `city`: Debezium left"),
        ("1", change("u", None, {"id": 1, "at": "soon"}), 'field `at`: "soon" is no timestamp'),
        ("seven", None, "not JSON"),
        (None, None, "no value (tombstone), and no key"),
    ]
    rows = [
        (key and key.encode(), value and value.encode(), "t", 0, offset, None, 0, None)
        for offset, (key, value, _) in enumerate(cases)
    ]
    frame = source_frame(spark.createDataFrame(rows, SCHEMA), Around(spark))
    schema = {"id": "int", "city": "string", "at": "timestamp"}
    parsed = through(frame, {"parse": {"format": "debezium", "schema": schema}})
    found = [reason for _, reason in fates(parsed)]
    assert [(reason or "").startswith(begin or "") for reason, (_, _, begin) in zip(found, cases, strict=True)] == [
        True for _ in cases
    ], found
    assert living(parsed) == [{"id": 1, "city": "x", "at": None, "op": "u", "ts_ms": 1}]
