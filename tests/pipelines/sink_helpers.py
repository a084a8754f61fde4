"""Common parts of sink tests: topics, records for a read_committed reader, and batches."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.02
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC)
DIFFICULT = (
    "id int, text string, ratio double, price decimal(12,3), raw binary, at timestamp, day date, ok boolean,"
    " tags array<string>, place struct<x:double,name:string>"
)


def new_topic(bootstrap: str, partitions: int = 2, **settings: str) -> str:
    name = f"sink-{uuid.uuid4().hex[:10]}"
    wanted = NewTopic(name, partitions, -1, config={key.replace("_", "."): value for key, value in settings.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([wanted])[name].result()
    return name


def committed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All records, partition by partition; call it after every transaction in the topic has ended."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    reader = Consumer({**settings, "isolation.level": isolation, "fetch.wait.max.ms": 10, "enable.auto.commit": False})
    ends = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        partitions = sorted(reader.list_topics(topic, timeout=20).topics[topic].partitions)
        behind = {number: ends.get_watermark_offsets(TopicPartition(topic, number), 20)[1] for number in partitions}
        behind = {number: end for number, end in behind.items() if end > 0}
        reader.assign([TopicPartition(topic, number, 0) for number in behind])
        found: list[Message] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        while behind:
            assert time.monotonic() < deadline, f"{topic}: {behind} were not reached"
            for message in reader.consume(5000, LOOK_SECONDS):
                if message.error() is None:
                    found.append(message)
                elif message.error().code() != KafkaError._PARTITION_EOF:
                    continue
                elif message.offset() >= behind.get(message.partition(), 0):
                    behind.pop(message.partition(), None)
        return sorted(found, key=lambda each: (each.partition(), each.offset()))
    finally:
        reader.close()
        ends.close()


def values(bootstrap: str, topic: str) -> list[Any]:
    return [json.loads(message.value()) for message in committed(bootstrap, topic)]


def difficult(spark: SparkSession) -> DataFrame:
    rows: list[Any] = [
        (1, "plain", 1.5, decimal.Decimal("1234567.125"), b"\x00\xff", NOON, NOON.date(), True, ["a", "b"], (1.0, "n")),
        (2, 'comma, "quote"\nline \u20ac', float("nan"), None, b"", None, None, False, [], (float("inf"), None)),
        (3, "", float("-inf"), decimal.Decimal("-0.001"), None, NOON, None, None, None, None),
        (4, None, None, None, None, None, None, None, None, None),
    ]
    return spark.createDataFrame(rows, DIFFICULT)
