"""`python -m bench.versions`: what clients notice while the version of a cluster changes, beside a mere restart of it.

Three brokers, six partitions with three replicas, librdkafka with acks=all and settings as they are. A roll stops,
starts and waits for one broker after the other; its figure is the longest time in which some partition took no write.
Rolls from the version before (tests/cluster/older_version.txt) to this one and back take turns with restarts of this
one, so that whatever else the machine does falls on all three. No file is compiled, in neither version.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.older_version import VARIABLE, make_newer, make_older, older_sources

from bench.cluster import REST_SECONDS, Pulse, System
from bench.paths import cache_folder
from ottla.testing.cluster import Cluster, ClusterBroker

TOPIC, PARTITIONS = "rolling", 6
RATIO_MAX = 1.2  # of the worst roll that changes the version, by the worst restart
PURE = {"OTTLA_PURE": "1"}


def roll(system: System, cluster: Cluster, pulse: Pulse, change: Callable[[ClusterBroker], None]) -> float:
    """The longest time without an acknowledgement, in seconds."""
    time.sleep(REST_SECONDS)
    pulse.wait_for_all(time.perf_counter())
    pulse.longest_gap = 0.0
    for broker in cluster.brokers:
        broker.stop()
        change(broker)
        broker.start()
        system.wait_until_whole(TOPIC)
    pulse.wait_for_all(time.perf_counter())
    return pulse.longest_gap


def measure(rounds: int) -> dict[str, Any]:
    sources = older_sources()
    kinds: dict[str, Callable[[ClusterBroker], None]] = {
        "to this version": make_newer,
        "restart of this version": lambda _: None,
        "back to the version before": lambda broker: make_older(broker, sources),
    }
    gaps: dict[str, list[float]] = {kind: [] for kind in kinds}
    environment = {**PURE, VARIABLE: str(sources)}
    with Cluster(3, folder=cache_folder(), environments=dict.fromkeys((1, 2, 3), environment)) as cluster:
        nodes: list[Any] = list(cluster.brokers)
        system = System("ottla", cluster.bootstrap, nodes, lambda node: node.wipe())
        system.create_topic(TOPIC, PARTITIONS)
        pulse = Pulse(system.bootstrap, TOPIC, PARTITIONS)
        pulse.start()
        for number in range(rounds):
            for kind, change in kinds.items():
                gaps[kind].append(roll(system, cluster, pulse, change))
                print(f"round {number + 1}: {kind}: {gaps[kind][-1]:.2f} s", flush=True)
        pulse.stop()
    return {"gaps_s": gaps, "errors": len(pulse.errors)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rolls of each kind (default: 5)")
    parser.add_argument("--output", type=Path, default=None, help="results as JSON")
    options = parser.parse_args()
    found = measure(options.rounds)
    for kind, gaps in found["gaps_s"].items():
        print(f"{kind}: median {statistics.median(gaps):.2f} s, worst {max(gaps):.2f} s")
    gaps = found["gaps_s"]
    changing = max(max(row) for kind, row in gaps.items() if not kind.startswith("restart"))
    found["ratio"] = changing / max(gaps["restart of this version"])
    print(f"worst roll between versions by worst restart: {found['ratio']:.2f} (at most {RATIO_MAX})")
    print(f"errors: {found['errors']}")
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1))
    return 0 if found["ratio"] <= RATIO_MAX and not found["errors"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
