"""`python -m bench.tuning`: what each setting of docs/tuning.md brings and costs, on ottla and Apache Kafka in one run.

A measurement changes one setting and leaves the others as they are. It writes the tables and plots of docs/tuning.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.broker_process import BrokerProcess
from bench.errors import BenchError
from bench.figures import Figures, median_or_none
from bench.goals import KAFKA, OTTLA
from bench.kafka_process import KafkaProcess
from bench.loads import tuning
from bench.machine import machine_facts
from bench.ottla_process import OttlaProcess
from bench.paths import DOCS, cache_folder
from bench.raw_client import create_topics, delete_topics, new_topic_name
from bench.tuning_report import write_report
from bench.worker import run_apart

SECONDS, WARM_SECONDS = 1.5, 4.0
TIMEOUT_S = 120.0
RATE = 2000
SYSTEMS: dict[str, type[BrokerProcess]] = {OTTLA: OttlaProcess, KAFKA: KafkaProcess}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LATE = {"fetch.wait.max.ms": 100}
SHORT_QUEUE = {"queue.buffering.max.messages": 20_000}  # with small buffers a long one takes a minute to empty


@dataclass(frozen=True)
class Case:
    """One measurement: settings of the client and of the topic; `rate` 0 is as many records as go."""

    axis: str
    label: str
    client: dict[str, Any] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)
    rate: int = 0
    partitions: int = 1
    clients: int = 1


def produce_cases() -> Iterator[Case]:
    for codec in CODECS:
        yield Case("compression", codec, {"compression.type": codec})
    for linger in (0, 5, 20, 100):
        yield Case("linger", f"linger.ms={linger}", {"linger.ms": linger}, rate=RATE)
    for size in (4_000, 16_000, 100_000, 1_000_000):
        yield Case("batch_size", f"batch.size={size:,}", {"batch.size": size})
    for size in (0, 16 << 10, 1 << 20):
        settings = {"socket.send.buffer.bytes": size, "socket.receive.buffer.bytes": size, **SHORT_QUEUE}
        yield Case("sockets", f"{size >> 10} KiB" if size else "the kernel's own", settings)
    many = {"linger.ms": 20}
    yield Case("connections", "one producer", many, rate=RATE, partitions=16)
    yield Case("connections", "16 producers", many, rate=RATE, partitions=16, clients=16)
    for count in (1, 4, 16, 64):
        yield Case("partitions", f"{count} partition{'' if count == 1 else 's'}", partitions=count)
    for count in (1, 5, 1000):
        settings = {"max.in.flight.requests.per.connection": count, "batch.size": 16_000}
        yield Case("in_flight", f"max.in.flight={count:,}", settings)
    for acks in ("0", "1", "all"):
        yield Case("acks", f"acks={acks}", {"acks": acks, "linger.ms": 0}, rate=RATE)
    for count in ("1", ""):
        settings_of_topic = {"flush.messages": count} if count else {}
        yield Case("flush", f"flush.messages={count}" if count else "never (default)", {}, settings_of_topic, rate=RATE)
    for codec, kept in (("none", "producer"), ("none", "zstd"), ("zstd", "zstd"), ("zstd", "gzip")):
        label = f"producer {codec}, topic {kept}"
        yield Case("recompression", label, {"compression.type": codec}, {"compression.type": kept})


def follow_cases() -> Iterator[Case]:
    yield Case("fetch", "fetch.min.bytes=1", {"fetch.min.bytes": 1}, rate=RATE)
    yield Case("fetch", "fetch.min.bytes=10,000", {"fetch.min.bytes": 10_000, **LATE}, rate=RATE)
    yield Case("fetch", "fetch.min.bytes=1,000,000", {"fetch.min.bytes": 1_000_000, **LATE}, rate=RATE)
    yield Case("readers", "one consumer", rate=RATE, partitions=16)
    yield Case("readers", "16 consumers", rate=RATE, partitions=16, clients=16)
    for wait_ms in (10, 100, 500):
        yield Case("idle", f"fetch.wait.max.ms={wait_ms}", {"fetch.wait.max.ms": wait_ms})


class Run:
    """One broker, all cases one after the other."""

    def __init__(self, broker: BrokerProcess, seconds: float) -> None:
        self.broker = broker
        self.seconds = seconds
        self.figures: dict[str, dict[str, Figures]] = {}

    def all(self) -> None:
        self._produced(Case("warm", "up"), WARM_SECONDS)
        for case in produce_cases():
            self._produced(case, self.seconds)
        for case in follow_cases():
            name = self._topic(case)
            arguments = (name, case.client, case.rate, self.seconds, case.partitions, case.clients)
            self._keep(case.axis, case.label, self._apart(tuning.follow, *arguments))
            delete_topics(self.broker.target, name)
        self.figures.pop("warm")

    def _produced(self, case: Case, seconds: float) -> None:
        """The bytes on the disk are those of the log files; what compression brings consumers is measured, too."""
        name = self._topic(case)
        arguments = (name, case.client, case.rate, seconds, case.partitions, case.clients)
        figures: Figures = self._apart(tuning.produce, *arguments)
        stored = sum(path.stat().st_size for path in self.broker.data_folder.glob(f"{name}-*/*.log"))
        figures["disk_bytes_per_record"] = stored / figures["records"]
        self._keep(case.axis, case.label, figures)
        if case.axis in ("compression", "warm"):
            read = self._apart(tuning.consume, name, {}, int(figures["records"]), seconds)
            self._keep("reading" if case.axis == "compression" else case.axis, case.label, read)
        delete_topics(self.broker.target, name)

    def _topic(self, case: Case) -> str:
        name = new_topic_name("tuning")
        create_topics(self.broker.target, {name: case.partitions}, case.topic)
        return name

    def _apart(self, load: Any, *arguments: Any) -> Figures:
        figures: Figures = run_apart(TIMEOUT_S, load, self.broker.target, *arguments)
        return figures

    def _keep(self, axis: str, label: str, figures: Figures) -> None:
        self.figures.setdefault(axis, {})[label] = figures
        shown = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items() if "other" not in name)
        print(f"{self.broker.system} {axis} {label}: {shown}", flush=True)


def medians(rounds: list[dict[str, dict[str, Figures]]]) -> dict[str, dict[str, Figures]]:
    """Of each figure of each case."""
    first = rounds[0]
    return {
        axis: {
            label: {
                name: median_or_none(each[axis][label].get(name) for each in rounds) or 0.0
                for name in first[axis][label]
            }
            for label in first[axis]
        }
        for axis in first
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    parser.add_argument("--no-kafka", action="store_true", help="ottla alone; the page is not written")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a measurement (default: {SECONDS})")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many (default: 1)")
    parser.add_argument(
        "--from", type=Path, dest="source", metavar="FILE", help="write the page of an earlier run again"
    )
    options = parser.parse_args()
    if options.source is not None:
        write_report(json.loads(options.source.read_text()), DOCS)
        return 0
    systems = (OTTLA,) if options.no_kafka else (OTTLA, KAFKA)
    began = time.time()
    rounds: dict[str, list[dict[str, dict[str, Figures]]]] = {system: [] for system in systems}
    try:
        for number in range(options.rounds):
            for system in systems if number % 2 == 0 else reversed(systems):
                with SYSTEMS[system](cache_folder() / "logs" / f"tuning-{system}.log") as broker:
                    run = Run(broker, options.seconds)
                    run.all()
                rounds[system].append(run.figures)
    except BenchError as problem:
        print(problem, file=sys.stderr)
        return 1
    results = {
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(began)),
        "took_s": round(time.time() - began),
        "seconds": options.seconds,
        "rounds": options.rounds,
        "machine": machine_facts(systems),
        "figures": {system: medians(found) for system, found in rounds.items()},
    }
    path = cache_folder() / "results" / "tuning.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1))
    print(f"{path}: {results['took_s']} s in all")
    if not options.no_kafka:
        write_report(results, DOCS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
