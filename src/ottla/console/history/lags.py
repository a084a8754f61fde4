"""How far behind the groups of one cluster are, in records and in time, and how fast they read: rounds of numbers.

Rules:
1. No clock, no file: whoever records tells what was read, and when. For one thread at a time.
2. Lag in time is reckoned as the monitor does it, from when the end of a log passed a record. Of what was there before
   the first look it is the time since then, at least.
3. A round is three numbers for each group, by the group's number in the file: 16 bytes a group. Several rounds make a
   coarser one: the worst lag and the mean of the rates.
4. Past GROUPS_MAX groups the rest is left out.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.console.clusters.snapshot import Part, Snapshot, lag
from ottla.monitor.rings import EndTimes

GROUPS_MAX: Final = 5_000
WORD: Final = 4  # bytes of a number in a round
UNKNOWN: Final = math.nan


class LagPoint(NamedTuple):
    """One group at a moment; not a number where something is not known."""

    lag: float
    lag_ms: float
    rate: float


Round = Mapping[int, LagPoint]  # by the number of a group


class GroupLags:
    """One cluster."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, EndTimes] = {}

    def __repr__(self) -> str:
        return f"<GroupLags {len(self._ends)} partitions>"

    def look(self, snapshot: Snapshot, number_of: Callable[[str], int], now_ms: int) -> Round:
        """The groups as they are now."""
        self._note_ends(snapshot)
        found = {}
        for group, offsets in list(snapshot.commits.items())[:GROUPS_MAX]:
            found[number_of(group)] = self._point(snapshot, group, offsets, now_ms)
        return found

    def _note_ends(self, snapshot: Snapshot) -> None:
        """Only logs that somebody reads."""
        read_ms = snapshot.state(Part.ENDS).read_ms
        followed = {place for offsets in snapshot.commits.values() for place in offsets}
        for gone in self._ends.keys() - followed:
            del self._ends[gone]
        for place in followed:
            end = snapshot.ends.get(place)
            if end is not None:
                times = self._ends.get(place)
                if times is None:
                    times = self._ends[place] = EndTimes()
                times.add(end, read_ms)

    def _point(self, snapshot: Snapshot, group: str, offsets: Mapping[TopicPartition, int], now_ms: int) -> LagPoint:
        records, late_ms, is_known = 0, 0, False
        for place, offset in offsets.items():
            behind = lag(snapshot.ends.get(place), offset)
            if behind is not None:
                is_known = True
                records += behind
                if behind:
                    late_ms = max(late_ms, self._ends[place].lag_ms(offset, now_ms)[0])
        rate = snapshot.consume_rates.get(group, 0.0)
        return LagPoint(records, late_ms, rate) if is_known else LagPoint(UNKNOWN, UNKNOWN, rate)


def coarser(rounds: Iterable[Round]) -> Round:
    """Several rounds as one."""
    found: dict[int, list[LagPoint]] = {}
    for one in rounds:
        for number, point in one.items():
            found.setdefault(number, []).append(point)
    return {number: _worst(points) for number, points in found.items()}


def _worst(points: list[LagPoint]) -> LagPoint:
    known = [point for point in points if not math.isnan(point.lag)]
    rate = sum(point.rate for point in points) / len(points)
    if not known:
        return LagPoint(UNKNOWN, UNKNOWN, rate)
    return LagPoint(max(point.lag for point in known), max(point.lag_ms for point in known), rate)


def pack(one: Round) -> bytes:
    """A round as it lies in the file: all numbers of groups in order, then lags, times and rates in that order."""
    numbers = sorted(one)
    columns = [array("f", [one[number][column] for number in numbers]) for column in range(len(LagPoint._fields))]
    return array("I", numbers).tobytes() + b"".join(column.tobytes() for column in columns)


def find(data: bytes, number: int) -> LagPoint | None:
    """One group of a packed round."""
    view = memoryview(data)
    count = len(data) // (WORD * (1 + len(LagPoint._fields)))
    numbers = view[: count * WORD].cast("I")
    at = bisect_left(numbers, number)
    if at == count or numbers[at] != number:
        return None
    values = view[count * WORD :].cast("f")
    return LagPoint(*(values[column * count + at] for column in range(len(LagPoint._fields))))
