"""The drill of docs/backup.md for a cluster: all of it copied, wiped and put back, under load and without."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.backup_records import commit, committed, copy, create, read, send, setting
from tests.faults.cluster_replicas import compare_replicas, read_replica

from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults

SETTINGS: dict[str, object] = {"zookeeper.session.timeout.ms": 9000, "min.insync.replicas": 2}
BEFORE = [b"before-%03d" % number for number in range(500)]
AFTER = [b"after-%03d" % number for number in range(100)]
PARTITIONS = 3


class Load(threading.Thread):
    """Writes on and on, and knows what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.acknowledged: list[bytes] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        )
        number = 0
        while not self.is_over.is_set():
            value = b"load-%06d" % number
            producer.produce("orders", value, on_delivery=self.note)
            producer.poll(0.001)
            number += 1
        producer.flush(60)

    def note(self, problem: object, record: object) -> None:
        if problem is None:
            self.acknowledged.append(record.value())  # type: ignore[attr-defined]


@contextmanager
def load(bootstrap: str) -> Iterator[Load]:
    made = Load(bootstrap)
    made.start()
    try:
        yield made
    finally:
        made.is_over.set()
        made.join(90)


def test_a_cluster_that_was_stopped_is_put_back_as_it_was(tmp_path: Path) -> None:
    with Cluster(3, SETTINGS) as cluster:  # type: ignore[arg-type]
        fill(cluster)
        cluster.stop_brokers()
        cluster.zookeeper.stop()
        copy_all(cluster, tmp_path)
        cluster.zookeeper.start()
        cluster.start_brokers()
        send(cluster.bootstrap, "orders", AFTER)
        commit(cluster.bootstrap, "billing", "orders", 9)

        put_back(cluster, tmp_path)
        assert read(cluster.bootstrap, "orders", PARTITIONS) == sorted(BEFORE)
        assert committed(cluster.bootstrap, "billing", "orders") == 7
        assert setting(cluster.bootstrap, "orders", "retention.ms") == "123456789"
        send(cluster.bootstrap, "orders", AFTER)
        assert read(cluster.bootstrap, "orders", PARTITIONS) == sorted([*BEFORE, *AFTER])
        assert differences(cluster) == []


def test_snapshots_one_after_the_other_have_what_was_acknowledged_before_the_first(tmp_path: Path) -> None:
    """Brokers first and ZooKeeper last, all replicas in sync: what docs/backup.md promises, and no more."""
    with Cluster(3, SETTINGS) as cluster:  # type: ignore[arg-type]
        fill(cluster)
        with load(cluster.bootstrap) as writing:
            while len(writing.acknowledged) < 1000:
                assert writing.is_alive()
                writing.is_over.wait(0.01)
            promised = [*BEFORE, *writing.acknowledged]
            for broker in cluster.brokers:
                broker.pause()
                copy(broker.log_folders[0], tmp_path / str(broker.id))
                broker.resume()
            cluster.zookeeper.pause()
            copy(cluster.zookeeper.folder, tmp_path / "zookeeper")
            cluster.zookeeper.resume()

        put_back(cluster, tmp_path)
        found = read(cluster.bootstrap, "orders", PARTITIONS)
        assert not set(promised) - set(found)
        assert len(found) == len(set(found))
        send(cluster.bootstrap, "orders", AFTER)
        cluster.wait_until_whole()
        assert set(AFTER) <= set(read(cluster.bootstrap, "orders", PARTITIONS))
        assert differences(cluster) == []


def fill(cluster: Cluster) -> None:
    create(cluster.bootstrap, "orders", PARTITIONS, 3, retention_ms="123456789")
    send(cluster.bootstrap, "orders", BEFORE)
    commit(cluster.bootstrap, "billing", "orders", 7)
    cluster.wait_until_whole()


def copy_all(cluster: Cluster, backup: Path) -> None:
    for broker in cluster.brokers:
        copy(broker.log_folders[0], backup / str(broker.id))
    copy(cluster.zookeeper.folder, backup / "zookeeper")


def put_back(cluster: Cluster, backup: Path) -> None:
    """Nothing of what there is stays."""
    for broker in cluster.brokers:
        broker.kill()
        broker.wipe()
    cluster.zookeeper.kill()
    copy(backup / "zookeeper", cluster.zookeeper.folder)
    for broker in cluster.brokers:
        copy(backup / str(broker.id), broker.log_folders[0])
    cluster.zookeeper.start()
    cluster.start_brokers()
    cluster.wait_until_whole()


def differences(cluster: Cluster) -> list[str]:
    """Of the replicas of all partitions, once all writers have stopped."""
    cluster.stop_brokers()
    found: list[str] = []
    for number in range(PARTITIONS):
        logs = {broker.id: read_replica(broker.log_folders[0] / f"orders-{number}") for broker in cluster.brokers}
        end = max(batches[-1].last_offset + 1 for batches in logs.values() if batches)
        found += compare_replicas(("orders", number), logs, end)
    return found
