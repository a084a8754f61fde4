"""Databases through SQLAlchemy: PostgreSQL, or the one in OTTLA_TEST_DATABASE (mysql+pymysql://…)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.conformance.recipes import running_postgresql
from tests.pipelines.running import pipeline_of, produce, run_once
from tests.pipelines.sink_helpers import NOON, difficult

from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.sql_tables import Table
from ottla.pipelines.sinks.sqlalchemy_database import SqlAlchemySession, SqlAlchemySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
dead_letters: false
from: {{topic: {name}}}
steps:
  - parse: {{format: json, schema: {{page: string, n: long}}}}
to: {{sqlalchemy: "sqlite:///pages.db", table: pages, mode: upsert, key: page}}
"""
OTHER = os.environ.get("OTTLA_TEST_DATABASE", "")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if OTHER:
        yield OTHER
        return
    with running_postgresql() as connection:
        parts = dict(part.split("=", 1) for part in connection.split())
        yield str(sa.URL.create("postgresql+psycopg", query=parts).render_as_string(hide_password=False))


def rows_of(url: str, statement: str) -> list[tuple[Any, ...]]:
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connected:
        return [tuple(row) for row in connected.exec_driver_sql(statement)]


def test_rows_are_there_once_also_when_the_answer_to_a_commit_was_lost(
    spark: SparkSession, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, query = f"t_{uuid.uuid4().hex[:8]}", f"q-{uuid.uuid4().hex[:8]}"
    sink = SqlAlchemySink(Table(table), url=url)
    commit = SqlAlchemySession.commit

    def losing(session: SqlAlchemySession) -> None:
        commit(session)
        monkeypatch.setattr(SqlAlchemySession, "commit", commit)
        raise session.RETRIABLE_ERRORS[0]("gone")

    monkeypatch.setattr(SqlAlchemySession, "commit", losing)
    for batch_id in (0, 0):
        sink.write(difficult(spark), Batch(query, batch_id, str(tmp_path)))
    rows = {row[0]: row[1:] for row in rows_of(url, f"SELECT * FROM {table}")}
    assert rows_of(url, f"SELECT count(*) FROM {table}") == [(len(rows),)]
    assert rows[4] == (None,) * 9
    assert rows[2][:2] == ('comma, "quote"\nline \u20ac', None)  # NaN
    assert (rows[3][0], bytes(rows[1][3]), bytes(rows[2][3])) == ("", b"\x00\xff", b"")
    assert rows[1][2] == Decimal("1234567.125")
    assert (rows[1][4].replace(tzinfo=NOON.tzinfo), rows[1][5], bool(rows[1][6])) == (NOON, NOON.date(), True)
    assert rows[1][7:] == ('["a","b"]', '{"x":1.0,"name":"n"}')
    with pytest.raises(SinkError, match="has no column 'more'"):
        sink.write(difficult(spark).selectExpr("*", "1 AS more"), Batch(query, 1, str(tmp_path)))


def test_an_upsert_keeps_the_newest_row(spark: SparkSession, url: str, tmp_path: Path) -> None:
    table, query = f"t_{uuid.uuid4().hex[:8]}", f"q-{uuid.uuid4().hex[:8]}"
    sink = SqlAlchemySink(Table(table, "upsert", ("page",), newest_by="at"), url=url)
    batches = [
        [("a", 9, 1), ("a", 10, 2), ("A", 8, 3), ("b", 5, 4), (None, 7, 5), (None, 6, 6)],
        [("a", 9, 8), ("b", 5, 9), (None, 6, 10), ("c", 1, 11)],
    ]
    for number, rows in enumerate(batches):
        given = spark.createDataFrame(rows, "page string, n int, id int")
        sink.write(given.selectExpr("page", "timestamp_seconds(n) AS at", "id"), Batch(query, number, str(tmp_path)))
    found = rows_of(url, f"SELECT page, id FROM {table}")
    assert sorted(found, key=repr) == [("A", 3), ("a", 2), ("b", 9), ("c", 11), (None, 5)]


def test_a_pipeline_goes_on_in_the_table_and_a_lost_checkpoint_is_told(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    name, url = f"any-{uuid.uuid4().hex[:8]}", f"sqlite:///{tmp_path}/pages.db"
    pipeline = pipeline_of(FILE.format(name=name, bootstrap=bootstrap), tmp_path)
    for first in (0, 10):
        produce(bootstrap, name, [{"page": f"/{number % 3}", "n": number} for number in range(first, first + 10)], 0)
        run_once(spark, pipeline, tmp_path / "state")
    assert sorted(rows_of(url, "SELECT page, n FROM pages")) == [("/0", 18), ("/1", 19), ("/2", 17)]
    assert [batch for (batch,) in rows_of(url, "SELECT batch FROM ottla_batches")] == [1]
    with pytest.raises(CheckpointError, match="table pages has rows of an earlier query"):
        run_once(spark, pipeline, tmp_path / "elsewhere")
