"""Brokers that reach each other over TLS, with certificates on both sides."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.certificates import Authority
from tests.cluster.conftest import SETTINGS
from tests.conftest import free_port

from ottla.testing.cluster import Cluster

WAIT_SECONDS = 60


def settings_of(folder: Path, authority: Authority, broker_id: int, is_between_brokers: bool) -> dict[str, str]:
    name = f"broker-{broker_id}"
    plain, inner = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},INNER://127.0.0.1:{inner}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:SSL",
        "listener.name.inner.ssl.client.auth": "required",
        "listener.name.inner.ssl.keystore.location": authority.issue(name).pem(folder / f"{name}.pem"),
        "listener.name.inner.ssl.truststore.location": str(folder / "ca.pem"),
    }
    return settings | ({"inter.broker.listener.name": "INNER"} if is_between_brokers else {})


def start(folder: Path, is_between_brokers: bool) -> Cluster:
    authority = Authority()
    authority.certificate_pem(folder / "ca.pem")
    each = {number: settings_of(folder, authority, number, is_between_brokers) for number in (1, 2, 3)}
    return Cluster(3, SETTINGS, each=each).start()  # type: ignore[arg-type]


class Load:
    """Writes numbers with acks=all until it is stopped; `written` holds the acknowledged ones."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: list[int] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._on_delivery)
            self._producer.poll(0.002)
            number += 1
        assert self._producer.flush(WAIT_SECONDS) == 0

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.written.append(int(message.value()))  # type: ignore[attr-defined]

    def stop(self) -> list[int]:
        self._stop.set()
        self._thread.join(WAIT_SECONDS)
        return self.written


def read_all(bootstrap: str, topic: str, count: int) -> Iterator[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        for _ in range(count):
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None
            yield int(message.value() or b"-1")
    finally:
        consumer.close()


def connections_to(port: int) -> int:
    """How many are open to a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def inner_ports(cluster: Cluster) -> list[int]:
    return [int(str(broker.settings["listeners"]).rpartition(":")[2]) for broker in cluster.brokers]


def test_replication_and_fail_over_between_brokers_over_tls(tmp_path: Path) -> None:
    with start(tmp_path, is_between_brokers=True) as cluster:
        topic = cluster.create_topic("orders", assignment={0: [1, 2, 3]})
        load = Load(cluster.bootstrap, topic)
        try:
            cluster.wait_until_whole()
            cluster.leader_of(topic).kill()
            cluster.start_brokers()
            cluster.wait_until_whole()
            assert sum(map(connections_to, inner_ports(cluster))) >= 4  # fetchers, polls: nothing goes another way
        finally:
            written = load.stop()
        assert written
        assert list(read_all(cluster.bootstrap, topic, len(written))) == written
        for broker in cluster.brokers:
            assert "Traceback" not in broker.logs


@pytest.mark.faults
def test_a_rolling_change_from_plain_to_tls_under_load_loses_nothing(tmp_path: Path) -> None:
    with start(tmp_path, is_between_brokers=False) as cluster:
        topic = cluster.create_topic("orders", assignment={0: [1, 2, 3]})
        load = Load(cluster.bootstrap, topic)
        try:
            for broker in cluster.brokers:
                broker.settings["inter.broker.listener.name"] = "INNER"
                broker.stop()
                broker.start()
                cluster.wait_until_whole()
            assert sum(map(connections_to, inner_ports(cluster))) >= 4
        finally:
            written = load.stop()
        assert written
        assert list(read_all(cluster.bootstrap, topic, len(written))) == written
