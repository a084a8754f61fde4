"""`python -m bench.cluster`: three brokers, beside three of Apache Kafka on the same machine.

Fail-over, rolling restarts, records per second with three replicas, memory, refilling an empty replica, many
partitions. One system after the other, never both at once. `--quick` is an impression only.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import BenchError
from bench.kafka_cluster import KafkaCluster
from bench.paths import cache_folder
from bench.procfs import memory
from ottla.testing.cluster import Cluster

RECORD = b"x" * 1000
QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
WAIT_SECONDS_MAX = 120.0
# Pause between two rolls. librdkafka doubles its wait after each lost connection (up to reconnect.backoff.max.ms, 10 s)
# and resets it only after that time without a loss: restarts every two seconds are unrealistic.
REST_SECONDS = 12.0


class Node(Protocol):
    """A broker of either system."""

    id: int

    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def start(self) -> Any: ...
    @property
    def pid(self) -> int: ...


class System:
    """A running cluster of either system."""

    def __init__(self, name: str, bootstrap: str, nodes: list[Node], wipe: Callable[[Any], None]) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.nodes = {node.id: node for node in nodes}
        self.wipe = wipe
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    def create_topic(self, name: str, partitions: int, replicas: int = 3, **settings: str) -> float:
        """Seconds until it is answered and every partition has a leader."""
        begin = time.perf_counter()
        config = {key.replace("_", "."): value for key, value in settings.items()}
        (future,) = self.admin.create_topics(
            [NewTopic(name, partitions, replicas, config=config)], operation_timeout=60, request_timeout=120
        ).values()
        future.result(150)
        self.wait_for(lambda: len(self.leaders(name)) == partitions, f"leaders of {name}")
        return time.perf_counter() - begin

    def delete_topic(self, name: str) -> None:
        for future in self.admin.delete_topics([name], operation_timeout=60).values():
            future.result(90)

    def partitions(self, topic: str) -> dict[int, Any]:
        """Metadata from the first broker that answers."""
        try:
            return dict(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)
        except Exception:  # noqa: BLE001 (a cluster in the middle of a fail-over)
            return {}

    def leaders(self, topic: str) -> dict[int, int]:
        return {index: part.leader for index, part in self.partitions(topic).items() if part.leader >= 0}

    def wait_until_whole(self, topic: str, replicas: int = 3) -> None:
        def is_whole() -> bool:
            found = self.partitions(topic)
            return bool(found) and all(len(part.isrs) == replicas and part.leader >= 0 for part in found.values())

        self.wait_for(is_whole, f"all replicas of {topic} in sync")

    def controller_id(self) -> int:
        return int(self.admin.list_topics(timeout=10).controller_id)

    def wait_for(self, look: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not look():
            if time.monotonic() > end:
                raise BenchError(f"{self.name}: no {what} after {WAIT_SECONDS_MAX:.0f} s")
            time.sleep(0.05)

    def memory_mb(self) -> float:
        return sum(memory(node.pid).rss_mb for node in self.nodes.values())


class Pulse(threading.Thread):
    """Writes to each partition continuously, acks=all, default client settings; stores the time of each
    acknowledgement."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.last = dict.fromkeys(range(partitions), 0.0)
        self.longest_gap = 0.0
        self.errors: list[str] = []
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **QUIET})

    def run(self) -> None:
        while not self._is_over.is_set():
            for partition in self.last:
                self._producer.produce(self._topic, b"pulse", partition=partition, on_delivery=self._delivered)
            self._producer.poll(0.01)
        self._producer.flush(60)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        partition, now = message.partition() or 0, time.perf_counter()
        if self.last[partition]:
            self.longest_gap = max(self.longest_gap, now - self.last[partition])
        self.last[partition] = now

    def wait_for_all(self, since: float) -> float:
        """Seconds from `since` until every partition has an acknowledgement later than that."""
        end = time.monotonic() + WAIT_SECONDS_MAX
        while any(last <= since for last in self.last.values()):
            if time.monotonic() > end:
                raise BenchError(f"no acknowledgement within {WAIT_SECONDS_MAX:.0f} s")
            time.sleep(0.002)
        return max(self.last.values()) - since

    def first_after(self, partition: int, since: float) -> float:
        end = time.monotonic() + WAIT_SECONDS_MAX
        while self.last[partition] <= since:
            if time.monotonic() > end:
                raise BenchError(f"no acknowledgement within {WAIT_SECONDS_MAX:.0f} s")
            time.sleep(0.001)
        return self.last[partition] - since

    def stop(self) -> None:
        self._is_over.set()
        self.join(90)


def fail_over(system: System, rounds: int, *, is_controller: bool) -> dict[str, float]:
    """kill -9 of the leader to the next acknowledged write of its partition."""
    topic = f"fail-over-{is_controller}".lower()
    system.create_topic(topic, 3)
    pulse = Pulse(system.bootstrap, topic, 3)
    pulse.start()
    pulse.wait_for_all(time.perf_counter())
    seconds = []
    for number in range(rounds):
        leaders = system.leaders(topic)
        wanted = [index for index, leader in leaders.items() if (leader == system.controller_id()) == is_controller]
        partition = wanted[number % len(wanted)] if wanted else number % 3
        victim = system.nodes[leaders[partition]]
        time.sleep(0.3)
        victim.kill()
        seconds.append(pulse.first_after(partition, time.perf_counter()))
        victim.start()
        system.wait_until_whole(topic)
        pulse.wait_for_all(time.perf_counter())
    pulse.stop()
    system.delete_topic(topic)
    return {
        "median_s": statistics.median(seconds),
        "worst_s": max(seconds),
        "rounds": rounds,
        "errors": len(pulse.errors),
    }


def rolling_restart(system: System, rounds: int) -> dict[str, float]:
    system.create_topic("rolling", 6)
    pulse = Pulse(system.bootstrap, "rolling", 6)
    pulse.start()
    pulse.wait_for_all(time.perf_counter())
    pulse.longest_gap = 0.0
    took = 0.0
    for _ in range(rounds):
        begin = time.perf_counter()
        for node in system.nodes.values():
            node.stop()
            node.start()
            system.wait_until_whole("rolling")
        took += time.perf_counter() - begin
        time.sleep(REST_SECONDS)
    pulse.stop()
    system.delete_topic("rolling")
    return {"longest_gap_s": pulse.longest_gap, "seconds": took / rounds, "errors": len(pulse.errors)}


def throughput(system: System, seconds: float) -> dict[str, float]:
    """librdkafka, 1,000 B, three replicas, acks=all."""
    system.create_topic("throughput", 3)
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": system.bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    producer.list_topics("throughput", 10)
    _hand_over(producer, "throughput", 1.0)
    producer.flush(60)
    begin = time.perf_counter()
    count = _hand_over(producer, "throughput", seconds)
    if producer.flush(120) or failed:
        raise BenchError(f"{system.name}: {len(failed)} records failed")
    rate = count * len(RECORD) / (time.perf_counter() - begin) / 1e6
    found = {"mb_per_s": rate, "memory": system.memory_mb()}
    system.delete_topic("throughput")
    return found


def _hand_over(producer: Producer, topic: str, seconds: float) -> int:
    count = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            for _ in range(1000):
                producer.produce(topic, RECORD)
                count += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    return count


def refill(system: System, megabytes: int) -> dict[str, float]:
    """An empty disk in place of a full one: until its broker is in sync again."""
    system.create_topic("refill", 3)
    producer = Producer({"bootstrap.servers": system.bootstrap, "acks": "all", "linger.ms": 5})
    for _ in range(megabytes * 1000):
        while True:
            try:
                producer.produce("refill", RECORD)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(300)
    victim = system.nodes[(system.controller_id() % 3) + 1]
    victim.kill()
    system.wait_for(
        lambda: all(victim.id not in part.isrs for part in system.partitions("refill").values()), "smaller ISR"
    )
    system.wipe(victim)
    begin = time.perf_counter()
    victim.start()
    system.wait_until_whole("refill")
    took = time.perf_counter() - begin
    system.delete_topic("refill")
    return {"mb_per_s": megabytes / took, "seconds": took, "megabytes": megabytes}


def many_partitions(system: System, partitions: int) -> dict[str, float]:
    """Create them, then kill the broker that leads a third of them."""
    created = system.create_topic("many", partitions)
    leaders = system.leaders("many")
    pulse_at = next(index for index, leader in leaders.items() if leader != system.controller_id())
    victim = system.nodes[leaders[pulse_at]]
    led = [index for index, leader in leaders.items() if leader == victim.id]
    producer = Producer({"bootstrap.servers": system.bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    producer.produce("many", b"before", partition=pulse_at)
    producer.flush(30)
    victim.kill()
    begin = time.perf_counter()
    for index in led:
        producer.produce("many", b"after", partition=index)
    left = producer.flush(120)
    took = time.perf_counter() - begin
    if left:
        raise BenchError(f"{system.name}: {left} of {len(led)} partitions took no write")
    victim.start()
    system.wait_until_whole("many")
    system.delete_topic("many")
    return {"created_s": created, "partitions": partitions, "led": len(led), "fail_over_s": took}


def measure(system: System, options: argparse.Namespace) -> dict[str, Any]:
    quick = options.quick
    sections: dict[str, Callable[[], dict[str, float]]] = {
        "idle": lambda: {"memory": system.memory_mb()},
        "fail-over": lambda: fail_over(system, 3 if quick else options.rounds, is_controller=False),
        "fail-over of the controller": lambda: fail_over(system, 3 if quick else options.rounds, is_controller=True),
        "rolling restart": lambda: rolling_restart(system, 1 if quick else 5),
        "throughput": lambda: throughput(system, 5 if quick else 20),
        "refill": lambda: refill(system, 200 if quick else 2000),
        "2000 partitions": lambda: many_partitions(system, 300 if quick else 2000),
        "3000 partitions": lambda: many_partitions(system, 300 if quick else 3000),
    }
    found: dict[str, Any] = {}
    for name, section in sections.items():
        if options.only and name not in options.only.split(","):
            continue
        try:
            found[name] = section()
        except (BenchError, OSError) as problem:
            found[name] = {"failed": str(problem)}
        print(f"{system.name}: {name}: {shown(found[name])}", flush=True)
    return found


def shown(figures: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()
    )


def run_ottla(options: argparse.Namespace) -> dict[str, Any]:
    with Cluster(3, folder=cache_folder(), delete_topic_enable=True) as cluster:
        nodes: list[Any] = list(cluster.brokers)
        return measure(System("ottla", cluster.bootstrap, nodes, lambda node: node.wipe()), options)


def run_kafka(options: argparse.Namespace) -> dict[str, Any]:
    """A KRaft broker with an empty disk must be formatted again, as its operator would do."""
    with KafkaCluster(3) as cluster:
        nodes: list[Any] = list(cluster.nodes)
        return measure(System("kafka", cluster.bootstrap, nodes, lambda node: node.wipe()), options)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small amounts")
    parser.add_argument("--rounds", type=int, default=20, help="kills of each kind (default: 20)")
    parser.add_argument("--no-kafka", action="store_true", help="ottla alone")
    parser.add_argument("--only", default="", help="sections, with commas between them")
    parser.add_argument("--output", type=Path, default=None, help="results as JSON")
    options = parser.parse_args()
    results = {"ottla": run_ottla(options)}
    if not options.no_kafka:
        results["kafka"] = run_kafka(options)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
