"""The growth of a query's state: per hour, over the last hour. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

HOUR_MS = 3_600_000
SPACING_MS = 60_000  # minimum distance of stored samples
SHORTEST_MS = 300_000  # a shorter interval is not meaningful


class Sample(NamedTuple):
    at_ms: int
    rows: int
    size_bytes: int


class Growth:
    """Receives the state size after every batch; stores one sample per minute, for an hour."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=HOUR_MS // SPACING_MS)

    def __repr__(self) -> str:
        return f"Growth({len(self._samples)} samples)"

    def add(self, at_ms: int, rows: int, size_bytes: int) -> tuple[float, float] | None:
        """Rows and bytes per hour, None if unknown."""
        now = Sample(at_ms, rows, size_bytes)
        if not self._samples or at_ms - self._samples[-1].at_ms >= SPACING_MS:
            self._samples.append(now)
        first = self._samples[0]
        elapsed_ms = at_ms - first.at_ms
        if elapsed_ms < SHORTEST_MS:
            return None
        hours = elapsed_ms / HOUR_MS
        return (rows - first.rows) / hours, (size_bytes - first.size_bytes) / hours
