"""Rounds of measurements of the groups of one cluster: lag in records and in time, and consume rate.

Rules:
1. No clock and no file: the recorder passes snapshots and times. For one thread at a time.
2. Lag in time is computed as in the monitor, from the time at which the log end offset passed a record. For records
   from before the first measurement it is a lower bound.
3. A round has three numbers per group, by the id of the group in the file: 16 bytes per group. Several rounds merge
   into a coarser one with the largest lag and the mean of the rates.
4. At most GROUPS_MAX groups are measured.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.console.clusters.snapshot import Part, Snapshot, lag
from ottla.monitor.offset_rings import EndOffsetHistory

GROUPS_MAX: Final = 5_000
WORD_BYTES: Final = 4  # bytes of one number
UNKNOWN: Final = math.nan


class LagPoint(NamedTuple):
    """One group at one time; NaN: unknown."""

    lag: float
    lag_ms: float
    rate: float


Round = Mapping[int, LagPoint]  # by group id


class GroupLags:
    """The groups of one cluster."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, EndOffsetHistory] = {}

    def __repr__(self) -> str:
        return f"<GroupLags {len(self._ends)} partitions>"

    def measure(self, snapshot: Snapshot, id_of: Callable[[str], int], now_ms: int) -> Round:
        """Measure all groups of a snapshot."""
        self._record_end_offsets(snapshot)
        found = {}
        for group, offsets in list(snapshot.commits.items())[:GROUPS_MAX]:
            found[id_of(group)] = self._point(snapshot, group, offsets, now_ms)
        return found

    def _record_end_offsets(self, snapshot: Snapshot) -> None:
        """Record log end offsets, only of partitions with commits."""
        read_ms = snapshot.state(Part.ENDS).read_ms
        followed = {place for offsets in snapshot.commits.values() for place in offsets}
        for gone in self._ends.keys() - followed:
            del self._ends[gone]
        for place in followed:
            end = snapshot.ends.get(place)
            if end is not None:
                times = self._ends.get(place)
                if times is None:
                    times = self._ends[place] = EndOffsetHistory()
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


def merge_rounds(rounds: Iterable[Round]) -> Round:
    """Merge several rounds into one."""
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


def pack_round(one: Round) -> bytes:
    """The format in the file: sorted group ids, then lags, times and rates in that order."""
    numbers = sorted(one)
    columns = [array("f", [one[number][column] for number in numbers]) for column in range(len(LagPoint._fields))]
    return array("I", numbers).tobytes() + b"".join(column.tobytes() for column in columns)


def find_point(data: bytes, number: int) -> LagPoint | None:
    """Find one group in a packed round, without unpacking it."""
    view = memoryview(data)
    count = len(data) // (WORD_BYTES * (1 + len(LagPoint._fields)))
    numbers = view[: count * WORD_BYTES].cast("I")
    at = bisect_left(numbers, number)
    if at == count or numbers[at] != number:
        return None
    values = view[count * WORD_BYTES :].cast("f")
    return LagPoint(*(values[column * count + at] for column in range(len(LagPoint._fields))))
