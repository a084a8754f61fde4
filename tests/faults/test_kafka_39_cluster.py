"""Apache Kafka 3.9 in ZooKeeper mode takes over a whole cluster, folders and ZooKeeper, and gives it back."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.conformance.conftest import find_jars
from tests.faults.kafka_39_broker import Kafka39Broker
from tests.faults.mixed_records import read_all, write_all
from tests.faults.zookeeper_kafka import KAFKA_VERSION, ZooKeeperKafka

from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

RECORDS = 2000
PARTITIONS = 4
SECONDS_MAX = 60.0
# Kafka brokers that start and stop together log each other's absence there, also without ottla's metadata.
COMPLAINT = re.compile(r"^\[[^]]+\] (?:ERROR|FATAL) (?!.*state\.change\.logger).*$", re.MULTILINE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    topics = {"orders": {"partitions": PARTITIONS, "retention.ms": "86400000"}, "small": 1}
    with Cluster(brokers=3, min_insync_replicas=2, topics=topics, logs_folder=tmp_path / "logs") as cluster:
        yield cluster


def write(bootstrap: str, first: int, topic: str = "orders", partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer", "linger.ms": 5})
    producer.init_transactions(SECONDS_MAX)
    for start in range(first, first + RECORDS, 500):
        producer.begin_transaction()
        for number in range(start, start + 500):
            producer.produce(topic, b"value %d" % number, b"key %d" % number, number % partitions)
        producer.commit_transaction(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"never seen", b"aborted", 0)
    producer.abort_transaction(SECONDS_MAX)


def read(bootstrap: str, group: str, count: int) -> list[tuple[int, int, bytes, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    found = []
    while len(found) < count:
        records = consumer.consume(count - len(found), 30.0)
        assert records, f"{len(found)} of {count}"
        found += [(each.partition(), each.offset(), each.key(), each.value()) for each in records]
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def committed(bootstrap: str, group: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition("orders", each) for each in range(PARTITIONS)], SECONDS_MAX)
    consumer.close()
    return [each.offset for each in found]


def test_records_groups_and_transactions_go_there_and_back(cluster: Cluster, tmp_path: Path) -> None:
    bootstrap = cluster.bootstrap
    write(bootstrap, 0)
    ours = read(bootstrap, "readers", RECORDS)
    offsets = committed(bootstrap, "readers")
    write(bootstrap, RECORDS)
    cluster.wait_until_whole()
    cluster.stop_brokers()

    jars = find_jars(KAFKA_VERSION)
    with ExitStack() as stack:
        brokers = []
        for broker in cluster.brokers:
            address, data = broker.bootstrap_servers, broker.data_folder
            folder = tmp_path / f"kafka{broker.id}"
            brokers.append(Kafka39Broker(folder, jars, broker.id, address, data, cluster.zookeeper.connect))
            stack.callback(brokers[-1].kill)
        for each in brokers:
            each.launch()
        for each in brokers:
            each.wait_until_ready()
        assert committed(bootstrap, "readers") == offsets
        both = ours + read(bootstrap, "readers", RECORDS)
        assert read(bootstrap, "all over again", 2 * RECORDS) == sorted(both)
        write(bootstrap, 2 * RECORDS)
        theirs = read(bootstrap, "readers", RECORDS)
        for each in brokers:
            each.stop()
        for each in brokers:
            assert COMPLAINT.findall(each.text) == [], each.text[-4000:]

    cluster.start_brokers()
    assert read(bootstrap, "once more", 3 * RECORDS) == sorted(both + theirs)
    write(bootstrap, 3 * RECORDS)
    assert len(read(bootstrap, "readers", RECORDS)) == RECORDS


def test_a_cluster_that_kafka_made_is_taken_over(tmp_path: Path) -> None:
    """Every kind of record that a log can hold, groups and settings; nothing is converted."""
    with ZooKeeperKafka(tmp_path / "kafka", find_jars(KAFKA_VERSION)) as kafka:
        kafka.start()
        write_all(kafka.bootstrap, RECORDS)
        before = read_all(kafka.bootstrap)
        kafka.kill9()
        settings = {
            "broker.id": 1,
            "log.dirs": str(kafka.data),
            "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}",
            "log.cleaner.enable": False,
        }
        with Broker(settings) as broker:  # Kafka's session is not over yet: its port refuses, so its node is replaced
            assert read_all(broker.bootstrap_servers) == before
            write(broker.bootstrap_servers, 0, topic="plain", partitions=3)
