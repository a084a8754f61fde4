"""Rates of growing counters, as in Kafka's meters. Pure: time and counts are arguments.

A Meter is ticked every few seconds with the count so far, and keeps moving averages over one, five and fifteen minutes,
weighted like the load averages of Unix. A WindowedRate is the rate of Kafka's newer metrics: the growth within the last
`metrics.num.samples` windows of `metrics.sample.window.ms`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.metrics.histogram import Histogram

TICK_SECONDS: Final = 5.0
NEGLIGIBLE: Final = 1e-9  # lower rates are 0


class Meter:
    """Moving averages of one count, per second."""

    __slots__ = ("count", "fifteen_minutes", "five_minutes", "is_started", "one_minute", "started_s")

    def __init__(self, now_s: float, count: int = 0) -> None:
        self.started_s = now_s
        self.count = count
        self.is_started = False
        self.one_minute = self.five_minutes = self.fifteen_minutes = 0.0

    def tick(self, count: int, elapsed_s: float) -> None:
        """Update the averages with the current count and the time since the last tick."""
        grown = count - self.count
        self.count = count
        if grown == 0 and self.one_minute == self.five_minutes == self.fifteen_minutes == 0.0:
            return
        rate = grown / elapsed_s
        if not self.is_started:
            self.is_started = True
            self.one_minute = self.five_minutes = self.fifteen_minutes = rate
            return
        self.one_minute = _moved(self.one_minute, rate, elapsed_s, 1)
        self.five_minutes = _moved(self.five_minutes, rate, elapsed_s, 5)
        self.fifteen_minutes = _moved(self.fifteen_minutes, rate, elapsed_s, 15)

    def mean(self, count: int, now_s: float) -> float:
        elapsed = now_s - self.started_s
        return count / elapsed if elapsed > 0 else 0.0

    def __repr__(self) -> str:
        return f"<Meter {self.count}, {self.one_minute:.1f}/s>"


class MeterRegistry:
    """The meters of many counters, created when a counter is first seen and removed with it."""

    def __init__(self, now_s: float) -> None:
        self._meters: dict[tuple[str, ...], Meter] = {}
        self._started_s = now_s
        self._elapsed_s = TICK_SECONDS

    def begin(self, elapsed_s: float) -> None:
        """Begin a tick, with the time since the last one."""
        self._elapsed_s = elapsed_s

    def note(self, key: tuple[str, ...], count: int, now_s: float) -> None:
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(now_s - self._elapsed_s if count else now_s)
        meter.tick(count, self._elapsed_s)

    def get(self, key: tuple[str, ...]) -> Meter:
        """Return the meter of a key; without rates before its first tick."""
        return self._meters.get(key) or Meter(self._started_s)

    def forget(self, is_gone: Callable[[tuple[str, ...]], bool]) -> None:
        for key in [key for key in self._meters if is_gone(key)]:
            del self._meters[key]

    def __len__(self) -> int:
        return len(self._meters)

    def __repr__(self) -> str:
        return f"<MeterRegistry {len(self._meters)} meters>"


class WindowedRate:
    """The growth of a counter per second, within the last windows."""

    def __init__(self, samples: int, window_s: float) -> None:
        self._samples = samples
        self._window_s = window_s
        self._marks: deque[tuple[float, int]] = deque()  # start of a window, and the count at that time

    def tick(self, count: int, now_s: float) -> None:
        if not self._marks:
            self._marks.append((now_s, 0))  # the count is the growth since the last tick
        elif now_s - self._marks[-1][0] >= self._window_s:
            self._marks.append((now_s, count))
        while len(self._marks) > self._samples:
            self._marks.popleft()

    def rate(self, count: int, now_s: float) -> float:
        if not self._marks:
            return 0.0
        began_s, began = self._marks[0]
        # As in Kafka: the windows before the current one count in full, so that a first value is not a huge rate.
        elapsed = max(now_s - began_s, (self._samples - 1) * self._window_s)
        return (count - began) / elapsed if elapsed > 0 else 0.0

    def __repr__(self) -> str:
        return f"<WindowedRate {len(self._marks)} of {self._samples} samples>"


class RecentHistogram:
    """The values of a histogram from the last five minutes, in steps of one minute."""

    STEP_S: Final = 60.0
    STEPS: Final = 5

    def __init__(self, histogram: Histogram) -> None:
        self.histogram = histogram
        self._marks: deque[list[int]] = deque(maxlen=self.STEPS)
        self._marked_s = -math.inf
        self._total = 0

    def tick(self, now_s: float) -> None:
        if now_s - self._marked_s < self.STEP_S:
            return
        self._marked_s = now_s
        if self.histogram.total != self._total or any(mark != self._marks[0] for mark in self._marks):
            self._marks.append(list(self.histogram.counts))
        self._total = self.histogram.total

    def counts(self) -> list[int]:
        """Return the counts of the last minutes by bucket."""
        if len(self._marks) < self.STEPS:
            return self.histogram.counts
        return [now - then for now, then in zip(self.histogram.counts, self._marks[0], strict=True)]

    def __repr__(self) -> str:
        return f"<RecentHistogram {len(self._marks)} marks of {self.histogram!r}>"


def _moved(rate: float, instant: float, elapsed_s: float, minutes: int) -> float:
    moved = rate + (1 - math.exp(-elapsed_s / 60 / minutes)) * (instant - rate)
    return moved if moved > NEGLIGIBLE else 0.0
