"""Records of every kind that a log can hold, written by a real client, and read back one by one."""

import random
import time
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

POLL_SECONDS = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "plain": (3, {"segment.bytes": "1048576", "retention.ms": "-1"}),
    "codecs": (1, {}),
    "compacted": (1, {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}),
    "transactions": (2, {"segment.bytes": "1048576"}),
    "old.one_": (1, {"segment.ms": "1000"}),
    "empty": (2, {}),
}


class ReadPartition(NamedTuple):
    """All that a consumer sees of one partition."""

    low: int
    high: int
    records: list[tuple[Any, ...]]


def write_all(bootstrap: str, size: int) -> None:
    """`size` is the number of records of the largest topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, 1, config=configs) for name, (count, configs) in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result()
    chosen = random.Random(5)
    write_plain(bootstrap, chosen, size)
    write_codecs(bootstrap, chosen, max(3, size // 30))
    write_compacted(bootstrap, chosen, max(10, size // 30))
    write_transactions(bootstrap, chosen)
    write_old(bootstrap, chosen, max(5, size // 10))
    commit_offsets(bootstrap)


def producer(bootstrap: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, **settings})


def write_plain(bootstrap: str, chosen: random.Random, count: int) -> None:
    writer = producer(bootstrap, **{"enable.idempotence": True})
    for number in range(count):
        headers = [("place", b"%d" % number), ("none", None)] if number % 7 == 0 else None
        value = chosen.randbytes(chosen.randrange(0, 900))
        writer.produce("plain", value, b"key-%d" % (number % 97), number % 3, headers=headers)
        if number % 300 == 0:
            writer.flush()
    writer.flush()


def write_codecs(bootstrap: str, chosen: random.Random, count: int) -> None:
    for codec in CODECS:
        writer = producer(bootstrap, **{"compression.type": codec, "enable.idempotence": False})
        for number in range(count):
            writer.produce("codecs", b"abc%d" % number * chosen.randrange(1, 90), f"{codec}-{number}".encode(), 0)
        writer.flush()


def write_compacted(bootstrap: str, chosen: random.Random, count: int) -> None:
    writer = producer(bootstrap)
    for lap in range(4):
        for number in range(count):
            value = None if chosen.random() < 0.1 else b"lap-%d-%d" % (lap, number)
            writer.produce("compacted", value, b"key-%d" % chosen.randrange(12), 0)
        writer.flush()
        time.sleep(0.7)
    writer.produce("compacted", b"the end", b"last", 0)
    writer.flush()


def write_transactions(bootstrap: str, chosen: random.Random) -> None:
    for number in range(2):
        writer = producer(bootstrap, **{"transactional.id": f"transaction-{number}"})
        writer.init_transactions()
        for round_number in range(4):
            writer.begin_transaction()
            for place in range(6):
                key = b"%d-%d-%d" % (number, round_number, place)
                writer.produce("transactions", chosen.randbytes(60), key, place % 2)
            writer.flush()
            if (round_number + number) % 2 == 0:
                writer.abort_transaction()
            else:
                writer.commit_transaction()


def write_old(bootstrap: str, chosen: random.Random, count: int) -> None:
    """Five days ago, one record a second, in segments of a few seconds."""
    writer = producer(bootstrap)
    old_ms = int(time.time() * 1000) - 5 * 86_400_000
    for number in range(count):
        writer.produce("old.one_", chosen.randbytes(100), None, 0, timestamp=old_ms + number * 1000)
        if number % 3 == 0:
            writer.flush()
    writer.flush()


def commit_offsets(bootstrap: str) -> None:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    reader.commit(offsets=[TopicPartition("plain", 0, 5)], asynchronous=False)
    reader.close()


def read_all(bootstrap: str, topics: list[str] | None = None) -> dict[tuple[str, str, int], ReadPartition]:
    """By isolation level, topic and partition."""
    found = {}
    for isolation in ("read_uncommitted", "read_committed"):
        settings: dict[str, object] = {"group.id": "nobody", "isolation.level": isolation, "enable.partition.eof": True}
        settings |= {"enable.auto.commit": False, "fetch.wait.max.ms": 50}
        reader = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings})
        known = reader.list_topics(timeout=POLL_SECONDS).topics
        for topic in sorted(topics if topics is not None else TOPICS):
            for number in sorted(known[topic].partitions):
                found[isolation, topic, number] = read_partition(reader, topic, number)
        reader.close()
    return found


def read_partition(reader: Consumer, topic: str, number: int) -> ReadPartition:
    low, high = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=POLL_SECONDS)
    reader.assign([TopicPartition(topic, number, low)])
    records = []
    while True:
        message = reader.poll(POLL_SECONDS)
        assert message is not None, f"{topic}-{number} fell silent after {len(records)} records"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return ReadPartition(low, high, records)
        key, value, headers = message.key(), message.value(), message.headers()
        records.append((message.offset(), message.timestamp(), key, value, headers, message.leader_epoch()))
