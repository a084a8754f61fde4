"""The engine of the producer perf tests: sends records at a given rate and measures their latency.

The send loop runs once per record and contains only a library call. Deliveries are processed in batches, so the
statistics cost one `append` per record. Statistics are pure: the time is an argument.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.librdkafka import library, make_producer, prefetch_metadata
from ottla.cli.records.console_producer import FAILURES_SHOWN_MAX, FLUSH_SECONDS_ON_STOP, POLL_SECONDS, error_text
from ottla.cli.terminal import ToolError, exit_on_sigterm, warn

SAMPLES_MAX = 500_000
PERCENTILES = (0.5, 0.95, 0.99, 0.999)
MEBIBYTE = 1024 * 1024


class Window:
    """The deliveries of one interval."""

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.bytes = 0
        self.latency_sum_ms = 0.0
        self.latency_max_ms = 0

    def add(self, latencies_ms: Sequence[float], size_bytes: int) -> None:
        self.count += len(latencies_ms)
        self.bytes += size_bytes
        self.latency_sum_ms += sum(latencies_ms)
        self.latency_max_ms = max(self.latency_max_ms, int(max(latencies_ms)))

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Records and MiB per second."""
        seconds = max(now_ms - self.start_ms, 1) / 1000
        return self.count / seconds, self.bytes / seconds / MEBIBYTE

    @property
    def latency_ms(self) -> float:
        return self.latency_sum_ms / self.count if self.count else 0.0

    def __repr__(self) -> str:
        return f"<Window {self.count} records, {self.bytes} bytes since {self.start_ms}>"


class Summary(NamedTuple):
    """The result of a whole run."""

    records: int
    records_per_second: float
    mebibytes_per_second: float
    latency_ms: float
    latency_max_ms: int
    percentiles_ms: tuple[int, ...]  # as PERCENTILES


class Statistics:
    """The statistics of one run, with a sample of the latencies for the percentiles."""

    def __init__(self, records: int, start_ms: int, interval_ms: int, *, is_steady_state: bool = False) -> None:
        self.total = Window(start_ms)
        self.window = Window(start_ms)
        self.interval_ms = interval_ms
        self.is_steady_state = is_steady_state
        self.is_silent = False  # the steady state prints the windows instead
        self.sampling = max(1, records // SAMPLES_MAX)
        self.samples = array("l")

    def add(self, latencies_ms: Sequence[float], size_bytes: int, now_ms: int) -> list[str]:
        """Add a batch of delivered records; returns the lines that are due."""
        if not latencies_ms:
            return []
        skipped = -self.total.count % self.sampling
        self.samples.extend(map(int, latencies_ms[skipped :: self.sampling]))
        self.total.add(latencies_ms, size_bytes)
        self.window.add(latencies_ms, size_bytes)
        if now_ms - self.window.start_ms < self.interval_ms:
            return []
        lines = ["In steady state."] if self.is_steady_state and self.total.count == self.window.count else []
        if not self.is_silent:
            lines.append(self._window_line(now_ms))
        self.window = Window(now_ms)
        return lines

    def summary(self, now_ms: int) -> Summary:
        ordered = sorted(self.samples)
        last = max(len(ordered) - 1, 0)
        found = tuple(ordered[min(int(part * len(ordered)), last)] if ordered else 0 for part in PERCENTILES)
        total = self.total
        return Summary(total.count, *total.rates(now_ms), total.latency_ms, total.latency_max_ms, found)

    def total_line(self, now_ms: int) -> str:
        summary = self.summary(now_ms)
        state = " steady state" if self.is_steady_state else ""
        p50, p95, p99, p999 = summary.percentiles_ms
        return (
            f"{summary.records}{state} records sent, {summary.records_per_second:f} records/sec "
            f"({summary.mebibytes_per_second:.2f} MB/sec), {summary.latency_ms:.2f} ms avg latency, "
            f"{summary.latency_max_ms:.2f} ms max latency, "
            f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
        )

    def _window_line(self, now_ms: int) -> str:
        window = self.window
        records, mebibytes = window.rates(now_ms)
        return (
            f"{window.count} records sent, {records:.1f} records/sec ({mebibytes:.2f} MB/sec), "
            f"{window.latency_ms:.1f} ms avg latency, {window.latency_max_ms:.1f} ms max latency."
        )

    def __repr__(self) -> str:
        return f"<Statistics {self.total!r} samples={len(self.samples)}>"


BATCH_RECORDS = 64  # records between two checks of the clock and of deliveries
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTERS_BYTES = 1 << 16  # random letters beyond one record, so that adjacent records differ
PAYLOAD_FILE_BYTES_MAX = 1 << 30
TRANSACTION_SECONDS = 60.0
PRODUCER_ID_SECONDS = (
    0.55  # librdkafka requests its producer id half a second after its start; exclude that from the load
)

Payload = Callable[[int], bytes]


class Load(NamedTuple):
    """The number of records and their rate."""

    topic: str
    records: int
    records_per_second: float  # below 1: unlimited
    payload: Payload
    warmup_records: int = 0
    interval_ms: int = 5000
    transaction_ms: int | None = None


class LoadGenerator:
    """One run of a load."""

    def __init__(self, name: str, settings: Mapping[str, Any], load: Load, say: Callable[[str], None]) -> None:
        self.name = name
        self.load = load
        self.say = say
        self.library = library()
        self.producer = make_producer({**settings, "on_delivery": self._delivered}, requires_librdkafka=True)
        prefetch_metadata(self.producer, load.topic)
        time.sleep(PRODUCER_ID_SECONDS)
        self.latencies: list[float] = []  # of deliveries not yet in the statistics
        self.bytes = 0
        self.failed = 0
        self.delivered = 0
        self.last_ms = _now_ms()  # time of the last delivery
        self.transaction_start = 0.0
        self.is_in_transaction = False
        self.statistics = Statistics(load.records, _now_ms(), load.interval_ms)
        self.steady_state: Statistics | None = None

    def run(self, on_progress: Callable[[int], None] | None = None) -> int:
        """Send all records; returns the exit code. A signal stops sending and waits for deliveries."""
        exit_on_sigterm()
        is_whole = False
        try:
            if self.load.transaction_ms is not None:
                self.producer.init_transactions(TRANSACTION_SECONDS)
            self._send_all(on_progress)
            self._finish(on_progress)
            is_whole = True
        except self.library.KafkaException as problem:
            raise ToolError(error_text(problem.args[0])) from None
        except SystemError as problem:
            # librdkafka raises SystemError for a signal exception inside one of its calls.
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
            until = min(sent + self._next_batch_size(sent, start), load.records)
            while sent < until:
                try:
                    produce(topic, payload(sent))
                    sent += 1
                except BufferError:
                    self._poll_deliveries(POLL_SECONDS)
            self._poll_deliveries(0)
            self._commit(is_last=False)
            if on_progress is not None:
                on_progress(self.delivered)

    def _next_batch_size(self, sent: int, start: float) -> int:
        """The number of records to send now; sleeps and polls while the load is ahead of its rate."""
        rate = self.load.records_per_second
        if rate < 1:
            return BATCH_RECORDS
        while (ahead := sent / rate - (time.monotonic() - start)) > 0:
            self._poll_deliveries(min(ahead, POLL_SECONDS))
        return max(1, min(BATCH_RECORDS, int((time.monotonic() - start) * rate) - sent))

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
            self._poll_deliveries(0)
            if on_progress is not None:
                on_progress(self.delivered)
        self._poll_deliveries(0)
        self.last_ms = _now_ms()

    def _poll_deliveries(self, seconds: float) -> None:
        """Poll deliveries and add them to the statistics."""
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
            self._add_steady_state(latencies[max(0, warm - before) :], size, len(latencies), now)
        for line in self.statistics.add(latencies, size, now):
            self.say(line)

    def _add_steady_state(self, latencies: list[float], size: int, count: int, now: int) -> None:
        """Add records after the warm-up to their own statistics."""
        if self.steady_state is None:
            left = self.load.records - self.load.warmup_records
            self.steady_state = Statistics(left, now, self.load.interval_ms, is_steady_state=True)
            self.statistics.is_silent = True
        for line in self.steady_state.add(latencies, size * len(latencies) // count, now):
            self.say(line)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.latencies.append(message.latency() * 1000)
            self.bytes += len(message)
            return
        self.failed += 1
        if self.failed <= FAILURES_SHOWN_MAX:
            warn(f"{self.name}: a record was not stored in {self.load.topic}: {error_text(error)}")

    def __repr__(self) -> str:
        return f"<LoadGenerator {self.load.topic} delivered={self.delivered} failed={self.failed}>"


def random_payload(size: int) -> Payload:
    """Records of random capital letters, cut from one long text at different positions."""
    text = bytes(random.Random(0).choices(LETTERS, k=size + LETTERS_BYTES))  # noqa: S311 (no secret)

    def payload(number: int) -> bytes:
        start = number * 7919 % LETTERS_BYTES
        return text[start : start + size]

    return payload


def chosen_payload(payloads: list[bytes]) -> Payload:
    """A random choice of the given payloads, the same on every run."""
    choose = random.Random(0).choice  # noqa: S311 (no secret)
    return lambda _: choose(payloads)


def counted_payload(number: int) -> bytes:
    """The number of the record as text."""
    return b"%d" % number


def read_payloads(path: str, delimiter: bytes) -> list[bytes]:
    """The payloads in a file; an empty last one is ignored."""
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
