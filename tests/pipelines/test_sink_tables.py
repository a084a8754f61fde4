"""SQLite and PostgreSQL as sinks of a real Spark: rows and batch number are written in one transaction."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from tests.conformance.recipes import running_postgresql
from tests.pipelines.sink_helpers import NOON, difficult, new_topic

from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.database import DatabaseSink, PostgresSink, SqliteSink, sqlite_table
from ottla.pipelines.sinks.external_offsets import kept_offsets, offsets_json
from ottla.pipelines.sinks.postgresql import PostgresSession
from ottla.pipelines.sinks.removal import plan_removal
from ottla.pipelines.sinks.sql_tables import ColumnKind, Table, TableColumn
from ottla.pipelines.sinks.topic import AtLeastOnceTopic
from ottla.pipelines.source import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def query() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with running_postgresql() as connection:
        yield connection


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(sqlite=str(tmp_path / "rows.db"))
    return Database(postgresql=str(request.getfixturevalue("postgresql")))


class Database:
    """The same questions to both kinds."""

    def __init__(self, sqlite: str = "", postgresql: str = "") -> None:
        self.sqlite, self.postgresql = sqlite, postgresql

    def sink(self, table: Table, **options: Any) -> DatabaseSink:
        if self.sqlite:
            return SqliteSink(table, path=self.sqlite, **options)
        return PostgresSink(table, connection=self.postgresql, **options)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        if self.sqlite:
            with sqlite3.connect(self.sqlite) as opened:
                return opened.execute(statement).fetchall()
        with psycopg.connect(self.postgresql) as connected:
            return list(connected.execute(statement).fetchall())


def test_rows_of_a_batch_are_in_the_table_once(
    spark: SparkSession, database: Database, query: str, tmp_path: Path
) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    rows = spark.range(0, 1000, 1, 3).selectExpr("id", "concat('row ', id) as text")
    for batch_id in (0, 0, 1, 1):
        database.sink(Table(table)).write(rows, Batch(query, batch_id, str(tmp_path)))
    assert database.rows(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(2000, 1000)]
    with pytest.raises(SinkError, match="marker was lost"):
        database.sink(Table(table)).write(rows, Batch(f"{query}-other", 5, str(tmp_path / "other")))


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_database_that_goes_away_during_a_commit_is_asked_again(
    spark: SparkSession,
    postgresql: str,
    query: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    commit = PostgresSession.commit

    def breaking(session: PostgresSession) -> None:
        if is_committed:
            commit(session)
        with psycopg.connect(postgresql) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (session.database.info.backend_pid,))
        monkeypatch.setattr(PostgresSession, "commit", commit)
        session.database.execute("SELECT 1")

    table = f"t_{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(PostgresSession, "commit", breaking)
    Database(postgresql=postgresql).sink(Table(table)).write(spark.range(100), Batch(query, 0, str(tmp_path)))
    assert Database(postgresql=postgresql).rows(f"SELECT count(*) FROM {table}") == [(100,)]


def test_difficult_values_survive(spark: SparkSession, database: Database, query: str, tmp_path: Path) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    database.sink(Table(table)).write(difficult(spark), Batch(query, 0, str(tmp_path)))
    rows = {row[0]: row[1:] for row in database.rows(f"SELECT * FROM {table}")}
    assert rows[4] == (None,) * 9
    assert rows[2][0] == 'comma, "quote"\nline \u20ac'
    assert rows[3][0] == ""
    assert rows[3][1] == float("-inf")
    assert bytes(rows[1][3]) == b"\x00\xff"
    assert bytes(rows[2][3]) == b""
    if database.sqlite:
        assert rows[2][1] is None
        assert rows[1][2:6] == ("1234567.125", b"\x00\xff", "2026-03-01T12:00:00.250000Z", "2026-03-01")
        assert rows[1][6:] == (1, '["a","b"]', '{"x":1.0,"name":"n"}')
    else:
        assert rows[2][1] != rows[2][1]
        assert rows[1][2] == decimal.Decimal("1234567.125")
        assert rows[1][4:7] == (NOON, NOON.date(), True)
        assert rows[1][7:] == (["a", "b"], {"x": 1.0, "name": "n"})
        assert rows[2][8] == {"x": None, "name": None}


def test_upsert_keeps_the_last_row_of_a_key_and_replace_only_the_batch(
    spark: SparkSession, database: Database, query: str, tmp_path: Path
) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    sink = database.sink(Table(table, "upsert", ("page",)))
    first = spark.createDataFrame([("a", 1), ("b", 2), (None, 3), ("a", 4)], "page string, views int").coalesce(1)
    second = spark.createDataFrame([("b", 5), (None, 6), ("c", 7)], "page string, views int").coalesce(1)
    sink.write(first, Batch(query, 0, str(tmp_path)))
    sink.write(second, Batch(query, 1, str(tmp_path)))
    assert dict(database.rows(f"SELECT page, views FROM {table}")) == {"a": 4, "b": 5, "c": 7, None: 6}
    assert database.rows(f"SELECT count(*) FROM {table}") == [(4,)]
    database.sink(Table(table, "replace")).write(second, Batch(f"{query}-r", 0, str(tmp_path / "r")))
    assert sorted(row[1] for row in database.rows(f"SELECT * FROM {table}")) == [5, 6, 7]


def test_the_newest_row_of_a_key_removes_it_when_it_says_so(
    spark: SparkSession, database: Database, query: str, tmp_path: Path
) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    sink = database.sink(Table(table, "upsert", ("page",), order=("_offset",), delete_by="gone"))
    schema = "gone boolean, page string, views int, _offset bigint"
    batches: list[list[tuple[Any, ...]]] = [
        [(None, "a", 1, 1), (False, "b", 2, 2), (False, "c", 3, 3), (True, "c", None, 4), (None, None, 5, 5)],
        [(True, "a", 6, 6), (True, "b", 7, 7), (False, "b", 8, 8), (True, "unknown", None, 9), (False, "d", 9, 10)],
    ]
    for number in (0, 1, 1):  # a repetition finds the batch written
        rows = spark.createDataFrame(batches[number], schema).repartition(3)
        sink.write(rows, Batch(query, number, str(tmp_path)))
    assert dict(database.rows(f"SELECT page, views FROM {table}")) == {"b": 8, "d": 9, None: 5}
    with pytest.raises(SinkError, match=r"^table t_.*: a row that deletes has no value in the key column 'page'"):
        sink.write(spark.createDataFrame([(True, None, 1, 11)], schema), Batch(query, 2, str(tmp_path)))
    sink.write(
        spark.createDataFrame([(True, "d", 1, 11)], schema), Batch(query, 2, str(tmp_path))
    )  # nothing was pinned
    assert dict(database.rows(f"SELECT page, views FROM {table}")) == {"b": 8, None: 5}


def test_newest_by_holds_within_a_batch_and_against_what_is_stored(
    spark: SparkSession, database: Database, query: str, tmp_path: Path
) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    sink = database.sink(Table(table, "upsert", ("page",), newest_by="at"))
    batches = [
        [("a", 9, 1), ("a", 10, 2), ("a", 8, 3), ("b", 5, 4), (None, 7, 5), (None, 6, 6), ("c", None, 7)],
        [("a", 9, 8), ("b", 5, 9), (None, 6, 10), ("c", 1, 11), ("d", None, 12)],
        [("a", 100, 13), ("c", None, 14), (None, 8, 15), ("d", None, 16), ("b", 4, 17)],
    ]
    for number, rows in enumerate(batches):
        given = spark.createDataFrame(rows, "page string, n int, id int")
        timed = given.selectExpr("page", "timestamp_seconds(n) AS at", "id").repartition(3, "id")
        sink.write(timed, Batch(query, number, str(tmp_path)))
    assert dict(database.rows(f"SELECT page, id FROM {table}")) == {"a": 13, "b": 9, "c": 11, None: 15, "d": 16}
    assert database.rows(f"SELECT count(*) FROM {table}") == [(5,)]


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        ("integer", 9, 10),
        ("float", float("nan"), -1.5),
        ("decimal", decimal.Decimal("9.50"), decimal.Decimal("10.25")),
        ("date", dt.date(1999, 12, 31), dt.date(2026, 1, 1)),
        ("local_timestamp", NOON.replace(tzinfo=None, microsecond=0), NOON.replace(tzinfo=None)),
    ],
)
@pytest.mark.parametrize("made", ["", "TEXT"])
def test_postgresql_compares_values_also_where_the_column_is_text(
    postgresql: str, kind: ColumnKind, older: object, newer: object, made: str
) -> None:
    name = f"t_{uuid.uuid4().hex[:8]}"
    table = Table(name, "upsert", ("page",), newest_by="at")
    columns = [TableColumn("page", "text"), TableColumn("at", kind, "12,2" if kind == "decimal" else "")]
    if made:
        with psycopg.connect(postgresql) as connected:
            connected.execute(f"CREATE TABLE {name} (page TEXT UNIQUE, at {made})")
    for values in ([newer, older, newer], [older, newer, older]):
        batch = pa.RecordBatch.from_arrays([pa.array(["a", "b", None]), pa.array(values)], names=["page", "at"])
        with PostgresSession(postgresql) as session:
            session.prepare(table, columns)
            session.insert(table, columns, iter([batch]))
            session.commit()
    found = Database(postgresql=postgresql).rows(f"SELECT count(*), count(DISTINCT at) FROM {name}")
    assert found == [(3, 1)]  # the newer one, in every row


def test_a_table_that_does_not_fit_is_told(spark: SparkSession, database: Database, query: str, tmp_path: Path) -> None:
    table = f"t_{uuid.uuid4().hex[:8]}"
    rows = spark.range(3).selectExpr("id", "'x' as text")
    with pytest.raises(SinkError, match=f"no table {table}"):
        database.sink(Table(table, create=False)).write(rows, Batch(query, 0, str(tmp_path)))
    database.sink(Table(table)).write(rows.select("id"), Batch(f"{query}-2", 0, str(tmp_path / "2")))
    with pytest.raises(SinkError, match="has no column 'text'; it has id: add it"):
        database.sink(Table(table)).write(rows, Batch(f"{query}-3", 0, str(tmp_path / "3")))
    with pytest.raises(SinkError, match="no unique index on id"):
        upsert = database.sink(Table(table, "upsert", ("id",)))
        upsert.write(rows.select("id"), Batch(f"{query}-4", 0, str(tmp_path / "4")))


def test_offsets_are_kept_with_the_rows_and_a_new_checkpoint_goes_on_there(
    spark: SparkSession, bootstrap: str, database: Database, query: str, tmp_path: Path
) -> None:
    topic, table = new_topic(bootstrap, 2), f"t_{uuid.uuid4().hex[:8]}"
    send = AtLeastOnceTopic(topic, bootstrap)
    send.write(spark.range(0, 100).selectExpr("cast(id as string) as value"), Batch("s", 0, ""))

    def run(name: str, starting: str, **options: Any) -> None:
        register(spark)
        checkpoint = str(tmp_path / name)
        sink = database.sink(Table(table), keeps_offsets=True, checkpoint=checkpoint, **options)
        stream = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        stream = stream.option("subscribe", topic).option("startingOffsets", starting)
        rows = stream.load().selectExpr("cast(cast(value as string) as int) as id")
        writer = rows.writeStream.foreachBatch(ForeachBatch(sink, query, f"{checkpoint}-p"))
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    run("first", "earliest")
    kept = kept_offsets(database.sink(Table(table)), query)
    assert sum(kept[topic].values()) == 100
    send.write(spark.range(100, 150).selectExpr("cast(id as string) as value"), Batch("s", 0, ""))
    with pytest.raises(Exception, match="start the query at these offsets"):
        run("careless", "earliest")
    run("second", offsets_json(kept), started_at=kept)
    assert sorted(row[0] for row in database.rows(f"SELECT id FROM {table}")) == list(range(150))


def test_a_table_is_forgotten_with_its_rows(database: Database, query: str) -> None:
    sink = database.sink(Table(f"t_{uuid.uuid4().hex[:8]}"))
    columns = [TableColumn("n", "integer")]
    assert sink.last_batches() == {}
    with sink.session() as session:
        assert session.count(sink.table) == 0
        session.prepare(sink.table, columns)
        session.insert(sink.table, columns, iter([pa.RecordBatch.from_pydict({"n": [1, 2, 3]})]))
        session.store_batch(query, sink.table.name, LastBatch(4, "i"))
        session.store_offsets(query, {"site": {0: 3}})
        session.commit()
    assert sink.last_batches() == {query: LastBatch(4, "i")}
    assert plan_removal(sink, lambda _: False).text == "has nothing of this pipeline"
    removal = plan_removal(sink, lambda name: name == query)
    assert removal.text.startswith("delete 3 rows")
    removal.remove()
    assert (sink.last_batches(), kept_offsets(sink, query)) == ({}, {})
    assert sink.with_retries(lambda session: session.count(sink.table)) == 0


def test_a_table_for_foreach_batch(spark: SparkSession, query: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "p")
    write = sqlite_table(str(tmp_path / "a.db"), "views", query=query, folder=folder, mode="upsert", key="id")
    write(spark.range(5), 0)
    with sqlite3.connect(tmp_path / "a.db") as opened:
        assert opened.execute("SELECT count(*) FROM views").fetchone() == (5,)


def test_a_database_that_is_away_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of PostgreSQL's library are two."""
    monkeypatch.setattr("ottla.pipelines.sinks.database.WAIT_SECONDS", (0.0,) * 6)
    sink = PostgresSink(Table("rows"), connection=f"host={tmp_path} dbname=none")
    with pytest.raises(SinkError, match=r"^table rows: the database does not answer: [^\n\t]+$"):
        sink.last_batches()
