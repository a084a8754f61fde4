"""The source format("ottla") in a real Spark against a real broker (OTTLA_TEST_BOOTSTRAP names another one)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.offsets import delete_records
from ottla.pipelines.source import read_topic, read_topic_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_SECONDS_MAX = 300
KEPT = {"retention.ms": "-1"}  # records with times of 1970 would age out while a slow machine runs the test


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Client(bootstrap) as client:
        yield Admin(client)


@pytest.fixture
def topic(admin: Admin) -> Iterator[str]:
    """A topic with two partitions."""
    name = f"s-source-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, partitions=2, configs=KEPT)
    yield name
    if admin.topics([name]):
        admin.delete_topics([name])


def produce(bootstrap: str, topic: str, first: int, count: int, **settings: Any) -> None:
    """Values v<number>, even ones to partition 0, odd ones to 1."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for number in range(first, first + count):
        producer.produce(topic, b"v%d" % number, key=b"k%d" % number, partition=number % 2, timestamp=1000 + number)
    assert producer.flush(30) == 0


def values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def expected(first: int, count: int) -> list[str]:
    return sorted(f"v{number}" for number in range(first, first + count))


class Stream:
    """Runs a stream of one topic with Trigger.AvailableNow again and again, over one checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.folder = spark, bootstrap, topic, folder

    def run(self, **options: str) -> list[dict[str, Any]]:
        """The progress of every batch of one run; what was read is in rows()."""
        rows = read_topic_stream(
            self.spark, self.topic, bootstrap_servers=self.bootstrap, starting="earliest", options=options
        )
        writer = rows.writeStream.format("parquet").option("path", str(self.folder / "rows"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True)
        query = writer.start()
        try:
            assert query.awaitTermination(QUERY_SECONDS_MAX)
            return [json.loads(each.json) for each in query.recentProgress]
        finally:
            query.stop()

    def rows(self) -> list[str]:
        return values(self.spark.read.parquet(str(self.folder / "rows")))


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Stream:
    return Stream(spark, bootstrap, topic, tmp_path)


def test_a_batch_has_all_columns_of_sparks_kafka_source(spark: SparkSession, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", key=b"k", partition=1, timestamp=1234, headers=[("h", b"x"), ("n", None)])
    producer.produce(topic, None, key=None, partition=0, timestamp=5678)
    producer.flush()
    rows = read_topic(spark, topic, bootstrap_servers=bootstrap, headers=True)
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    null, full = rows.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition").collect()
    assert (full.key, full.value, full.topic, full.partition, full.offset) == (b"k", b"v", topic, 1, 0)
    assert (full.ms, full.timestampType, full.headers) == (1234, 0, [("h", b"x"), ("n", None)])
    assert (null.key, null.value, null.ms, null.headers) == (None, None, 5678, None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(spark: SparkSession, bootstrap: str, topic: str, codec: str) -> None:
    produce(bootstrap, topic, 0, 1000, **{"compression.type": codec})
    rows = read_topic(spark, topic, bootstrap_servers=bootstrap, columns=["value"], options={"minPartitions": 5})
    assert values(rows) == expected(0, 1000)


def test_a_batch_between_bounds(spark: SparkSession, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, 100)
    read: Callable[..., DataFrame] = lambda **more: read_topic(spark, topic, bootstrap_servers=bootstrap, **more)  # noqa: E731
    assert values(read(starting={0: 10, 1: -2}, ending={0: -1, 1: 3})) == sorted(
        [f"v{number}" for number in range(20, 100, 2)] + ["v1", "v3", "v5"]
    )
    assert values(read(starting="1050")) == expected(50, 50)
    assert values(read(ending="1050")) == expected(0, 50)
    with pytest.raises(Exception, match=f"{topic}-0 should be read from offset 51 on, but its log ends at 50"):
        read(starting={0: 51, 1: -2}).collect()


def test_aborted_records_come_only_to_those_who_want_them(spark: SparkSession, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        producer.begin_transaction()
        producer.produce(topic, b"v%d" % number, partition=0)
        producer.flush()
        ends()
    everything = read_topic(spark, topic, bootstrap_servers=bootstrap)
    assert values(everything) == ["v0", "v1", "v2", "v3"]  # as Spark's kafka source does
    committed = {"kafka.isolation.level": "read_committed"}
    assert values(read_topic(spark, topic, bootstrap_servers=bootstrap, options=committed)) == ["v0", "v2"]


def test_a_wrong_option_is_told_before_anything_runs(spark: SparkSession, bootstrap: str, topic: str) -> None:
    with pytest.raises(Exception, match=r"did you mean startingOffsets\?"):
        read_topic(spark, topic, bootstrap_servers=bootstrap, options={"startingOfsets": "earliest"})
    with pytest.raises(Exception, match="the topic nowhere-at-all does not exist"):
        read_topic(spark, "nowhere-at-all", bootstrap_servers=bootstrap).count()


def test_a_stream_reads_on_where_it_stopped(stream: Stream, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, 100)
    progress = stream.run(maxOffsetsPerTrigger="40", commitGroup=f"{topic}-group")
    assert stream.rows() == expected(0, 100)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [40, 40, 20]
    source = progress[-1]["sources"][0]
    assert source["endOffset"] == source["latestOffset"] == {topic: {"0": 50, "1": 50}}
    produce(bootstrap, topic, 100, 50)
    stream.run(commitGroup=f"{topic}-group")
    assert stream.rows() == expected(0, 150)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-group"})
    committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=10)
    consumer.close()
    assert [each.offset for each in committed] == [75, 75]


def test_partitions_that_come_later_are_read_from_their_beginning(
    stream: Stream, bootstrap: str, topic: str, admin: Admin
) -> None:
    produce(bootstrap, topic, 0, 10)
    stream.run()
    admin.create_partitions(topic, 3)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"new", partition=2)
    producer.flush()
    stream.run()
    assert stream.rows() == sorted([*expected(0, 10), "new"])


def test_records_that_are_gone_stop_the_stream_unless_that_is_allowed(
    stream: Stream, bootstrap: str, topic: str, admin: Admin
) -> None:
    from ottla.base.names import TopicPartition as Place  # noqa: PLC0415 (a name that the other library has as well)

    produce(bootstrap, topic, 0, 20)
    stream.run()
    produce(bootstrap, topic, 20, 20)
    delete_records(admin.client, {Place(topic, 0): 15})
    with pytest.raises(
        Exception, match=f"{topic}-0 offsets 10 to 20: offset 10 is not in the log, which holds 15 to 20"
    ):
        stream.run()
    stream.run(failOnDataLoss="false")
    lost = [f"v{number}" for number in range(20, 30, 2)]
    assert stream.rows() == [value for value in expected(0, 40) if value not in lost]


def test_a_topic_made_anew_stops_the_stream_unless_that_is_allowed(
    stream: Stream, bootstrap: str, topic: str, admin: Admin
) -> None:
    produce(bootstrap, topic, 0, 20)
    stream.run()
    admin.delete_topics([topic])
    admin.create_topic(topic, partitions=2, configs=KEPT)
    produce(bootstrap, topic, 100, 4)
    with pytest.raises(Exception, match=f"{topic}-0 was read up to offset 10, but now it ends at 2"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.rows() == sorted([*expected(0, 20), *expected(100, 4)])
