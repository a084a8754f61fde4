"""Rates from offsets, and time series of one day in little memory. Pure.

* `Rates`: the window spans a few readings, so a single batch does not cause a spike. Offsets that go back (a recreated
  topic, a reset group) give no rate, never a negative one.
* `TimeSeries`: the last hour at full resolution, before that one point per minute. NaN means unknown. Starts
  empty with the process.
* `ClusterHistory`: points of the last day; `history/recorder.py` restores them after a restart.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

FINE_MAX = 720  # points: one hour at five seconds each
COARSE_MS = 60_000
COARSE_MAX = 24 * 60
GAP_MS, COARSE_GAP_MS = 35_000, 150_000  # a longer pause between points is drawn as a gap


class TimeSeries:
    """A time series with several columns of the same length."""

    def __init__(self, columns: int) -> None:
        self.fine = _Columns(columns, FINE_MAX)
        self.coarse = _Columns(columns, COARSE_MAX)
        self._minute: list[Sequence[float | None]] = []
        self._minute_ms = 0

    def add(self, at_ms: int, values: Sequence[float | None]) -> None:
        self.fine.add(at_ms, values)
        if self._minute and at_ms - self._minute_ms >= COARSE_MS:
            self.coarse.add(self._minute_ms, [_mean(column) for column in zip(*self._minute, strict=True)])
            self._minute = []
        if not self._minute:
            self._minute_ms = at_ms
        self._minute.append(tuple(values))

    def since(self, at_ms: int, points_max: int, now_ms: int) -> tuple[list[float], list[list[float]]]:
        """Times and columns from a time on, downsampled."""
        fine_ms = self.fine.times[0] if self.fine.times else math.inf
        old = [place for place, time in enumerate(self.coarse.times) if at_ms <= time < fine_ms]
        new = [place for place, time in enumerate(self.fine.times) if time >= at_ms]

        def joined(coarse: array[float], fine: array[float]) -> list[float]:
            return [*(coarse[place] for place in old), *(fine[place] for place in new)]

        columns = [joined(*both) for both in zip(self.coarse.columns, self.fine.columns, strict=True)]
        gaps_ms = [COARSE_GAP_MS] * (len(old) + 1) + [GAP_MS] * len(new)  # the first fine point follows a coarse one
        return downsample(joined(self.coarse.times, self.fine.times), columns, gaps_ms, points_max, now_ms)

    def __repr__(self) -> str:
        return f"<TimeSeries {len(self.fine.times)} points, {len(self.coarse.times)} minutes>"


def downsample(
    times: Sequence[float], columns: Sequence[Sequence[float]], gaps_ms: Sequence[int], points_max: int, now_ms: int
) -> tuple[list[float], list[list[float]]]:
    """Downsample to at most `points_max` points, and add a NaN point in each gap so that no line is drawn through it.

    A gap is a pause before a point that is longer than its value in `gaps_ms`, or such a pause up to now.
    """
    step = max(1, -(-len(times) // points_max))
    shown: list[float] = []
    found: list[list[float]] = [[] for _ in columns]

    def add(at_ms: float, values: Iterable[float]) -> None:
        shown.append(at_ms)
        for column, value in zip(found, values, strict=True):
            column.append(value)

    unknown = [math.nan] * len(columns)
    for place, at_ms in enumerate(times):
        if place and at_ms - times[place - 1] > gaps_ms[place]:
            add(times[place - 1] + 1, unknown)
        if place % step == 0:
            add(at_ms, (column[place] for column in columns))
    if times and now_ms - times[-1] > gaps_ms[-1]:
        add(now_ms, unknown)
    return shown, found


class _Columns:
    def __init__(self, columns: int, points_max: int) -> None:
        self.points_max = points_max
        self.times = array("d")
        self.columns = [array("f") for _ in range(columns)]

    def add(self, at_ms: int, values: Sequence[float | None]) -> None:
        self.times.append(at_ms)
        for column, value in zip(self.columns, values, strict=True):
            column.append(math.nan if value is None else value)
        if len(self.times) > self.points_max:
            for each in (self.times, *self.columns):
                del each[: max(1, self.points_max // 50)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


WINDOW_READINGS = 4  # the window spans three periods
K = TypeVar("K", bound=Hashable)


class Rates(Generic[K]):
    """The last readings of growing counters."""

    def __init__(self) -> None:
        self.readings: deque[tuple[int, Mapping[K, int]]] = deque(maxlen=WINDOW_READINGS)

    def add(self, now_ms: int, numbers: Mapping[K, int]) -> dict[K, float]:
        """Add a reading; returns the growth per second of each counter that grows."""
        self.readings.append((now_ms, numbers))
        before_ms, before = self.readings[0]
        if now_ms <= before_ms:
            return {}
        seconds = (now_ms - before_ms) / 1000
        return {
            key: (number - before[key]) / seconds for key, number in numbers.items() if number > before.get(key, number)
        }

    @property
    def is_known(self) -> bool:
        return len(self.readings) > 1

    def __repr__(self) -> str:
        return f"<Rates {len(self.readings)} readings>"


class Point(NamedTuple):
    """The activity of a cluster at one time: records per second produced and consumed, and the lag of all groups.

    NaN: could not be read.
    """

    at_ms: int
    produced: float
    consumed: float
    backlog: float


class ClusterHistory:
    """The points of the last day; older ones are dropped."""

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

    def since(self, at_ms: int, points_max: int, now_ms: int) -> list[list[float]]:
        """Columns from a time on, downsampled."""
        times = self.columns[0]
        first = next((place for place, time in enumerate(times) if time >= at_ms), len(times))
        kept = [column[first:] for column in self.columns]
        shown, columns = downsample(kept[0], kept[1:], [GAP_MS] * len(kept[0]), points_max, now_ms)
        return [shown, *columns]

    def __repr__(self) -> str:
        return f"<ClusterHistory {len(self.columns[0])} points>"
