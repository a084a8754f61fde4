"""Load of the event loop: idle share and longest iterations."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from ottla.network.loop_latency import IterationTime
from ottla.network.poller import Poller

TICKS_PER_MINUTE: Final = 12  # one minute


class EventLoopLoad:
    """Reads the poller's measurements; ticked every five seconds."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._longest: deque[int] = deque(maxlen=TICKS_PER_MINUTE)
        self._marks: deque[tuple[int, int]] = deque(maxlen=TICKS_PER_MINUTE)  # time, busy time
        self._started_ns = time.monotonic_ns()
        self._busy_before_ns = poller.busy_ns
        self.tick()

    def tick(self) -> None:
        self._longest.append(self._poller.recent_ns)
        self._poller.recent_ns = 0
        self._marks.append((time.monotonic_ns(), self._poller.busy_ns))

    @property
    def recent_longest_s(self) -> float:
        """The longest iteration of the last minute."""
        return max(*self._longest, self._poller.recent_ns) / 1e9

    @property
    def longest_s(self) -> float:
        return self._poller.longest_ns / 1e9

    @property
    def slow_count(self) -> int:
        return self._poller.slow_count

    @property
    def slow(self) -> IterationTime:
        """How the time of all slow iterations was spent."""
        return self._poller.slow_iterations.total

    @property
    def busy_s(self) -> float:
        return self._poller.busy_ns / 1e9

    @property
    def idle_ns(self) -> int:
        return time.monotonic_ns() - self._started_ns - (self._poller.busy_ns - self._busy_before_ns)

    @property
    def idle(self) -> float:
        """The idle share of the last minute, 0 to 1."""
        return self._idle_since(*self._marks[0])

    @property
    def idle_since_start(self) -> float:
        return self._idle_since(self._started_ns, self._busy_before_ns)

    def _idle_since(self, then_ns: int, busy_ns: int) -> float:
        elapsed = time.monotonic_ns() - then_ns
        return min(1.0, max(0.0, 1 - (self._poller.busy_ns - busy_ns) / elapsed)) if elapsed else 1.0

    def __repr__(self) -> str:
        return f"<EventLoopLoad {self.idle:.0%} idle, longest {self.recent_longest_s * 1000:.1f} ms>"


def loop_report(poller: Poller) -> dict[str, float]:
    """Return the longest iteration with its time, if it took over 10 ms, and the maximum work of one iteration."""
    running_ns, waiting_ns, asleep_ns = poller.slow_iterations.longest
    return {
        "longest_callback_ms": round(poller.longest_ns / 1e6, 3),
        "running_ms": round(running_ns / 1e6, 3),
        "waiting_for_core_ms": round(waiting_ns / 1e6, 3),
        "asleep_ms": round(asleep_ns / 1e6, 3),
        "most_running_ms": round(poller.slow_iterations.longest_running_ns / 1e6, 3),
        "slow_iterations": poller.slow_count,
    }
