"""Sinks with a real Spark and a real broker: what is written is what was there, once."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psycopg
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType

from conformance.recipes import running_postgresql
from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError
from ottla.pipelines.sinks.console import ConsoleSink
from ottla.pipelines.sinks.database import DatabaseSink, PostgresSink, SqliteSink, sqlite_table
from ottla.pipelines.sinks.encoding import Encoding
from ottla.pipelines.sinks.external_offsets import kept_offsets, offsets_json
from ottla.pipelines.sinks.files import FilesSink
from ottla.pipelines.sinks.tables import Table
from ottla.pipelines.sinks.topic import AtLeastOnceTopic, ExactlyOnceTopic, exactly_once_topic
from ottla.pipelines.source import register
from pipelines.sink_helpers import committed, new_topic, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC)
DIFFICULT = (
    "id int, text string, ratio double, price decimal(12,3), raw binary, at timestamp, day date, ok boolean,"
    " tags array<string>, place struct<x:double,name:string>"
)


@pytest.fixture
def query() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


def difficult(spark: SparkSession) -> DataFrame:
    rows: list[Any] = [
        (1, "plain", 1.5, decimal.Decimal("1234567.125"), b"\x00\xff", NOON, NOON.date(), True, ["a", "b"], (1.0, "n")),
        (2, 'comma, "quote"\nline \u20ac', float("nan"), None, b"", None, None, False, [], (float("inf"), None)),
        (3, "", float("-inf"), decimal.Decimal("-0.001"), None, NOON, None, None, None, None),
        (4, None, None, None, None, None, None, None, None, None),
    ]
    return spark.createDataFrame(rows, DIFFICULT)


# ---- topics


def test_a_row_becomes_a_record_with_key_headers_and_time(spark: SparkSession, bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    encoding = Encoding(key=("id",), headers=("text",), time="at")
    rows = difficult(spark).filter("id = 1")
    AtLeastOnceTopic(topic, bootstrap, encoding=encoding).write(rows, Batch("q", 0, ""))
    [record] = committed(bootstrap, topic)
    assert record.key() == b"1"
    assert record.headers() == [("text", b"plain")]
    assert record.timestamp()[1] == int(NOON.timestamp() * 1000)
    [value] = values(bootstrap, topic)
    assert value["at"] == "2026-03-01T12:00:00.250000Z"
    assert value["price"] == 1234567.125
    assert value["raw"] == "AP8="


def test_json_has_null_where_a_number_is_none(spark: SparkSession, bootstrap: str) -> None:
    topic = new_topic(bootstrap, 1)
    AtLeastOnceTopic(topic, bootstrap, encoding=Encoding()).write(difficult(spark).coalesce(1), Batch("q", 0, ""))
    found = {value["id"]: value for value in values(bootstrap, topic)}
    assert found[2]["ratio"] is None
    assert found[2]["place"] == {"x": None, "name": None}
    assert found[3]["ratio"] is None
    assert found[4] == dict.fromkeys(found[1], None) | {"id": 4}


def test_keys_find_the_partition_that_a_java_producer_would_choose(spark: SparkSession, bootstrap: str) -> None:
    topic = new_topic(bootstrap, 8)
    rows = spark.range(50).select(F.col("id").cast("string").alias("key"), F.lit("x").alias("value"))
    AtLeastOnceTopic(topic, bootstrap).write(rows, Batch("q", 0, ""))
    for record in committed(bootstrap, topic):
        assert record.partition() == (murmur2(record.key()) & 0x7FFFFFFF) % 8


@pytest.mark.parametrize("sink", [AtLeastOnceTopic, ExactlyOnceTopic])
def test_rows_choose_their_topic_and_partition(
    spark: SparkSession, bootstrap: str, sink: type[AtLeastOnceTopic], query: str, tmp_path: Path
) -> None:
    first, second = new_topic(bootstrap, 2), new_topic(bootstrap, 2)
    rows = spark.range(10).selectExpr(
        "cast(id as string) as value", f"if(id < 5, '{second}', cast(null as string)) as topic", "1 as partition"
    )
    sink(first, bootstrap).write(rows, Batch(query, 0, str(tmp_path)))
    assert {(record.partition(), int(record.value())) for record in committed(bootstrap, second)} == {
        (1, n) for n in range(5)
    }
    assert len(committed(bootstrap, first)) == 5


def test_a_batch_that_comes_again_is_published_once(
    spark: SparkSession, bootstrap: str, query: str, tmp_path: Path
) -> None:
    topic = new_topic(bootstrap)
    rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as value")
    for batch_id in (0, 0, 1, 1):
        fresh = ExactlyOnceTopic(topic, bootstrap)  # as a new driver would have it
        fresh.write(rows, Batch(query, batch_id, str(tmp_path)))
    assert len(committed(bootstrap, topic)) == 2000


def test_a_half_published_batch_is_completed_from_the_pinned_rows(
    spark: SparkSession, bootstrap: str, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run gives other rows to other tasks, as a shuffle may: what was pinned is published all the same."""
    topic = new_topic(bootstrap)
    sink = ExactlyOnceTopic(topic, bootstrap)
    batch = Batch(query, 0, str(tmp_path))
    real = ExactlyOnceTopic._run

    def only_first(self: ExactlyOnceTopic, session: Any, staged: Any, known: Any, batch: Any) -> Any:
        real(self, session, replace(staged, files=staged.files[:2]), known, batch)
        raise KeyboardInterrupt

    monkeypatch.setattr(ExactlyOnceTopic, "_run", only_first)
    with pytest.raises(KeyboardInterrupt):
        sink.write(spark.range(0, 400, 1, 4).selectExpr("cast(id as string) as value"), batch)
    monkeypatch.setattr(ExactlyOnceTopic, "_run", real)
    assert len(committed(bootstrap, topic)) == 200
    other_order = spark.range(399, -1, -1, 3).selectExpr("cast(id as string) as value")
    published = ExactlyOnceTopic(topic, bootstrap).publish(other_order, batch)
    assert (published.rows, published.skipped) == (200, 2)
    assert sorted(int(record.value()) for record in committed(bootstrap, topic)) == list(range(400))


def test_a_lost_marker_stops_the_query_and_says_how_to_go_on(
    spark: SparkSession, bootstrap: str, query: str, tmp_path: Path
) -> None:
    topic = new_topic(bootstrap)
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    with pytest.raises(SinkError, match=r"batch 7 .* marker was lost .* begin_at=7"):
        ExactlyOnceTopic(topic, bootstrap).write(rows, Batch(query, 7, str(tmp_path)))
    assert committed(bootstrap, topic) == []
    sink = ExactlyOnceTopic(topic, bootstrap, begin_at=7)
    for batch_id in (7, 7, 8):
        sink.write(rows, Batch(query, batch_id, str(tmp_path)))
    assert len(committed(bootstrap, topic)) == 20


def test_a_new_checkpoint_under_an_old_name_is_noticed(
    spark: SparkSession, bootstrap: str, query: str, tmp_path: Path
) -> None:
    topic = new_topic(bootstrap)
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    for batch_id in range(2):
        ExactlyOnceTopic(topic, bootstrap).write(rows, Batch(query, batch_id, str(tmp_path / "old")))
    with pytest.raises(SinkError, match="the checkpoint is new or older"):
        ExactlyOnceTopic(topic, bootstrap).write(rows, Batch(query, 0, str(tmp_path / "new")))
    on_purpose = ExactlyOnceTopic(topic, bootstrap, begin_at=0)
    for batch_id in range(3):
        on_purpose.write(rows, Batch(query, batch_id, str(tmp_path / "new")))
    assert len(committed(bootstrap, topic)) == 50


@pytest.mark.parametrize("sink", [AtLeastOnceTopic, ExactlyOnceTopic])
def test_a_record_that_is_too_large_is_a_dead_letter_or_an_error(
    spark: SparkSession, bootstrap: str, sink: type[AtLeastOnceTopic], query: str, tmp_path: Path
) -> None:
    topic, letters = new_topic(bootstrap, max_message_bytes="2000000"), new_topic(bootstrap)
    sizes = [("a", "small"), ("b", "x" * 10_000_000), ("c", "y" * 1_500_000)]
    rows = spark.createDataFrame(sizes, "key string, value string")
    with pytest.raises(Exception, match="larger than topic"):
        sink(topic, bootstrap).write(rows.coalesce(1), Batch(f"{query}-1", 0, str(tmp_path)))
    sink(topic, bootstrap, dead_letters=letters).write(rows.coalesce(1), Batch(query, 0, str(tmp_path / "second")))
    kept = [record.key() for record in committed(bootstrap, topic)]
    assert sorted(set(kept)) == [b"a", b"c"]
    [letter] = committed(bootstrap, letters)
    assert letter.key() == b"b"
    assert b"larger than topic" in dict(letter.headers())["ottla.reason"]


def test_a_topic_that_does_not_exist_is_named(spark: SparkSession, bootstrap: str, query: str, tmp_path: Path) -> None:
    rows = spark.range(1).selectExpr("'x' as value")
    with pytest.raises(SinkError, match="there is no topic nowhere-at-all"):
        ExactlyOnceTopic("nowhere-at-all", bootstrap).write(rows, Batch(query, 0, str(tmp_path)))


def test_rows_are_pinned_through_spark_where_the_folder_is_no_path(
    spark: SparkSession, bootstrap: str, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on hdfs: or s3a: only Spark's own reader and writer touch the folder."""
    monkeypatch.setattr("ottla.pipelines.sinks.staging.local_path", lambda folder: None)
    monkeypatch.setattr("ottla.pipelines.sinks.staged_files.local_path", lambda folder: None)
    topic = new_topic(bootstrap)
    rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as value")
    for batch_id, part in ((0, rows), (0, rows), (1, rows.filter("value < 0"))):
        ExactlyOnceTopic(topic, bootstrap).write(part, Batch(query, batch_id, f"file://{tmp_path}"))
    assert len(committed(bootstrap, topic)) == 1000


def test_a_notebook_needs_one_function(spark: SparkSession, bootstrap: str, query: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap)
    (tmp_path / "in").mkdir()
    spark.range(20).selectExpr("id", "id % 3 as kind").write.json(str(tmp_path / "in" / "1"))
    stream = spark.readStream.schema("id long, kind long").json(str(tmp_path / "in" / "*")).groupBy("kind").count()
    write = exactly_once_topic(topic, bootstrap_servers=bootstrap, query=query, folder=str(tmp_path / "pinned"))
    write = pickle.loads(pickle.dumps(write))
    running = stream.writeStream.outputMode("complete").foreachBatch(write).trigger(availableNow=True)
    running.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert {value["kind"]: value["count"] for value in values(bootstrap, topic)} == {0: 7, 1: 7, 2: 6}


# ---- databases


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


def test_a_table_for_foreach_batch(spark: SparkSession, query: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "p")
    write = sqlite_table(str(tmp_path / "a.db"), "views", query=query, folder=folder, mode="upsert", key="id")
    write(spark.range(5), 0)
    with sqlite3.connect(tmp_path / "a.db") as opened:
        assert opened.execute("SELECT count(*) FROM views").fetchone() == (5,)


# ---- files and the terminal


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_a_folder_of_files_has_each_row_once(spark: SparkSession, query: str, tmp_path: Path, form: Any) -> None:
    path = str(tmp_path / "out")
    rows = spark.range(0, 100, 1, 3).selectExpr("id", "id % 2 as kind")
    for batch_id in (0, 0, 1, 1):
        FilesSink(path, form, root=str(tmp_path)).write(rows, Batch(query, batch_id, str(tmp_path / "p")))
    read = spark.read.format(form).option("header", "true").load(path)
    assert read.count() == 200
    assert {row["ottla_batch"] for row in read.select("ottla_batch").distinct().collect()} == {0, 1}
    if form == "parquet":
        assert len(pd.read_parquet(path)) == 200
    with pytest.raises(SinkError, match="belongs to query"):
        FilesSink(path, form).write(rows, Batch("another", 0, str(tmp_path / "p2")))


def test_files_may_be_in_folders_by_column(spark: SparkSession, query: str, tmp_path: Path) -> None:
    rows = spark.range(0, 100, 1, 3).selectExpr("id", "id % 2 as kind")
    FilesSink(str(tmp_path / "out"), partition_by=("kind",)).write(rows, Batch(query, 0, str(tmp_path / "p")))
    assert spark.read.parquet(str(tmp_path / "out")).groupBy("kind").count().count() == 2
    assert not list(tmp_path.glob(".*unfinished*"))


def test_the_terminal_shows_the_first_rows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = spark.createDataFrame([("home", 3), (None, 4)], "page string, views int").coalesce(1)
    ConsoleSink().write(rows, Batch("views", 2, ""))
    shown = ["── views, batch 2", "page  views", "────  ─────", "home  3", "NULL  4"]
    assert capsys.readouterr().out.splitlines() == shown
    ConsoleSink(1).write(rows, Batch("views", 3, ""))
    assert capsys.readouterr().out.splitlines()[-1] == "  …"


def test_encodings(spark: SparkSession, tmp_path: Path) -> None:
    rows = difficult(spark).filter("id = 1")

    def value(encoding: Encoding) -> bytes:
        return bytes(encoding.apply(rows).select(F.col("value").cast("binary")).first()["value"])

    assert value(Encoding("csv", columns=("id", "text", "at", "tags"))) == (
        b'1,plain,2026-03-01T12:00:00.250000Z,"[\\"a\\",\\"b\\"]"'
    )
    assert value(Encoding("text", columns=("text",))) == b"plain"
    schema = tmp_path / "row.avsc"
    schema.write_text(
        '{"type":"record","name":"r","fields":[{"name":"id","type":"int"},{"name":"text","type":"string"}]}'
    )
    assert value(Encoding("avro", columns=("id", "text"), schema=str(schema), key=("id",))) == b"\x02\x0aplain"
    with pytest.raises(SinkError, match="there is no column 'nix'"):
        Encoding(key=("nix",)).apply(rows)
    assert rows.select(F.col("text")).schema["text"].dataType == StringType()
    both = Encoding(key=("id", "text")).apply(rows).select(F.col("key").cast("string")).first()
    assert both is not None
    assert both["key"] == '{"id":1,"text":"plain"}'


def murmur2(data: bytes) -> int:
    """Kafka's hash, written down a second time to have something to compare with."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
