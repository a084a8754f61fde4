"""How long the disks under the folders of `log.dirs` take to bring something to safety.

Of each folder the fastest sync of the last seconds counts: one that had a gigabyte to write, or waited behind one, says
nothing about a disk; one of which even the small ones take long is slow. One that answers nothing at all is as slow as
what waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.base.clock import Clock

PERIOD_MS: Final = 10_000  # what ended in this period and in the one before counts


class SyncTimes:
    """Of one broker; noted by whichever thread syncs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._fastest_ms: dict[int, dict[str, int]] = {}  # by period and folder
        self._running: dict[object, tuple[str, int]] = {}  # folder, and since when

    @contextmanager
    def timed(self, folder: str) -> Iterator[None]:
        """Around a sync of something in that folder."""
        began_ms = self._clock.monotonic_ms()
        key = object()
        with self._lock:
            self._running[key] = (folder, began_ms)
        try:
            yield
        finally:
            ended_ms = self._clock.monotonic_ms()
            with self._lock:
                del self._running[key]
                found = self._periods(ended_ms).setdefault(ended_ms // PERIOD_MS, {})
                found[folder] = min(ended_ms - began_ms, found.get(folder, ended_ms - began_ms))

    def slowest_ms(self) -> int:
        """Of the slowest folder; 0 if nothing was synced."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            waiting: dict[str, int] = {}
            for folder, began_ms in self._running.values():
                waiting[folder] = max(now_ms - began_ms, waiting.get(folder, 0))
            ended: dict[str, int] = {}
            for found in self._periods(now_ms).values():
                for folder, ms in found.items():
                    ended[folder] = min(ms, ended.get(folder, ms))
        return max({**waiting, **ended}.values(), default=0)

    def _periods(self, now_ms: int) -> dict[int, dict[str, int]]:
        """Without those that are over."""
        oldest = now_ms // PERIOD_MS - 1
        if any(period < oldest for period in self._fastest_ms):
            self._fastest_ms = {period: found for period, found in self._fastest_ms.items() if period >= oldest}
        return self._fastest_ms

    def __repr__(self) -> str:
        return f"<SyncTimes {self.slowest_ms()} ms>"
