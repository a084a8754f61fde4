"""`python -m bench.healing`: one of four brokers is killed permanently and its disk wiped, without manual
intervention.

From the end of the wait (the first move) until everything is in sync and the last move is over, against the bytes that
the busiest broker has to take or to give, divided by the throttle; and what producers notice meanwhile.
"""

import argparse
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.balance import PARTITIONS, QUIET, percentile, pulse
from bench.errors import BenchError
from bench.paths import cache_folder
from ottla.base.names import TopicPartition
from ottla.controller.self_balancing.heal_state import JOURNAL_FORMAT, HealLimits
from ottla.testing.cluster import Cluster

TOPIC = "healed"
DEAD = 4
COPIES = 9  # three of each living leader, all of them under way at once
RECORD_BYTES = 10_000
WAIT_MS = 3_000
LOOK_SECONDS = 0.05
HEAL_SECONDS_MAX = 180.0
SETTINGS: dict[str, Any] = {"ottla.heal.after.ms": WAIT_MS, "ottla.heal.disk.max.percentage": 99}


def run(megabytes: int, quiet_seconds: float, throttle: int, batch_bytes: int) -> dict[str, Any]:
    settings = {**SETTINGS, "ottla.heal.throttle.rate": throttle}
    with Cluster(4, settings, folder=cache_folder()) as cluster:
        cluster.create_topic(TOPIC, assignment={number: [number % 3 + 1, DEAD] for number in range(COPIES)})
        cluster.create_topic("pulse", assignment={number: rotated(number) for number in range(PARTITIONS)})
        fill(cluster.bootstrap, megabytes, batch_bytes)
        cluster.wait_until_whole()
        before = pulse(cluster.bootstrap, quiet_seconds)
        dead = cluster.broker(DEAD)
        dead.kill()
        dead.wipe()
        moves, seconds, meanwhile = watch(cluster)
        after = pulse(cluster.bootstrap, quiet_seconds)
    size = megabytes * 1_000_000 // COPIES
    taken = Counter(broker for _, broker in moves)
    given = Counter(name.partition % 3 + 1 for name, _ in moves)
    busiest = max(*taken.values(), *given.values()) * size
    quiet = percentile([*before, *after], 99)
    return {
        "bytes": size * len(moves),
        "bytes of the busiest broker": busiest,
        "seconds": round(seconds, 2),
        "bytes / throttle, seconds": round(busiest / throttle, 2),
        "times": round(seconds * throttle / busiest, 3),
        "quiet p99 ms": quiet,
        "while healing p99 ms": percentile(meanwhile, 99),
        "p99 times": round(percentile(meanwhile, 99) / quiet, 2),
    }


def rotated(number: int) -> list[int]:
    living = [1, 2, 3]
    return living[number % 3 :] + living[: number % 3]


def fill(bootstrap: str, megabytes: int, batch_bytes: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "batch.size": batch_bytes}
    producer = Producer({**settings, **QUIET})
    for number in range(megabytes * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, os.urandom(RECORD_BYTES), partition=number % COPIES)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise BenchError("not everything was written")


def watch(cluster: Cluster) -> tuple[list[tuple[TopicPartition, int]], float, list[float]]:
    """Wait for the moves and their end: which replicas moved, how long it took, and the effect on producers."""
    is_over = threading.Event()
    times: list[float] = []
    writer = threading.Thread(target=lambda: times.extend(pulse(cluster.bootstrap, HEAL_SECONDS_MAX, is_over)))
    found: set[tuple[TopicPartition, int]] = set()
    began = 0.0
    deadline = time.monotonic() + HEAL_SECONDS_MAX
    while time.monotonic() < deadline:
        data = cluster.read_node(JOURNAL_FORMAT.path)
        journal = JOURNAL_FORMAT.decode(data) if data else JOURNAL_FORMAT.empty
        if journal.moves and not found:
            began = time.monotonic()
            writer.start()
        found |= {(move.partition, broker) for move in journal.moves for broker in move.added}
        if len(found) == COPIES and not journal.moves:
            seconds = time.monotonic() - began
            is_over.set()
            writer.join()
            return sorted(found), seconds, times
        time.sleep(LOOK_SECONDS)
    raise BenchError(f"not healed after {HEAL_SECONDS_MAX:.0f} s: {cluster.read_node(JOURNAL_FORMAT.path)!r}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.healing", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="on the broker that dies (default: 2000)")
    parser.add_argument("--quiet-seconds", type=float, default=15.0, help="of producing before and after")
    parser.add_argument("--throttle", type=int, default=HealLimits().throttle_rate, help="bytes a second")
    parser.add_argument("--batch-bytes", type=int, default=100_000, help="of the producers' batches (default: 100000)")
    parser.add_argument("--output", type=Path, help="write the figures to a file, too")
    options = parser.parse_args()
    found = run(options.megabytes, options.quiet_seconds, options.throttle, options.batch_bytes)
    text = json.dumps(found, indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
