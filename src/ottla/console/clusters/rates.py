"""Rates out of offsets: how much has come since a reading of some seconds ago. Pure.

The window is a few readings long, so that one batch does not look like a flood. Offsets that go back (a topic that was
made anew, a group that was reset) count as nothing, never as a negative rate.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

READINGS = 4  # the window: three periods
K = TypeVar("K", bound=Hashable)


class Rates(Generic[K]):
    """The last readings of some growing numbers."""

    def __init__(self) -> None:
        self.readings: deque[tuple[int, Mapping[K, int]]] = deque(maxlen=READINGS)

    def add(self, now_ms: int, numbers: Mapping[K, int]) -> dict[K, float]:
        """Note a reading; how fast each number grows a second, without those that stand still."""
        self.readings.append((now_ms, numbers))
        before_ms, before = self.readings[0]
        if now_ms <= before_ms:
            return {}
        seconds = (now_ms - before_ms) / 1000
        return {
            key: (number - before[key]) / seconds for key, number in numbers.items() if number > before.get(key, number)
        }

    def __repr__(self) -> str:
        return f"<Rates {len(self.readings)} readings>"


class Point(NamedTuple):
    """What a cluster did at a moment: records a second in and out, and how many wait for their groups."""

    at_ms: int
    produced: float
    consumed: float
    backlog: int


class History:
    """Points of the last day; older ones make room. What a process knew is given to the next (history/recorder.py)."""

    INTERVAL_MS = 10_000
    POINTS_MAX = 24 * 3600 * 1000 // INTERVAL_MS

    def __init__(self) -> None:
        self.columns = tuple(array("d") for _ in Point._fields)

    def add(self, point: Point) -> None:
        times = self.columns[0]
        if times and point.at_ms - times[-1] < self.INTERVAL_MS:
            return
        for column, value in zip(self.columns, point, strict=True):
            column.append(value)
            if len(column) > self.POINTS_MAX:
                del column[: self.POINTS_MAX // 100]

    def since(self, at_ms: int, points_max: int) -> list[list[float]]:
        """Columns from a time on, thinned out to at most so many points."""
        times = self.columns[0]
        first = next((place for place, time in enumerate(times) if time >= at_ms), len(times))
        step = max(1, -(-(len(times) - first) // points_max))
        return [list(column[first::step]) for column in self.columns]

    def __repr__(self) -> str:
        return f"<History {len(self.columns[0])} points>"
