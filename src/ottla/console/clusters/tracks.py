"""Numbers over a day, in little memory: the last hour as it was read, before that a point a minute. Pure.

A number that was not told is NaN. It begins anew with the process.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

FINE_MAX = 720  # points: an hour, if one comes every five seconds
COARSE_MS = 60_000
COARSE_MAX = 24 * 60


class Track:
    """Columns of the same length: the time, then what was measured."""

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

    def since(self, at_ms: int, points_max: int) -> tuple[list[float], list[list[float]]]:
        """Times and columns from a time on, thinned out to at most so many points."""
        fine_ms = self.fine.times[0] if self.fine.times else math.inf
        old = [place for place, time in enumerate(self.coarse.times) if at_ms <= time < fine_ms]
        new = [place for place, time in enumerate(self.fine.times) if time >= at_ms]
        step = max(1, -(-(len(old) + len(new)) // points_max))

        def thinned(coarse: array[float], fine: array[float]) -> list[float]:
            return [*(coarse[place] for place in old), *(fine[place] for place in new)][::step]

        columns = zip(self.coarse.columns, self.fine.columns, strict=True)
        return thinned(self.coarse.times, self.fine.times), [thinned(*column) for column in columns]

    def __repr__(self) -> str:
        return f"<Track {len(self.fine.times)} points, {len(self.coarse.times)} minutes>"


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
