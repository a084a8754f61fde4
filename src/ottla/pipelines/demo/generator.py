"""The common part of all example generators: options, pace, sending, progress line.

    if __name__ == "__main__":
        run_generator("Readings of sensors.", "sensor-readings", readings, expected)

`--rate` sends in real time, with current timestamps. Without it the records of a fixed morning are sent as fast as
possible: the same seed gives the same records, byte for byte, and `--expect` prints the results that a correct pipeline
must find.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from ottla.base.bootstrap import default_bootstrap

HISTORY_START_MS = 1_767_600_000_000  # 2026-01-05T08:00:00Z, a Monday
COUNT = 20_000
HISTORY_RATE = 100.0  # records per second of a history, in its own time
PROGRESS_SECONDS = 1.0
DELIVERY_SECONDS_MAX = 30.0
PARTITIONS = 2
PRODUCER_SETTINGS = {"linger.ms": 20, "enable.idempotence": True, "partitioner": "murmur2_random"}
ALREADY_EXISTS = 36


class Record(NamedTuple):
    """A record and the time at which it is sent."""

    at_ms: int
    key: str | None
    value: bytes | None


class GeneratorSettings(NamedTuple):
    """The parameters of a generator: `rate` is in records per second of the records' own time."""

    seed: int = 1
    start_ms: int = HISTORY_START_MS
    rate: float = HISTORY_RATE

    def random_generator(self) -> Random:
        """The only source of randomness in a generator."""
        return Random(self.seed)  # # noqa: S311 (generated data)


RecordGenerator = Callable[[GeneratorSettings], Iterator[Record]]  # endless
ExpectedResults = Callable[[Iterable[Record]], dict[str, Any]]


def first_records(make: RecordGenerator, count: int, plan: GeneratorSettings | None = None) -> list[Record]:
    """The first records, for tests."""
    return list(islice(make(plan or GeneratorSettings()), count))


def run_generator(
    description: str, topic: str, make: RecordGenerator, expect: ExpectedResults, arguments: list[str] | None = None
) -> int:
    """The command line of a generator; return its exit code."""
    options = _parser(description, topic).parse_args(arguments)
    is_live = options.rate is not None
    plan = GeneratorSettings(options.seed, _now_ms() if is_live else HISTORY_START_MS, options.rate or HISTORY_RATE)
    records = islice(make(plan), options.count or (None if is_live else COUNT))
    if options.expect:
        print(json.dumps(expect(records), indent=2, sort_keys=True))
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    sender = Sender(options.bootstrap_server, options.topic)
    try:
        sender.create_topic()
        return sender.send(_paced(records, plan.start_ms) if is_live else records)
    except KeyboardInterrupt:
        return sender.finish()


class Sender:
    """Sends to one topic and prints the count once per second."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer  # # noqa: PLC0415 (`--expect` needs no client)

        self.topic = topic
        self.settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self.producer = Producer({**self.settings, **PRODUCER_SETTINGS})
        self.count = 0
        self.failed = 0
        self.started = time.monotonic()
        self.last_progress = self.started

    def __repr__(self) -> str:
        return f"<Sender {self.topic} count={self.count} failed={self.failed}>"

    def create_topic(self, partitions: int = PARTITIONS) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415
        from confluent_kafka.cimpl import NewTopic  # # noqa: PLC0415 (its public name is not exported for type checkers)

        admin = AdminClient(self.settings)
        for waiting in admin.create_topics([NewTopic(self.topic, partitions)]).values():
            try:
                waiting.result(DELIVERY_SECONDS_MAX)
            except KafkaException as problem:
                if problem.args[0].code() != ALREADY_EXISTS:
                    raise SystemExit(f"cannot create topic {self.topic}: {problem.args[0].str()}") from None

    def send(self, records: Iterable[Record]) -> int:
        for record in records:
            self._produce(record)
            self.count += 1
            if time.monotonic() - self.last_progress >= PROGRESS_SECONDS:
                self._print_progress()
        return self.finish()

    def finish(self) -> int:
        """Wait for pending records; return 1 if some were lost."""
        self.failed += self.producer.flush(DELIVERY_SECONDS_MAX)
        self._print_progress()
        if self.failed:
            print(f"{self.failed:,} records did not arrive", file=sys.stderr)
        return 1 if self.failed else 0

    def _produce(self, record: Record) -> None:
        while True:
            try:
                self.producer.produce(self.topic, record.value, record.key, on_delivery=self._delivered)
            except BufferError:
                self.producer.poll(0.1)
            else:
                self.producer.poll(0)
                return

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed += 1

    def _print_progress(self) -> None:
        self.last_progress = time.monotonic()
        seconds = max(self.last_progress - self.started, 0.001)
        print(f"{self.count:,} records to {self.topic}, {self.count / seconds:,.0f} a second", flush=True)


def _paced(records: Iterable[Record], start_ms: int) -> Iterator[Record]:
    """Yield each record at its time."""
    begun = time.monotonic()
    for record in records:
        ahead = (record.at_ms - start_ms) / 1000 - (time.monotonic() - begun)
        if ahead > 0:
            time.sleep(ahead)
        yield record


def _parser(description: str, topic: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other records (1)")
    parser.add_argument("--rate", type=_rate, metavar="N", help="records a second, in real time (as fast as possible)")
    parser.add_argument("--count", type=_count, metavar="N", help=f"stop after so many ({COUNT:,}; with --rate: never)")
    parser.add_argument("--topic", default=topic, help=f"where to ({topic})")
    default = default_bootstrap()
    parser.add_argument("--bootstrap-server", default=default, metavar="HOST:PORT", help=f"({default})")
    parser.add_argument("--expect", action="store_true", help="print what a pipeline must find in them")
    return parser


def _rate(text: str) -> float:
    found = float(text)
    if not 0 < found <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is no rate")
    return found


def _count(text: str) -> int:
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
