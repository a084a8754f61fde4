"""What the tests of sinks share: topics, records that a committed reader sees, and batches."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipelines.sinks.batch import Batch

READ_SECONDS_MAX = 60.0


def new_topic(bootstrap: str, partitions: int = 2, **settings: str) -> str:
    name = f"sink-{uuid.uuid4().hex[:10]}"
    wanted = NewTopic(name, partitions, -1, config={key.replace("_", "."): value for key, value in settings.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([wanted])[name].result()
    return name


def committed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All records, partition by partition; only after every transaction in the topic is decided."""
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
            for message in reader.consume(5000, 0.2):
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


def batches(query: str, folder: Path) -> Iterable[Batch]:
    number = 0
    while True:
        yield Batch(query, number, str(folder))
        number += 1
