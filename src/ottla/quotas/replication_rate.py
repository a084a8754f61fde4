"""Rates of replica copying, for replication throttles (KIP-73, KIP-113). Pure: time is an argument.

This is Kafka's simple rate: the bytes of all current windows, over the time since the oldest of them began, but at
least over one window. So a new copy may send one window's worth at once; one that was slower than allowed may catch up
as far as the windows reach back; and an excess is discarded when its window expires.
"""

from __future__ import annotations

from collections import deque

from ottla.quotas.meter import Window
from ottla.quotas.meter_registry import Windows


class ReplicationQuotaRate:
    """The rate of all replicas under one throttle."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._counting: deque[Window] = deque()
        self._total = 0.0

    def record(self, size: int, now_ms: int) -> None:
        """Add copied bytes."""
        self._forget(now_ms)
        counting = self._counting
        if not counting or now_ms >= counting[-1].start_ms + self._windows.ms:
            counting.append(Window(now_ms))
        counting[-1].amount += size
        self._total += size

    def wait_ms(self, bytes_per_second: int, now_ms: int) -> int:
        """Return the wait until more may be copied under this limit; 0: now."""
        self._forget(now_ms)
        if not self._counting:
            return 0
        since_ms = self._counting[0].start_ms
        if self._total * 1000 <= bytes_per_second * max(now_ms - since_ms, self._windows.ms):
            return 0
        left_ms = since_ms + self._windows.num * self._windows.ms
        paid_ms = since_ms + int(self._total * 1000 / bytes_per_second) + 1 if bytes_per_second > 0 else left_ms
        return max(1, min(left_ms, paid_ms) - now_ms)

    def bytes_left(self, bytes_per_second: int, now_ms: int) -> float:
        """Return the number of bytes that may be copied now, without a wait."""
        self._forget(now_ms)
        since_ms = self._counting[0].start_ms if self._counting else now_ms
        return bytes_per_second * max(now_ms - since_ms, self._windows.ms) / 1000 - self._total

    def _forget(self, now_ms: int) -> None:
        """Remove expired windows."""
        counting, oldest_ms = self._counting, now_ms - self._windows.num * self._windows.ms
        while counting and counting[0].start_ms <= oldest_ms:
            self._total -= counting.popleft().amount

    def __repr__(self) -> str:
        return f"<ReplicationQuotaRate {self._total:.0f} bytes in {len(self._counting)} windows>"
