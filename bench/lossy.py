"""`python -m bench.lossy`: the effect of a network with packet loss on clients, beside Apache Kafka.

Each broker runs on its own host, its clients on another; between them is a real link with loss and delay
(ottla.testing.lossy_network; congestion control is cubic, as Linux has it). Loads for each kind of link:
* consumer: 200 messages/s of 1,000 bytes are written locally and read over the link, with librdkafka's defaults;
* producer: the same in the other direction;
  these two run for all systems at the same time, under equal conditions;
* answers: 1 MiB a Fetch, one after the other, as fast as they come (by `sendfile`), one system after the other;
* followers (`--followers`): three brokers, each on its own host, all links bad; 200 messages/s with acks=all.
Figures are the longest time without data, the 99th percentile from send to receive, and MB/s. It needs root.
"""

import argparse
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.lossy_cluster import lossy_cluster

from bench import wire
from bench.batches import batch_of_bytes
from bench.broker_process import BrokerProcess
from bench.kafka_cluster import KafkaCluster
from bench.kafka_process import KafkaProcess
from bench.loads.fetch import Reader
from bench.ottla_process import OttlaProcess
from bench.raw_client import Connection, Target, create_topic
from ottla.testing.lossy_network import LossyNetwork

RATE, SIZE_BYTES = 200, 1000
WARM_UP_SECONDS = 2.0
STORED, STORED_TIMES, ANSWER_BYTES = batch_of_bytes(65_536, SIZE_BYTES), 512, 1 << 20
ANSWERS_SHARE = 5  # of the time that the others have
QUICK = ((0.01, 20), (0.05, 20))
ALL = tuple((loss, round_trip_ms) for loss in (0.001, 0.01, 0.05) for round_trip_ms in (1, 20, 80))
RECOMMENDED = {
    "ottla.socket.congestion.control": "bbr",
    "ottla.socket.retransmission.timeout.min.ms": "50",
    "socket.send.buffer.bytes": "-1",
    "ottla.socket.unsent.max.bytes": "131072",
}
# The same for the kernel of clients, who have no settings of sockets.
CLIENT_SYSCTLS = {"net.ipv4.tcp_rto_min_us": "50000", "net.ipv4.tcp_thin_linear_timeouts": "1"}
STAMP = struct.Struct(">Q")


class System(NamedTuple):
    """A broker under test, on its host, and the host of its clients."""

    name: str
    host: int
    clients: int
    process: BrokerProcess


class Arrivals:
    """Arrival times of messages, and their ages."""

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self._last = begin
        self.longest_s = 0.0
        self.ages_s: list[float] = []

    def note(self, value: bytes) -> None:
        now = time.perf_counter()
        if now < self.begin:
            return
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self.ages_s.append(now - STAMP.unpack_from(value)[0] / 1e9)

    def end(self) -> dict[str, float]:
        self.longest_s = max(self.longest_s, time.perf_counter() - self._last)
        ages = sorted(self.ages_s) or [float("inf")]
        return {
            "pause_ms": self.longest_s * 1000,
            "p50_ms": ages[len(ages) // 2] * 1000,
            "p99_ms": ages[int(len(ages) * 0.99)] * 1000,
            "messages": len(self.ages_s),
        }


class TimeIsUpError(Exception):
    """The time of a load is over."""


class WatchedReader(Reader):
    """Records the longest time without a byte of an answer."""

    def watch(self, seconds: float) -> dict[str, float]:
        self.begin = self.last = time.perf_counter()
        self.end, self.longest_s, self.seen_bytes = self.begin + seconds, 0.0, 0
        self.connection.socket.settimeout(1.0)
        try:
            while True:
                self.fetch_next()
        except TimeIsUpError:
            pass
        elapsed = time.perf_counter() - self.begin
        return {"mb_per_s": self.seen_bytes / elapsed / 1e6, "pause_ms": self.longest_s * 1000}

    def fetch_next(self) -> int:
        self.connection.send(wire.fetch_request(self.topic, self.partition, self.offset, self.bytes_max))
        self._fill(memoryview(self._head))
        head = wire.read_fetch_head(memoryview(self._head)[4:], self.topic)
        left = int.from_bytes(self._head[:4], "big") - (len(self._head) - 4)
        while left > 0:
            left -= self._some(memoryview(self._scratch)[: min(left, len(self._scratch))])
        self.offset += head.records_bytes // self.batch_bytes * self._records_per_batch
        if self.offset >= head.high_watermark:
            self.offset = 0
        return head.records_bytes

    def _fill(self, view: memoryview) -> None:
        while view:
            view = view[self._some(view) :]

    def _some(self, view: memoryview) -> int:
        try:
            received = self.connection.socket.recv_into(view)
        except TimeoutError:
            received = 0
        now = time.perf_counter()
        self.longest_s = max(self.longest_s, now - self.last)
        if received:
            self.last = now
            self.seen_bytes += received
        if now > self.end:
            raise TimeIsUpError
        return received


def paced(network: LossyNetwork, system: System, seconds: float, topics: Sequence[str]) -> dict[str, dict[str, float]]:
    """The loads of consumers and producers at the same time: they share nothing but the link."""
    begin = time.perf_counter() + WARM_UP_SECONDS
    found, end = [Arrivals(begin), Arrivals(begin)], begin + seconds
    producers, consumers = [], []
    for topic, producing, consuming in (
        (topics[0], system.host, system.clients),
        (topics[1], system.clients, system.host),
    ):
        with network.inside(producing):
            producers.append(Producer(system.process.target.client_settings | {"client.id": "paced-producer"}))
        with network.inside(consuming):
            consumers.append(open_consumer(system.process.target, topic))

    def receive(consumer: Consumer, arrivals: Arrivals) -> None:
        while time.perf_counter() < end:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                arrivals.note(message.value())
        consumer.close()

    threads = [threading.Thread(target=receive, args=pair) for pair in zip(consumers, found, strict=True)]
    for thread in threads:
        thread.start()
    keep_pace(
        lambda value: [producer.produce(topic, value) for topic, producer in zip(topics, producers, strict=True)], end
    )
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.purge()
        producer.flush(1)
    return {"consumer": found[0].end(), "producer": found[1].end()}


def keep_pace(send: Callable[[bytes], object], end: float) -> None:
    due = time.perf_counter()
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        send(STAMP.pack(time.perf_counter_ns()).ljust(SIZE_BYTES, b"x"))
        due += 1 / RATE


def open_consumer(target: Target, topic: str) -> Consumer:
    consumer = Consumer(target.client_settings | {"group.id": "lossy", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, -1)])  # from the end on
    return consumer


def measure(
    network: LossyNetwork, systems: Sequence[System], links: Sequence[tuple[float, int]], seconds: float
) -> Iterator[dict[str, Any]]:
    """A row for each link, system and load."""
    topics: dict[str, tuple[str, str, str]] = {}
    for system in systems:
        with network.inside(system.host):
            topics[system.name] = prepare(system.process.target)
    for loss, round_trip_ms in links:
        network.set(loss=0.0, delay_ms=round_trip_ms / 2)
        readers = {}
        for system in systems:
            with network.inside(system.clients):
                stored = topics[system.name][2]
                readers[system.name] = WatchedReader(system.process.target, stored, 0, ANSWER_BYTES, len(STORED.data))
        network.set(loss=loss)
        with ThreadPoolExecutor(len(systems)) as pool:
            together = [pool.submit(paced, network, system, seconds, topics[system.name][:2]) for system in systems]
            rows = {system.name: each.result() for system, each in zip(systems, together, strict=True)}
        for name, reader in readers.items():
            rows[name]["answers"] = reader.watch(seconds / ANSWERS_SHARE)
            reader.connection.close()
        for load in ("consumer", "producer", "answers"):
            for name, figures in rows.items():
                yield {"loss": loss, "rtt": round_trip_ms, "system": name, "load": load, **figures[load]}


def prepare(target: Target) -> tuple[str, str, str]:
    """Topics for consumers and producers, and one that is full."""
    stored = create_topic(target, "stored", 1)
    with Connection(target) as connection:
        request = wire.produce_request(stored, 0, STORED.data)
        connection.produce_first(request, stored)
        for _ in range(STORED_TIMES - 1):
            connection.produce(request, stored)
    return create_topic(target, "consumed", 1), create_topic(target, "produced", 1), stored


@contextmanager
def running(network: LossyNetwork, with_kafka: bool) -> Iterator[list[System]]:
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        systems = []

        def start(name: str, kind: type[BrokerProcess], settings: dict[str, str]) -> None:
            host, clients = 2 * len(systems) + 1, 2 * len(systems) + 2
            with network.inside(host):
                log = Path(folder, f"{host}.log")
                process = stack.enter_context(kind(log, host=network.address(host), settings=settings))
            systems.append(System(name, host, clients, process))

        if with_kafka:
            start("kafka", KafkaProcess, {})
        start("ottla", OttlaProcess, {})
        start("recommended", OttlaProcess, RECOMMENDED)
        for name, value in CLIENT_SYSCTLS.items():
            network.sysctl(systems[-1].clients, name, value)
        network.control_congestion(systems[-1].clients, "bbr")
        yield systems


def measure_followers(
    network: LossyNetwork, name: str, bootstrap: str, seconds: float, link: tuple[float, int]
) -> dict[str, Any]:
    """Acknowledgements of all replicas, and how often the set of those in sync has changed."""
    *brokers, last = network.hosts
    topic = "followed"
    with network.inside(last):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(60)
    loss, round_trip_ms = link
    for one in brokers:
        for other in brokers:
            if one != other:
                network.set(one, other, loss=loss, delay_ms=round_trip_ms / 2)
    begin = time.perf_counter() + WARM_UP_SECONDS
    arrivals, end, failed, in_sync, changes = Arrivals(begin), begin + seconds, [0], {}, [0]

    def acknowledged(error: object, message: Any) -> None:
        failed[0] += error is not None
        arrivals.note(message.value())

    def look() -> None:
        while time.perf_counter() < end:
            for number, partition in producer.list_topics(topic, timeout=20).topics[topic].partitions.items():
                now = tuple(sorted(partition.isrs))
                changes[0] += in_sync.get(number, now) != now
                in_sync[number] = now
            time.sleep(0.5)

    def send(value: bytes) -> None:
        producer.produce(topic, value, on_delivery=acknowledged)
        producer.poll(0)

    watcher = threading.Thread(target=look)
    watcher.start()
    keep_pace(send, end)
    figures = arrivals.end()
    watcher.join()
    producer.flush(30)
    counts = {"isr_changes": float(changes[0]), "failed": float(failed[0])}
    return {"loss": loss, "rtt": round_trip_ms, "system": name, "load": "followers", **figures, **counts}


def run_followers(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    link = (0.01, 20)
    if not options.no_kafka:
        with LossyNetwork(hosts=4) as network, KafkaCluster(3, network=network) as kafka:
            yield measure_followers(network, "kafka", kafka.bootstrap, options.seconds, link)
    for name, settings in (("ottla", {}), ("recommended", RECOMMENDED)):
        with LossyNetwork(hosts=4) as network, lossy_cluster(network, settings) as cluster:
            yield measure_followers(network, name, cluster.bootstrap, options.seconds, link)


def told(row: dict[str, Any]) -> str:
    figures = (f"{name} {value:.1f}" for name, value in row.items() if isinstance(value, float) and name != "loss")
    return f"{row['loss']:.1%} {row['rtt']:>3} ms  {row['load']:<9} {row['system']:<12} {', '.join(figures)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lossy", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 %% and 5 %% at 20 ms only")
    parser.add_argument("--seconds", type=float, default=40.0, help="of consumers and producers (default: 40)")
    parser.add_argument("--no-kafka", action="store_true", help="ottla alone")
    parser.add_argument("--followers", action="store_true", help="three brokers, 1 %% lost between them, 20 ms")
    options = parser.parse_args()
    if options.followers:
        for row in run_followers(options):
            print(told(row), flush=True)
        return
    with LossyNetwork(hosts=6) as network, running(network, not options.no_kafka) as systems:
        for row in measure(network, systems, QUICK if options.quick else ALL, options.seconds):
            print(told(row), flush=True)


if __name__ == "__main__":
    main()
