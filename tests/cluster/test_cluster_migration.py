"""A broker that was alone becomes the first of a cluster: nothing of what it had is lost, and others can join it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing.broker import Broker
from ottla.testing.zookeeper import ZooKeeperProcess

RECORDS = 500
SECONDS_MAX = 30.0


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Broker]:
    settings = {"node.id": 3, "transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2}
    with Broker(settings, topics={"orders": {"partitions": 3, "retention.ms": 86_400_000}}) as broker:
        yield broker


def migrate(broker: Broker, connect: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "migrate", "to-cluster", str(broker.data_folder)]
    return subprocess.run(
        [*command, "--zookeeper", connect], check=False, capture_output=True, text=True, timeout=SECONDS_MAX
    )


def write(broker: Broker, first: int, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    for number in range(first, first + RECORDS):
        producer.produce("orders", b"%d" % number, b"k%d" % (number % 7))
    producer.commit_transaction(SECONDS_MAX)


def consumer(broker: Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read(broker: Broker, group: str, count: int) -> list[int]:
    """What a group has not read yet; its offsets are committed."""
    reader = consumer(broker, group)
    reader.subscribe(["orders"])
    values: list[int] = []
    while len(values) < count:
        records = reader.consume(count - len(values), 10.0)
        assert records, f"{len(values)} of {count}"
        values += [int(record.value()) for record in records]
    reader.commit(asynchronous=False)
    reader.close()
    return sorted(values)


def committed(broker: Broker, group: str) -> list[int]:
    reader = consumer(broker, group)
    found = reader.committed([TopicPartition("orders", index) for index in range(3)], SECONDS_MAX)
    reader.close()
    return [each.offset for each in found]


def test_records_groups_and_transactions_are_there_afterwards(
    alone: Broker, zookeeper: ZooKeeperProcess, chroot: str
) -> None:
    write(alone, 0, "writer")
    assert read(alone, "readers", RECORDS) == list(range(RECORDS))
    offsets = committed(alone, "readers")
    write(alone, RECORDS, "writer")
    connect = zookeeper.connect + chroot

    refused = migrate(alone, connect)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1, "a broker that runs keeps its metadata"

    alone.stop()
    done = migrate(alone, connect)
    assert done.returncode == 0, done.stderr
    assert "moved 3 topics with 7 partitions" in done.stdout
    assert f"broker.id=3\n  zookeeper.connect={connect}" in done.stdout
    assert not (alone.data_folder / "ottla.metadata.db").exists()
    assert (alone.data_folder / "ottla.metadata.db.migrated").exists()

    alone.settings["zookeeper.connect"] = connect
    alone.start()
    assert committed(alone, "readers") == offsets
    assert read(alone, "readers", RECORDS) == list(range(RECORDS, 2 * RECORDS))
    assert read(alone, "others", 2 * RECORDS) == list(range(2 * RECORDS))
    write(alone, 2 * RECORDS, "writer")  # the producer is known, and its epoch goes on
    assert read(alone, "others", RECORDS) == list(range(2 * RECORDS, 3 * RECORDS))

    with Broker({"node.id": 4, "zookeeper.connect": connect}) as second:
        assert read(second, "by way of the second", 3 * RECORDS) == list(range(3 * RECORDS))


def test_a_cluster_that_has_topics_is_refused(alone: Broker, zookeeper: ZooKeeperProcess, chroot: str) -> None:
    connect = zookeeper.connect + chroot
    with Broker({"zookeeper.connect": connect}, topics=["theirs"]) as other:
        alone.stop()
        running = migrate(alone, connect)
        other.stop()
    stopped = migrate(alone, connect)
    for refused in (running, stopped):
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "there is another cluster already" in refused.stderr
    assert (alone.data_folder / "ottla.metadata.db").exists()
    alone.start()


def test_an_impossible_migration_is_refused_in_one_line(tmp_path: Path, zookeeper: ZooKeeperProcess) -> None:
    for words, code in (
        ([str(tmp_path)], 2),
        ([str(tmp_path), "--zookeeper", "a:b"], 2),
        ([str(tmp_path), "--zookeeper", zookeeper.connect], 1),
    ):
        command = [sys.executable, "-m", "ottla.cli.main", "migrate", "to-cluster", *words]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert "Traceback" not in ended.stderr
