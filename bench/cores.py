"""`python -m bench.cores`: the cost of one, two, four and eight brokers on a machine (`ottla broker --processes N`).

The same load each time, spread over the leaders: CPU of all processes for a request and for a gigabyte, memory of an
idle broker, requests per second of two brokers beside one, and the downtime of a killed broker. The client is
cheap: its requests are prepared, and many are sent at once. It needs ZooKeeper (Java) and an otherwise idle machine.

Large batches and answers go over eight connections, whatever the number of brokers: each of eight has one, so nothing
that comes at once can be served at once. One broker with one connection shows what that alone costs.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import sys
import time
from pathlib import Path

from bench import wire
from bench.batches import batch_of_bytes
from bench.broker_process import HOST, SHARED_SETTINGS, properties
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads import fetch, produce, small_requests
from bench.ottla_process import OttlaProcess
from bench.paths import cache_folder
from bench.procfs import memory, process_tree
from bench.raw_client import Connection, Target, create_topic, delete_topics
from bench.worker import run_apart
from ottla.cli.ports import is_free
from ottla.cli.processes.supervisor import ALWAYS_RESTART_RESET_MS
from ottla.testing.zookeeper import ZooKeeperProcess

COUNTS = (1, 2, 4, 8)
FIRST_ID = 1
SMALL_CONNECTIONS, SMALL_DEPTH = 32, 100
LARGE_CONNECTIONS = 8
BATCH_BYTES = 64 << 10
FETCH_BYTES = 1 << 20
WRITE_BYTES_MAX = 1 << 30
KILLS = 5
KILL_PAUSE_SECONDS = (
    ALWAYS_RESTART_RESET_MS / 1000 + 1
)  # a broker that fails repeatedly is restarted after a growing pause
SETTLE_SECONDS = 3.0
TIMEOUT_SECONDS = 120.0
READY = re.compile(r"^ottla broker (\d+) ready on ", re.MULTILINE)


class Machine(OttlaProcess):
    """Several brokers under one supervisor. Its target counts the CPU of all of them, and of the supervisor."""

    def __init__(self, log_path: Path, count: int, zookeeper: str) -> None:
        super().__init__(log_path)
        self.count = count
        self.zookeeper = zookeeper
        while not all(is_free(self.port + index) for index in range(count)):
            self.port = random.randrange(15_000, 30_000)  # outside of the kernel's ephemeral range

    def prepare(self) -> None:
        settings = {
            "broker.id": str(FIRST_ID),
            "zookeeper.connect": self.zookeeper,
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": str(self.data_folder),
            "offsets.topic.replication.factor": "1",
        }
        (self.folder / "server.properties").write_text(properties(settings | SHARED_SETTINGS))

    def command(self) -> list[str]:
        return [*super().command(), "--processes", str(self.count)]

    def is_ready(self) -> bool:
        return len(set(READY.findall(self.log_text()))) == self.count

    def pids(self) -> dict[int, int]:
        """The brokers, by id."""
        found = {}
        for pid in process_tree(self.target.pid)[1:]:
            match = re.search(rb"\0broker\.id=(\d+)\0", Path(f"/proc/{pid}/cmdline").read_bytes())
            if match:
                found[int(match[1])] = pid
        return found

    def target_of(self, topic: str) -> Target:
        """With the port of each partition's leader."""
        with Connection(self.target) as connection:
            _, partitions = wire.read_metadata(connection.call(wire.metadata_request([topic])))
        leaders = [each.leader for each in sorted(partitions, key=lambda each: each.number)]
        return self.target._replace(ports=tuple(self.port + leader - FIRST_ID for leader in leaders))

    def restart_seconds(self) -> float:
        """kill -9 of one broker until it is ready again."""
        victim = random.choice(sorted(self.pids()))
        seen = READY.findall(self.log_text()).count(str(victim))
        os.kill(self.pids()[victim], signal.SIGKILL)
        begin = time.perf_counter()
        while READY.findall(self.log_text()).count(str(victim)) == seen:
            self.check_alive(begin, TIMEOUT_SECONDS)
            time.sleep(0.005)
        return time.perf_counter() - begin


def memory_figures(machine: Machine) -> Figures:
    pids = machine.pids().values()
    pss = [int(re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[0]) for pid in pids]
    return {
        "rss_mb": max(memory(pid).rss_mb for pid in pids),
        "pss_mb": max(pss) / 1024,
        "supervisor_mb": memory(machine.target.pid).rss_mb - sum(memory(pid).rss_mb for pid in pids),
    }


def loads(machine: Machine, seconds: float) -> dict[str, Figures]:
    """The same work for any number of brokers."""
    found = {}
    topic = create_topic(machine.target, "small", SMALL_CONNECTIONS)
    target = machine.target_of(topic)
    for length in (1.0, seconds):  # the first one warms up
        words = (target, topic, SMALL_CONNECTIONS, SMALL_DEPTH, 100, length)
        found["requests"] = run_apart(TIMEOUT_SECONDS, small_requests.produce, *words)
    delete_topics(machine.target, topic)
    topic = create_topic(machine.target, "large", LARGE_CONNECTIONS)
    target = machine.target_of(topic)
    for length in (0.5, seconds):
        wanted = (target, topic, LARGE_CONNECTIONS, BATCH_BYTES, 1000, length, WRITE_BYTES_MAX)
        found["produce"] = run_apart(TIMEOUT_SECONDS, produce.produce, *wanted)
    batch_bytes = len(batch_of_bytes(BATCH_BYTES, 1000).data)
    for length in (0.5, seconds):
        words = (target, topic, LARGE_CONNECTIONS, FETCH_BYTES, batch_bytes, length)
        found["fetch"] = run_apart(TIMEOUT_SECONDS, fetch.fetch, *words)
    if machine.count == 1:  # as many as each of eight brokers, without other load
        wanted = (target, topic, 1, BATCH_BYTES, 1000, seconds, WRITE_BYTES_MAX // LARGE_CONNECTIONS)
        found["produce alone"] = run_apart(TIMEOUT_SECONDS, produce.produce, *wanted)
        words = (target, topic, 1, FETCH_BYTES, batch_bytes, seconds)
        found["fetch alone"] = run_apart(TIMEOUT_SECONDS, fetch.fetch, *words)
    delete_topics(machine.target, topic)
    return found


def measure(count: int, zookeeper: ZooKeeperProcess, seconds: float, chroot: str) -> dict[str, Figures]:
    with Machine(cache_folder() / f"cores-{count}.log", count, zookeeper.connect + chroot) as machine:
        time.sleep(SETTLE_SECONDS)
        found = {"idle": memory_figures(machine), **loads(machine, seconds)}
        if count == 2:
            times = [machine.restart_seconds() for _ in range(KILLS) if not time.sleep(KILL_PAUSE_SECONDS)]
            found["restart"] = {"median_s": statistics.median(times), "worst_s": max(times)}
        return found


def report(results: dict[int, dict[str, Figures]]) -> bool:
    """A table, compared with the goals."""
    print("brokers  requests/s  µs CPU/request  CPU s/GB produced  CPU s/GB fetched  idle MB (own share)")
    for count, found in results.items():
        idle = f"{found['idle']['rss_mb']:.0f} ({found['idle']['pss_mb']:.0f})"
        print(
            f"{count:7}  {found['requests']['requests_per_s']:10,.0f}  {found['requests']['cpu_us_per_request']:14.2f}"
            f"  {found['produce']['cpu_s_per_gb']:17.3f}  {found['fetch']['cpu_s_per_gb']:16.3f}  {idle:>19}"
        )
    if 1 in results:
        alone = [results[1][f"{load} alone"]["cpu_s_per_gb"] for load in ("produce", "fetch")]
        print(f"one broker, one connection: {alone[0]:.3f} CPU s/GB produced, {alone[1]:.3f} fetched")
    lines = []
    for load, unit in (("requests", "cpu_us_per_request"), ("produce", "cpu_s_per_gb"), ("fetch", "cpu_s_per_gb")):
        costs = [found[load][unit] for found in results.values()]
        lines.append((f"{load}: CPU of the dearest beside one broker", max(costs) / costs[0], 1.1, False))
    lines.append(
        ("idle memory of a broker, MB", max(found["idle"]["rss_mb"] for found in results.values()), 45.0, False)
    )
    if 2 in results:
        rates = [results[count]["requests"]["requests_per_s"] for count in (1, 2) if count in results]
        lines.append(("requests/s of two beside one", rates[-1] / rates[0], 1.6, True))
        lines.append(("restart of a killed broker, worst, s", results[2]["restart"]["worst_s"], 1.0, False))
    is_met = True
    for what, value, goal, is_floor in lines:
        is_good = value >= goal if is_floor else value <= goal
        is_met = is_met and is_good
        bound, end = "at least" if is_floor else "at most", "met" if is_good else "missed"
        print(f"{what}: {value:.2f}, goal {bound} {goal:g}: {end}")
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cores", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each load (default: 4)")
    parser.add_argument("--rounds", type=int, default=1, help="the medians of so many count (default: 1)")
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="numbers of brokers (default: 1,2,4,8)")
    parser.add_argument("--output", type=Path, default=None, help="results as JSON")
    options = parser.parse_args()
    counts = [int(word) for word in options.counts.split(",")]
    rounds: list[dict[int, dict[str, Figures]]] = []
    with ZooKeeperProcess() as zookeeper:
        for number in range(options.rounds):
            rounds.append({})
            for count in counts:
                rounds[-1][count] = measure(count, zookeeper, options.seconds, f"/round-{number}-{count}")
                print(f"round {number + 1}: {count} measured", flush=True)
    if not rounds:
        raise BenchError("no rounds, no figures")
    results = {count: medians([each[count] for each in rounds]) for count in counts}
    if options.output is not None:
        options.output.write_text(json.dumps(rounds, indent=1))
    return 0 if report(results) else 1


def medians(rounds: list[dict[str, Figures]]) -> dict[str, Figures]:
    return {
        load: {name: statistics.median(each[load][name] for each in rounds) for name in figures}
        for load, figures in rounds[0].items()
    }


if __name__ == "__main__":
    sys.exit(main())
