"""What a drill of backups writes before and after the copy, and finds when the copy is put back."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

SECONDS_MAX = 60.0


def create(bootstrap: str, topic: str, partitions: int, replicas: int, **settings: str) -> None:
    wanted = NewTopic(
        topic, partitions, replicas, config={key.replace("_", "."): value for key, value in settings.items()}
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name of its own: it must outlive the question
    admin.create_topics([wanted])[topic].result(SECONDS_MAX)


def setting(bootstrap: str, topic: str, name: str) -> str:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([asked])[asked].result(SECONDS_MAX)
    return str(found[name].value)


def send(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    """All of them are acknowledged when it returns."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(
            topic, value, key=value, on_delivery=lambda problem, _: failed.append(problem) if problem else None
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == []


def transaction(bootstrap: str, topic: str, value: bytes, *, is_committed: bool) -> Producer:
    """A transaction that has ended, or that is left open as if its producer were still at work."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"backup-{value.decode()}"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, value)
    assert producer.flush(SECONDS_MAX) == 0
    if is_committed:
        producer.commit_transaction(SECONDS_MAX)
    return producer


def read(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """All that is committed, from the beginning to the end, in any order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "backup-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # an answer without records marks the end
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[bytes] = []
    ended = 0
    while ended < partitions:
        record = consumer.poll(SECONDS_MAX)
        assert record is not None, f"{len(found)} records, and then nothing more"
        if record.error() is None:
            found.append(record.value() or b"")
        elif record.error().code() == -191:  # the end of a partition
            ended += 1
        else:
            raise KafkaException(record.error())
    consumer.close()
    return sorted(found)


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)
    consumer.close()
    return int(found.offset)


def copy(source: Path, target: Path) -> None:
    """With everything in it, in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
