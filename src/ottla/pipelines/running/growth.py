"""How fast the state of a query grows: per hour, over the last hour. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

HOUR_MS = 3_600_000
SPACING_MS = 60_000  # between two samples that are kept
SHORTEST_MS = 300_000  # in less time a growth says nothing


class Sample(NamedTuple):
    at_ms: int
    rows: int
    size_bytes: int


class Growth:
    """Told of the state after every batch; keeps a sample a minute, for an hour."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=HOUR_MS // SPACING_MS)

    def __repr__(self) -> str:
        return f"Growth({len(self._samples)} samples)"

    def add(self, at_ms: int, rows: int, size_bytes: int) -> tuple[float, float] | None:
        """Rows and bytes an hour, None while too little is known."""
        now = Sample(at_ms, rows, size_bytes)
        if not self._samples or at_ms - self._samples[-1].at_ms >= SPACING_MS:
            self._samples.append(now)
        first = self._samples[0]
        elapsed_ms = at_ms - first.at_ms
        if elapsed_ms < SHORTEST_MS:
            return None
        hours = elapsed_ms / HOUR_MS
        return (rows - first.rows) / hours, (size_bytes - first.size_bytes) / hours
