"""Sinks with a real Spark and a real broker: every row is written exactly once."""

from __future__ import annotations

import csv
import json
import pickle
import uuid
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql.types import StringType
from tests.pipelines.sink_helpers import NOON, committed, difficult, new_topic, values

from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.console import ConsoleSink
from ottla.pipelines.sinks.encoding import Encoding
from ottla.pipelines.sinks.files import FilesSink
from ottla.pipelines.sinks.topic import AtLeastOnceTopic, ExactlyOnceTopic, exactly_once_topic
from ottla.pipelines.steps.join_tables import file_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def query() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


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


def test_what_an_earlier_query_has_released_is_not_taken_for_published(
    spark: SparkSession, bootstrap: str, query: str, tmp_path: Path
) -> None:
    topic = new_topic(bootstrap)
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    for _ in range(2):  # the second time the marker says that it is there
        ExactlyOnceTopic(topic, bootstrap).write(rows, Batch(query, 0, str(tmp_path)))
    with pytest.raises(SinkError, match="batch 0 was published, but the target has no entry for it"):
        ExactlyOnceTopic(topic, bootstrap).write(rows, Batch(f"{query}-new", 0, str(tmp_path)))
    assert len(committed(bootstrap, topic)) == 10


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
    monkeypatch.setattr("ottla.pipelines.sinks.staging.local_path", lambda folder: None)
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


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_a_text_that_means_no_value_in_a_folder_ends_the_batch(
    spark: SparkSession, query: str, tmp_path: Path, form: Any
) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, '__HIVE_DEFAULT_PARTITION__'), (3, NULL) AS t(id, kind)")
    sink = FilesSink(str(tmp_path / "out"), form, partition_by=("kind",))

    with pytest.raises(Exception, match="column kind: '__HIVE_DEFAULT_PARTITION__' would be read as null"):
        sink.write(rows, Batch(query, 0, str(tmp_path / "p")))

    assert not (tmp_path / "out").exists()
    sink.write(rows.filter("id != 2"), Batch(query, 0, str(tmp_path / "p")))
    assert {row["kind"] for row in spark.read.format(form).option("header", "true").load(sink.path).collect()} == {
        "a",
        None,
    }


def test_times_and_numbers_in_files_are_what_other_readers_read(
    spark: SparkSession, query: str, tmp_path: Path
) -> None:
    """pandas made 1816 of the last day of 9999; Spark writes NaN as a text, and three digits of a time without zone."""
    end, noon = "9999-12-31 23:59:59.999999", "2026-01-01 12:00:00.000005"
    rows = spark.sql(
        f"SELECT timestamp '{end}Z' AS until, timestamp_ntz '{noon}' AS local, double('NaN') AS ratio,"
        " array(1.5D, double('-Infinity')) AS list, 2.5D AS price"
    )
    for form in ("parquet", "json", "csv"):
        FilesSink(str(tmp_path / form), form).write(rows, Batch(query, 0, str(tmp_path / f"{form}-p")))
    (row,) = pq.read_table(tmp_path / "parquet").to_pylist()
    assert (row["until"], row["local"]) == (datetime.fromisoformat(f"{end}Z"), datetime.fromisoformat(noon))
    (line,) = (json.loads(file.read_text()) for file in (tmp_path / "json").rglob("*.json"))
    times = {"until": "9999-12-31T23:59:59.999999Z", "local": "2026-01-01T12:00:00.000005"}
    assert line == times | {"ratio": None, "list": [1.5, None], "price": 2.5}
    with next((tmp_path / "csv").rglob("*.csv")).open(newline="") as stream:
        (found,) = csv.DictReader(stream)
    assert found == times | {"ratio": "NaN", "list": "[1.5,null]", "price": "2.5"}


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
        b'1,plain,2026-03-01T12:00:00.250000Z,"[""a"",""b""]"'
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


def test_text_in_csv_is_what_every_reader_of_csv_reads(spark: SparkSession, query: str, tmp_path: Path) -> None:
    texts = ['say "hi"', " two blanks ", "back\\", '\\"', "a,b", "a\nb", '"', "", None]
    made = [(n, text, [n]) for n, text in enumerate(texts)]
    rows = spark.createDataFrame(made, "n int, text string, list array<int>")
    lines = [str(row["value"]) for row in Encoding("csv").apply(rows.coalesce(1)).collect()]
    read = [next(csv.reader([line])) if "\n" not in line else next(csv.reader(line.splitlines(True))) for line in lines]
    assert [row[1] for row in read] == [text or "" for text in texts]
    FilesSink(str(tmp_path / "out"), "csv").write(rows.coalesce(1), Batch(query, 0, str(tmp_path / "p")))
    (file,) = (tmp_path / "out").rglob("*.csv")
    with file.open(newline="") as stream:
        found = [(row["text"], row["list"]) for row in csv.DictReader(stream)]
    assert found == [(text or "", f"[{n}]") for n, text in enumerate(texts)]
    alone = Encoding("csv", columns=("text",)).apply(rows.filter("text IS NULL")).first()
    assert alone is not None
    assert alone["value"] == ""
    table = file_table(spark, str(file.parent), file.name)
    assert [row["text"] for row in table.orderBy("n").collect()] == [text or None for text in texts]


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
