"""`format("ottla")` as a sink of plain Spark: real Spark, real broker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.pipelines.running import produce
from tests.pipelines.sink_helpers import committed, new_topic

from ottla.pipelines.source import read_topic, read_topic_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 300


def write_stream(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path, **options: str
) -> None:
    """All that is there, in batches of a hundred records."""
    rows = read_topic_stream(
        spark,
        source,
        bootstrap_servers=bootstrap,
        starting="earliest",
        columns=["key", "value"],
        options={"maxOffsetsPerTrigger": "100"},
    )
    writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    query = writer.options(checkpointLocation=str(checkpoint), **options).trigger(availableNow=True).start()
    query.awaitTermination()


def values(bootstrap: str, topic: str) -> list[int]:
    return sorted(int(record.value() or b"") for record in committed(bootstrap, topic))


def test_a_stream_is_written_once_also_when_its_last_batch_is_repeated(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    source, target = new_topic(bootstrap, 2), new_topic(bootstrap, 3)
    produce(bootstrap, source, [(b"%d" % number, b"%d" % number) for number in range(RECORDS)])
    checkpoint = tmp_path / "checkpoint"
    write_stream(spark, bootstrap, source, target, checkpoint)
    assert values(bootstrap, target) == list(range(RECORDS))
    commits = sorted(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    assert len(commits) >= 3
    for each in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        each.unlink(missing_ok=True)  # simulates a crash before Spark stored the commit
    produce(bootstrap, source, [(b"k", b"%d" % number) for number in range(RECORDS, 2 * RECORDS)])
    write_stream(spark, bootstrap, source, target, checkpoint)
    assert values(bootstrap, target) == list(range(2 * RECORDS))
    assert not (checkpoint / "ottla-sink" / "incoming").exists()
    shutil.rmtree(checkpoint)  # on purpose: the query starts anew, as with every Spark sink
    write_stream(spark, bootstrap, source, target, checkpoint, delivery="at-least-once")
    assert len(values(bootstrap, target)) == 4 * RECORDS


def test_a_batch_is_written_with_keys_headers_times_and_partitions(spark: SparkSession, bootstrap: str) -> None:
    target = new_topic(bootstrap, 3)
    rows = spark.sql(
        "SELECT 'k' AS key, 'v' AS value, 2 AS partition, timestamp_millis(1700000000123) AS timestamp,"
        " array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers"
    )
    writer = rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", target).save()
    [record] = committed(bootstrap, target)
    assert (record.key(), record.value(), record.partition()) == (b"k", b"v", 2)
    assert (record.timestamp()[1], record.headers()) == (1700000000123, [("h", b"x")])


@pytest.mark.parametrize(
    ("columns", "options", "mode", "words"),
    [
        ("'v' AS value", {"topic": "no-such-topic"}, "append", "there is no topic no-such-topic"),
        ("'v' AS value", {}, "append", "the option topic is missing"),
        ("'v' AS value", {"topic": "t", "acks": "all"}, "append", "the sink ottla has no option acks"),
        ("'v' AS value", {"topic": "t"}, "overwrite", "cannot be overwritten"),
        ("'v' AS text", {"topic": "t"}, "append", "need a column value"),
        ("1.5D AS value", {"topic": "t"}, "append", "the column value is double"),
        ("'v' AS value, 1 AS price", {"topic": "t"}, "append", "a record has no price"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, bootstrap: str, columns: str, options: dict[str, str], mode: str, words: str
) -> None:
    writer = spark.sql(f"SELECT {columns}").write.format("ottla").mode(mode)
    with pytest.raises(PySparkException, match=words):
        writer.option("kafka.bootstrap.servers", bootstrap).options(**options).save()


def test_what_was_read_goes_where_the_option_says(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    """A row of a topic has the topic's name with it: as with Spark's own sink the option goes before it."""
    source, target = new_topic(bootstrap, 2), new_topic(bootstrap, 2)
    produce(bootstrap, source, [(b"k", b"%d" % number) for number in range(5)])
    rows = read_topic(spark, source, bootstrap_servers=bootstrap).select("key", "value", "topic", "partition")
    writer = rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", target).save()
    assert values(bootstrap, source) == values(bootstrap, target) == list(range(5))
