"""`python -m bench.balance`: a fourth broker gets its share, beside the plan that Apache Kafka's own tool makes.

Bytes that each plan copies and the skew that it leaves, on the same cluster with the same data; how long a plan for
10,000 partitions takes and holds a loop; and what producers notice while ours is carried out with the usual throttle.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Message, Producer

from bench.kafka_process import LOG_OPTION, kafka_jars
from ottla.base.names import TopicPartition
from ottla.base.placement.balance import plan_balance, steps
from ottla.base.placement.broker_loads import BrokerCapacity, PartitionLoad, figures_of, skew
from ottla.base.placement.new_partitions import place_replicas
from ottla.client.client import Client
from ottla.operations.reassignment.cluster_model import ClusterModel, load_cluster_model
from ottla.operations.reassignment.cluster_plans import MovePlan
from ottla.operations.reassignment.executor import COPIES_AT_ONCE
from ottla.operations.reassignment.move_command import THROTTLE, MoveCommand, Pace
from ottla.operations.reassignment.moves import bytes_to_copy
from ottla.operations.reassignment.plan import parse_plan
from ottla.testing.cluster import Cluster

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
SETTINGS: dict[str, Any] = {"auto.leader.rebalance.enable": "false"}
TOPICS, PARTITIONS, REPLICAS = 12, 12, 2
RECORD_BYTES = 10_000
PULSES_PER_SECOND = 200
FIGURES = ("replicas", "leaders", "disk_bytes")
Rows = dict[TopicPartition, list[int]]


def run(megabytes: int, quiet_seconds: float, throttle: int) -> dict[str, Any]:
    results: dict[str, Any] = {"plan": plan_times()}
    chance = Random(18)
    with Cluster(3, SETTINGS) as cluster:
        for number in range(TOPICS):
            cluster.create_topic(f"topic-{number:02}", partitions=PARTITIONS, replicas=REPLICAS)
        cluster.create_topic("pulse", partitions=PARTITIONS, replicas=3)
        fill(cluster.bootstrap, megabytes, chance)
        cluster.add_broker().start()
        with Client(cluster.bootstrap) as client:
            facts = load_cluster_model(client, 1.0)
            theirs = kafkas_plan(cluster.bootstrap, sorted({load.partition.topic for load in facts.loads}))
            ours = plan_balance(facts.loads, facts.brokers, takers={4}).rows
            results["fill"] = {"Apache Kafka": outcome(facts, theirs), "ottla": outcome(facts, ours)}
            before = pulse(cluster.bootstrap, quiet_seconds)
            copied, seconds = move_under_load(client, cluster.bootstrap, facts, ours, throttle)
            after = pulse(cluster.bootstrap, quiet_seconds)
            again = load_cluster_model(client, 1.0)
            second = plan_balance(again.loads, again.brokers, takers={4}).rows
    quiet = percentile([*before, *after], 99)
    results["producers"] = {
        "quiet p99 ms": quiet,
        "while moving p99 ms": percentile(copied, 99),
        "times": round(percentile(copied, 99) / quiet, 2),
        "seconds": round(seconds, 1),
        "throttle": throttle,
    }
    results["second run"] = len(second)
    return results


# ---- plans


def plan_times() -> dict[str, dict[str, float]]:
    """10,000 partitions on 20 brokers: total seconds, and the longest slice in ms of this thread's CPU time."""
    found = {}
    for new in (0, 1, 4):
        chance = Random(new)
        loads = []
        for topic in range(100):
            start, shift = chance.randrange(99), chance.randrange(99)
            weight = chance.lognormvariate(0, 1)
            for number, row in enumerate(place_replicas(list(range(1, 21 - new)), 100, 3, start=start, shift=shift)):
                own = weight * chance.lognormvariate(0, 0.5)
                name = TopicPartition(f"topic-{topic}", number)
                loads.append(PartitionLoad(name, row, int(own * 2**30), own * 1e5, own * 2e5))
        slices = []
        gc.collect()
        gc.disable()  # as the controller does
        running = steps(loads, {broker: BrokerCapacity() for broker in range(1, 21)})
        while True:
            began = time.thread_time()
            try:
                next(running)
            except StopIteration:
                break
            slices.append(time.thread_time() - began)
        gc.enable()
        found[f"{new} new brokers"] = {"seconds": round(sum(slices), 3), "longest ms": round(1000 * max(slices), 1)}
    return found


def kafkas_plan(bootstrap: str, topics: Sequence[str]) -> Rows:
    """The plan of Apache Kafka's kafka-reassign-partitions.sh --generate for the same cluster."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "topics": [{"topic": name} for name in topics]}, file)
        file.flush()
        words = ["--bootstrap-server", bootstrap, "--generate", "--broker-list", "1,2,3,4"]
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        command = [
            "java",
            LOG_OPTION,
            "-cp",
            f"{kafka_jars()}/*",
            tool,
            *words,
            "--topics-to-move-json-file",
            file.name,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    proposed = [line for line in done.stdout.splitlines() if line.startswith('{"version"')][-1]
    return parse_plan(proposed).replicas


def outcome(facts: ClusterModel, rows: Rows) -> dict[str, Any]:
    after = figures_of(facts.loads, rows, sorted(facts.brokers))
    copied = sum(size or 0 for size in bytes_to_copy(rows, facts.rows, facts.sizes).values())
    skews = {name: round(skew([getattr(one, name) for one in after]) or 0.0, 3) for name in FIGURES}
    return {"bytes to copy": copied, "skew": skews}


# ---- loads


def fill(bootstrap: str, megabytes: int, chance: Random) -> None:
    """Topics of different sizes, with slightly different partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, **QUIET})
    weights = [chance.lognormvariate(0, 0.7) for _ in range(TOPICS)]
    records = megabytes * 1_000_000 // RECORD_BYTES // REPLICAS
    for topic, weight in enumerate(weights):
        for _ in range(int(records * weight / sum(weights))):
            partition = min(int(abs(chance.gauss(0.5, 0.25)) * PARTITIONS), PARTITIONS - 1)
            value = os.urandom(RECORD_BYTES)
            producer.produce(f"topic-{topic:02}", value, partition=partition)
            producer.poll(0)
        producer.flush(60)


def pulse(bootstrap: str, seconds: float, is_over: threading.Event | None = None) -> list[float]:
    """Records at a constant rate, acks=all: ms until each was acknowledged, without the first second."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    found: list[tuple[float, float]] = []

    def note(began: float) -> Any:
        def delivered(error: Any, _: Message) -> None:
            assert error is None, error
            found.append((began, (time.perf_counter() - began) * 1000))

        return delivered

    start = time.perf_counter()
    number = 0
    while time.perf_counter() - start < seconds and not (is_over is not None and is_over.is_set()):
        began = time.perf_counter()
        producer.produce("pulse", b"x" * 1000, partition=number % PARTITIONS, on_delivery=note(began))
        number += 1
        producer.poll(max(0.0, start + number / PULSES_PER_SECOND - time.perf_counter()))
    producer.flush(60)
    return [ms for began, ms in found if began - start > 1.0]


def move_under_load(
    client: Client, bootstrap: str, facts: ClusterModel, rows: Rows, throttle: int
) -> tuple[list[float], float]:
    """Execute a plan while producers write: their latencies, and the duration."""
    is_over = threading.Event()
    times: list[float] = []
    writer = threading.Thread(target=lambda: times.extend(pulse(bootstrap, 3600, is_over)))
    writer.start()
    time.sleep(1.5)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        MoveCommand(client, "add 4", Path(folder), Pace(throttle, COPIES_AT_ONCE)) as command,
    ):
        told = command.execute(command.start(facts, MovePlan(rows), 0), lambda _: None)
    seconds = time.monotonic() - began
    is_over.set()
    writer.join()
    assert told.moved == len(rows), told
    return times, seconds


def percentile(values: Sequence[float], share: int) -> float:
    return round(statistics.quantiles(values, n=100)[share - 1], 2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.balance", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="of data, all replicas together (default: 1000)")
    parser.add_argument("--quiet-seconds", type=float, default=20.0, help="of producing before and after the moves")
    parser.add_argument("--throttle", type=int, default=THROTTLE, help="bytes a second (default: that of the tool)")
    parser.add_argument("--output", type=Path, help="write the figures to a file, too")
    options = parser.parse_args()
    text = json.dumps(run(options.megabytes, options.quiet_seconds, options.throttle), indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
