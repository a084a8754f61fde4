"""How fast replicas are copied, for their throttles (KIP-73, KIP-113). Pure: time is an argument.

Kafka's simple rate: what was copied in the windows that count, over the time since the oldest of them began, but over
one window at least. So a beginner may copy one window's worth at once; who was slower than allowed may catch up on what
the windows remember; and whatever was copied too much is forgotten when its window has left.
"""

from __future__ import annotations

from collections import deque

from ottla.quotas.meter import Window
from ottla.quotas.shares import Windows


class CopyRate:
    """Of all replicas under one throttle together."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._counting: deque[Window] = deque()
        self._total = 0.0

    def note(self, size: int, now_ms: int) -> None:
        """So many bytes were copied."""
        self._forget(now_ms)
        counting = self._counting
        if not counting or now_ms >= counting[-1].start_ms + self._windows.ms:
            counting.append(Window(now_ms))
        counting[-1].amount += size
        self._total += size

    def wait_ms(self, bytes_per_second: int, now_ms: int) -> int:
        """How long nothing more may be copied under this limit; 0: some may be now."""
        self._forget(now_ms)
        if not self._counting:
            return 0
        since_ms = self._counting[0].start_ms
        if self._total * 1000 <= bytes_per_second * max(now_ms - since_ms, self._windows.ms):
            return 0
        left_ms = since_ms + self._windows.num * self._windows.ms
        paid_ms = since_ms + int(self._total * 1000 / bytes_per_second) + 1 if bytes_per_second > 0 else left_ms
        return max(1, min(left_ms, paid_ms) - now_ms)

    def _forget(self, now_ms: int) -> None:
        """Windows that began longer ago than all of them last do not count any more."""
        counting, oldest_ms = self._counting, now_ms - self._windows.num * self._windows.ms
        while counting and counting[0].start_ms <= oldest_ms:
            self._total -= counting.popleft().amount

    def __repr__(self) -> str:
        return f"<CopyRate {self._total:.0f} bytes in {len(self._counting)} windows>"
