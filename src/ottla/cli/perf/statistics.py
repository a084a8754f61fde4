"""Figures of a producer's load: how many records, how fast, how late, in the words of Kafka's perf test.

Pure: the time is an argument. Latencies come in lots, so that the work per record is one `append` elsewhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

SAMPLES_MAX = 500_000
PERCENTILES = (0.5, 0.95, 0.99, 0.999)
MEBIBYTE = 1024 * 1024


class Window:
    """What came in during one span of time."""

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
        """Records and MiB a second."""
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
    """The figures of one run; a sample of the latencies is kept for the percentiles."""

    def __init__(self, records: int, start_ms: int, interval_ms: int, *, is_steady_state: bool = False) -> None:
        self.total = Window(start_ms)
        self.window = Window(start_ms)
        self.interval_ms = interval_ms
        self.is_steady_state = is_steady_state
        self.is_silent = False  # another one prints the windows
        self.sampling = max(1, records // SAMPLES_MAX)
        self.samples = array("l")

    def add(self, latencies_ms: Sequence[float], size_bytes: int, now_ms: int) -> list[str]:
        """Take in a lot of delivered records; returns the lines that are due now."""
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
