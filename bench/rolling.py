"""`python -m bench.rolling`: all three brokers restarted in turn under a load, beside three of Apache Kafka.

What is measured is the longest time for which a partition gave no acknowledgement (acks=all, librdkafka as it is).
ottla is rolled by `ottla cluster roll`, Apache Kafka as its pages have it: stop, start, wait until all is in sync; its
controller is a process of its own that is left alone.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.broker_restarts import restart_command

from bench.cluster import REST_SECONDS, Pulse, System, shown
from bench.errors import BenchError
from bench.kafka_cluster import KafkaCluster
from bench.paths import cache_folder
from ottla.cli.main import main as ottla
from ottla.testing.cluster import Cluster

TOPIC = "rolling"
PARTITIONS = 6


def measure(system: System, roll: Callable[[], None], rounds: int) -> list[dict[str, float]]:
    """One row a roll."""
    system.create_topic(TOPIC, PARTITIONS)
    pulse = Pulse(system.bootstrap, TOPIC, PARTITIONS)
    pulse.start()
    pulse.wait_for_all(time.perf_counter())
    rows = []
    for _ in range(rounds):
        pulse.longest_gap, errors, begin = 0.0, len(pulse.errors), time.perf_counter()
        roll()
        pulse.wait_for_all(time.perf_counter())
        rows.append(
            {
                "longest_gap_s": pulse.longest_gap,
                "seconds": time.perf_counter() - begin,
                "errors": len(pulse.errors) - errors,
            }
        )
        print(f"{system.name}: {shown(rows[-1])}", flush=True)
        time.sleep(REST_SECONDS)
    pulse.stop()
    return rows


def run_ottla(rounds: int) -> list[dict[str, float]]:
    with (
        Cluster(3, folder=cache_folder(), delete_topic_enable=True) as cluster,
        restart_command(cluster) as command,
        tempfile.TemporaryDirectory() as folder,
    ):
        words = ["--bootstrap-server", cluster.bootstrap, "--state", str(Path(folder, "roll.json"))]

        def roll() -> None:
            if ottla(["cluster", "roll", "--command", command, *words]):
                raise BenchError("the roll stopped")

        nodes: list[Any] = list(cluster.brokers)
        return measure(System("ottla", cluster.bootstrap, nodes, lambda node: node.wipe()), roll, rounds)


def run_kafka(rounds: int) -> list[dict[str, float]]:
    with KafkaCluster(3, has_own_controller=True) as cluster:
        nodes: list[Any] = list(cluster.nodes)
        system = System("kafka", cluster.bootstrap, nodes, lambda node: node.wipe())

        def roll() -> None:
            for node in nodes:
                node.stop()
                node.start()
                system.wait_until_whole(TOPIC)

        return measure(system, roll, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rolling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rolls of each system (default: 5)")
    parser.add_argument("--no-kafka", action="store_true", help="ottla alone")
    options = parser.parse_args()
    systems = {"ottla": run_ottla} if options.no_kafka else {"ottla": run_ottla, "kafka": run_kafka}
    for name, run in systems.items():
        rows = run(options.rounds)
        worst = max(row["longest_gap_s"] for row in rows)
        mean = sum(row["seconds"] for row in rows) / len(rows)
        print(f"{name}: longest time without an acknowledgement {worst:.3f} s, {mean:.1f} s a roll", flush=True)


if __name__ == "__main__":
    main()
