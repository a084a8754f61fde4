"""F15 and R12 on a real network that loses packets: data arrives, pauses are short, affected brokers are named.

Namespaces joined by TUN devices (ottla.testing.lossy_network): it needs root. Where that cannot be had, these tests
fail with the reason.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cluster.lossy_cluster import lossy_cluster

from ottla.cli.main import main as ottla
from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster
from ottla.testing.lossy_network import LossyNetwork

BROKER, CLIENT = 1, 2
TOPIC = "orders"
METRICS_PORT = 9404
BAD = {"loss": 0.03, "delay_ms": 10.0, "reorder": 0.02}


@pytest.fixture
def network() -> Iterator[LossyNetwork]:
    with LossyNetwork() as made:
        yield made


def start(network: LossyNetwork, settings: dict[str, str | int] | None = None) -> Broker:
    listener = {"listeners": f"PLAINTEXT://{network.address(BROKER)}:9092", "ottla.metrics.port": METRICS_PORT}
    with network.inside(BROKER):
        return Broker({**listener, **(settings or {})}, topics={TOPIC: 1}).start()


class Traffic:
    """A producer and a consumer on the client's host; every record is numbered."""

    def __init__(self, network: LossyNetwork, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "client.id": "shop"}
        with network.inside(CLIENT):
            self.producer = Producer(settings | {"enable.idempotence": True, "linger.ms": 0})
            self.consumer = Consumer(settings | {"group.id": "shop", "enable.auto.commit": False})
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.sent = 0
        self.seen: list[int] = []

    def exchange(self, seconds: float) -> None:
        """Some records a second, both ways; what comes is noted."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.producer.produce(TOPIC, str(self.sent).ljust(1000))
            self.sent += 1
            self.producer.poll(0)
            self._take(0.01)

    def end(self, seconds_max: float) -> None:
        assert self.producer.flush(seconds_max) == 0
        deadline = time.monotonic() + seconds_max
        while len(self.seen) < self.sent and time.monotonic() < deadline:
            self._take(0.5)
        assert self.seen == list(range(self.sent)), "each record once, in its order"

    def _take(self, seconds: float) -> None:
        message = self.consumer.poll(seconds)
        if message is not None and message.error() is None:
            self.seen.append(int(message.value()))


def findings(network: LossyNetwork, broker: Broker, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """What doctor tells of bad links, asked beside the broker."""
    capsys.readouterr()
    with network.inside(BROKER):
        url = f"http://127.0.0.1:{METRICS_PORT}"
        ottla(["doctor", "--bootstrap-server", broker.bootstrap_servers, "--url", url, "--json"])
    told: list[dict[str, str]] = json.loads(capsys.readouterr().out)["findings"]
    return [finding for finding in told if finding["case"] == "F15"]


def test_records_arrive_over_a_bad_link_and_doctor_names_the_client_behind_it(
    network: LossyNetwork, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start(network, {"ottla.socket.congestion.control": "reno"})  # every kernel has it
    try:
        assert not findings(network, broker, capsys)
        network.set(**BAD)
        traffic = Traffic(network, broker.bootstrap_servers)
        traffic.exchange(2.0)
        network.set(BROKER, CLIENT, loss=1.0)  # what the broker sends is lost; what the client sends arrives
        traffic.exchange(0.7)
        network.set(BROKER, CLIENT, **BAD)
        traffic.end(30.0)
        (finding,) = findings(network, broker, capsys)
        assert finding["what"].startswith(
            f"client 'shop' at {network.address(CLIENT)} gets no data for a while, then it goes on: "
        )
        counts = network.counts(BROKER, CLIENT)
        assert counts.lost > 0
        assert counts.reordered > 0
    finally:
        broker.close()


def test_a_client_with_a_dead_machine_is_disconnected_after_the_timeout(network: LossyNetwork) -> None:
    broker = start(network, {"ottla.socket.user.timeout.ms": 2000})
    try:
        traffic = Traffic(network, broker.bootstrap_servers)
        traffic.exchange(1.0)
        assert connections(network, broker) > 1
        network.set(loss=1.0)
        deadline = time.monotonic() + 20
        while connections(network, broker) > 1 and time.monotonic() < deadline:
            time.sleep(0.3)
        assert connections(network, broker) <= 1
    finally:
        broker.close()


def connections(network: LossyNetwork, broker: Broker) -> int:
    from ottla.operations.metric_readings import read_metrics  # noqa: PLC0415

    with network.inside(BROKER):
        return int(read_metrics(f"http://127.0.0.1:{METRICS_PORT}").total("ottla_tcp_connections"))


@pytest.mark.faults
@pytest.mark.parametrize("direction", [(BROKER, CLIENT), (CLIENT, BROKER)])
def test_a_link_that_loses_everything_in_one_direction_for_a_minute_heals(
    network: LossyNetwork, direction: tuple[int, int]
) -> None:
    broker = start(network)
    try:
        network.set(delay_ms=10)
        traffic = Traffic(network, broker.bootstrap_servers)
        traffic.exchange(2.0)
        network.set(*direction, loss=1.0)
        traffic.exchange(60.0)
        network.set(*direction, loss=0.0)
        traffic.exchange(2.0)
        traffic.end(120.0)
    finally:
        broker.close()


@pytest.fixture
def lossy_brokers() -> Iterator[tuple[LossyNetwork, Cluster]]:
    with LossyNetwork(hosts=4) as network, lossy_cluster(network) as cluster:
        yield network, cluster


@pytest.mark.faults
def test_followers_stay_in_sync_while_one_packet_of_a_hundred_is_lost(
    lossy_brokers: tuple[LossyNetwork, Cluster],
) -> None:
    """The same for five minutes: python -m bench.lossy --followers --seconds 300."""
    network, cluster = lossy_brokers
    brokers = [broker.id for broker in cluster.brokers]
    with network.inside(4):
        cluster.create_topic(TOPIC, 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for one in brokers:
        for other in brokers:
            if one != other:
                network.set(one, other, loss=0.01, delay_ms=10)
    failed: list[Any] = []
    sizes: set[int] = set()
    until(
        60.0,
        lambda: send_some(producer, failed),
        lambda: sizes.update(len(partition.isrs) for partition in partitions(producer)),
    )
    assert producer.flush(30) == 0
    assert not failed
    assert sizes == {3}, "no replica has left the ISR"


def until(seconds: float, work: Callable[[], None], look: Callable[[], None]) -> None:
    """Work all the time, and look once a second."""
    end = time.monotonic() + seconds
    stopped = threading.Event()

    def look_on() -> None:
        while not stopped.wait(1.0):
            look()

    watcher = threading.Thread(target=look_on)
    watcher.start()
    try:
        while time.monotonic() < end:
            work()
    finally:
        stopped.set()
        watcher.join()


def send_some(producer: Producer, failed: list[Any]) -> None:
    producer.produce(TOPIC, bytes(1000), on_delivery=lambda error, _: failed.append(error) if error else None)
    producer.poll(0.005)


def partitions(producer: Producer) -> list[Any]:
    return list(producer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values())
