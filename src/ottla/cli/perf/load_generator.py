"""Sends records as fast as asked and measures how long each one takes: the engine of the producer perf tests.

The loop below runs once per record, so it holds nothing but a call of the library; deliveries come in lots.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.librdkafka import hurry_metadata, library, make_producer
from ottla.cli.perf.statistics import Statistics
from ottla.cli.records.producing import FAILURES_SHOWN_MAX, FLUSH_SECONDS_ON_STOP, POLL_SECONDS, sentence
from ottla.cli.terminal import ToolError, end_on_sigterm, warn

LOT = 64  # records between two looks at the clock and at deliveries
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTERS_BYTES = 1 << 16  # random letters beyond one record, so that no two neighbours are alike
PAYLOAD_FILE_BYTES_MAX = 1 << 30
TRANSACTION_SECONDS = 60.0
SETTLE_SECONDS = 0.55  # the library asks for its producer id half a second after its start: not part of the load

Payload = Callable[[int], bytes]


class Load(NamedTuple):
    """How much to send, how fast."""

    topic: str
    records: int
    records_per_second: float  # below 1: as fast as possible
    payload: Payload
    warmup_records: int = 0
    interval_ms: int = 5000
    transaction_ms: int | None = None


class Generator:
    """One run of a load."""

    def __init__(self, name: str, settings: Mapping[str, Any], load: Load, say: Callable[[str], None]) -> None:
        self.name = name
        self.load = load
        self.say = say
        self.library = library()
        self.producer = make_producer({**settings, "on_delivery": self._delivered}, is_measured=True)
        hurry_metadata(self.producer, load.topic)
        time.sleep(SETTLE_SECONDS)
        self.latencies: list[float] = []  # of deliveries that the statistics have not seen yet
        self.bytes = 0
        self.failed = 0
        self.delivered = 0
        self.last_ms = _now_ms()  # when everything had arrived
        self.transaction_start = 0.0
        self.is_in_transaction = False
        self.statistics = Statistics(load.records, _now_ms(), load.interval_ms)
        self.steady: Statistics | None = None

    def run(self, on_progress: Callable[[int], None] | None = None) -> int:
        """Send everything; the exit code. A signal stops the sending and lets what was sent arrive."""
        end_on_sigterm()
        is_whole = False
        try:
            if self.load.transaction_ms is not None:
                self.producer.init_transactions(TRANSACTION_SECONDS)
            self._send_all(on_progress)
            self._finish(on_progress)
            is_whole = True
        except self.library.KafkaException as problem:
            raise ToolError(sentence(problem.args[0])) from None
        except SystemError as problem:
            # The library's word for an exception of a signal that came inside one of its calls.
            raise (problem.__context__ or KeyboardInterrupt()) from None
        finally:
            if not is_whole:
                self.producer.flush(FLUSH_SECONDS_ON_STOP)
        return 1 if self.failed else 0

    def _send_all(self, on_progress: Callable[[int], None] | None) -> None:
        load = self.load
        start = time.monotonic()
        self.statistics = Statistics(load.records, _now_ms(), load.interval_ms)
        produce, topic, payload = self.producer.produce, load.topic, load.payload
        sent = 0
        while sent < load.records:
            self._begin()
            until = min(sent + self._lot(sent, start), load.records)
            while sent < until:
                try:
                    produce(topic, payload(sent))
                    sent += 1
                except BufferError:
                    self._take(POLL_SECONDS)
            self._take(0)
            self._commit(is_last=False)
            if on_progress is not None:
                on_progress(self.delivered)

    def _lot(self, sent: int, start: float) -> int:
        """How many records may go now; sleeps, hearing deliveries, while the load is ahead of its rate."""
        rate = self.load.records_per_second
        if rate < 1:
            return LOT
        while (ahead := sent / rate - (time.monotonic() - start)) > 0:
            self._take(min(ahead, POLL_SECONDS))
        return max(1, min(LOT, int((time.monotonic() - start) * rate) - sent))

    def _begin(self) -> None:
        if self.load.transaction_ms is not None and not self.is_in_transaction:
            self.producer.begin_transaction()
            self.transaction_start = time.monotonic()
            self.is_in_transaction = True

    def _commit(self, *, is_last: bool) -> None:
        if not self.is_in_transaction:
            return
        age_ms = (time.monotonic() - self.transaction_start) * 1000
        if is_last or age_ms >= (self.load.transaction_ms or 0):
            self.producer.commit_transaction(TRANSACTION_SECONDS)
            self.is_in_transaction = False

    def _finish(self, on_progress: Callable[[int], None] | None) -> None:
        self._commit(is_last=True)
        while self.producer.flush(POLL_SECONDS):
            self._take(0)
            if on_progress is not None:
                on_progress(self.delivered)
        self._take(0)
        self.last_ms = _now_ms()

    def _take(self, seconds: float) -> None:
        """Hear about deliveries and hand them to the statistics."""
        self.producer.poll(seconds)
        if not self.latencies:
            return
        latencies, self.latencies = self.latencies, []
        size, self.bytes = self.bytes, 0
        now = _now_ms()
        warm = self.load.warmup_records
        before = self.delivered
        self.delivered += len(latencies)
        if warm and self.delivered > warm:
            self._take_steady(latencies[max(0, warm - before) :], size, len(latencies), now)
        for line in self.statistics.add(latencies, size, now):
            self.say(line)

    def _take_steady(self, latencies: list[float], size: int, count: int, now: int) -> None:
        """What comes after the warm-up is counted on its own as well."""
        if self.steady is None:
            left = self.load.records - self.load.warmup_records
            self.steady = Statistics(left, now, self.load.interval_ms, is_steady_state=True)
            self.statistics.is_silent = True
        for line in self.steady.add(latencies, size * len(latencies) // count, now):
            self.say(line)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.latencies.append(message.latency() * 1000)
            self.bytes += len(message)
            return
        self.failed += 1
        if self.failed <= FAILURES_SHOWN_MAX:
            warn(f"{self.name}: a record was not stored in {self.load.topic}: {sentence(error)}")

    def __repr__(self) -> str:
        return f"<Generator {self.load.topic} delivered={self.delivered} failed={self.failed}>"


def random_payload(size: int) -> Payload:
    """Records of random capital letters: each begins at another place of one long text."""
    text = bytes(random.Random(0).choices(LETTERS, k=size + LETTERS_BYTES))  # noqa: S311 (no secret)

    def payload(number: int) -> bytes:
        start = number * 7919 % LETTERS_BYTES
        return text[start : start + size]

    return payload


def chosen_payload(payloads: list[bytes]) -> Payload:
    """One of the given ones, by chance, the same ones on every run."""
    choose = random.Random(0).choice  # noqa: S311 (no secret)
    return lambda _: choose(payloads)


def counted_payload(number: int) -> bytes:
    """The number of the record."""
    return b"%d" % number


def read_payloads(path: str, delimiter: bytes) -> list[bytes]:
    """The payloads in a file; an empty last one is only the end of the file."""
    file = Path(path)
    if not file.exists() or file.stat().st_size == 0:
        raise ToolError("File does not exist or empty file provided.")
    if file.stat().st_size > PAYLOAD_FILE_BYTES_MAX:
        raise ToolError(f"{path} is larger than {PAYLOAD_FILE_BYTES_MAX} bytes")
    payloads = file.read_bytes().split(delimiter)
    if not payloads[-1]:
        payloads.pop()
    return payloads or [b""]


def _now_ms() -> int:
    return int(time.time() * 1000)
