"""A run: a plan that the console carries out in the background, wave after wave.  Pure.

Rules:
1. What a run has still to do follows from the plan, from what the cluster says of its partitions, and from `begun`: a
   console that starts anew goes on where the last one was, whatever has happened meanwhile.
2. A partition is asked for once. If it is not where it should be and does not move any more, somebody has ended its
   move: it is left alone.
3. A run ends only after its throttle has been taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

import msgspec

from ottla.base.names import TopicPartition
from ottla.operations.reassignment.plan import waves

Rows = Mapping[TopicPartition, Sequence[int]]


class PlanRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition: who holds it, who shall hold it; the first one is the leader that is preferred."""

    topic: str
    partition: int
    before: list[int]
    after: list[int]

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Refused(msgspec.Struct, frozen=True):
    """What the cluster did not want to do, and why."""

    topic: str
    partition: int
    reason: str


class Run(msgspec.Struct, frozen=True):
    """A plan under way, as it is kept; the last one of a cluster stays as a report."""

    person: str
    address: str  # whence he asked
    started_ms: int
    rows: list[PlanRow]
    throttle: int | None  # bytes a second for each broker
    at_once: int  # copies that a broker makes or serves at a time
    begun: list[Place] = []
    refused: list[Refused] = []
    throttled: list[int] = []  # brokers that have been slowed down
    is_cancelled: bool = False
    problem: str | None = None  # why the last round went wrong; it is tried again
    ended_ms: int | None = None
    moved: int = 0  # of the partitions, at the end
    elected: int = 0  # leaders, at the end
    still_throttled: list[int] = []  # brokers that were gone when the throttle was taken away, and are not back

    @property
    def wanted(self) -> dict[TopicPartition, list[int]]:
        return {row.place: row.after for row in self.rows}

    @property
    def topics(self) -> list[str]:
        return sorted({row.topic for row in self.rows})


class Next(Enum):
    """What is to be done."""

    WAIT = "wait"
    BEGIN = "begin"
    FINISH = "finish"


class Step(msgspec.Struct, frozen=True):
    """What is to be done with which partitions; `left` is what is to be begun later."""

    what: Next
    rows: dict[TopicPartition, list[int]] = {}
    left: int = 0


def next_step(run: Run, under_way: Collection[TopicPartition], now: Rows) -> Step:
    """The wave that comes next, when that of before is done; `now` lacks partitions that are deleted."""
    wanted = run.wanted
    asked = {item.place for item in run.begun} | {TopicPartition(item.topic, item.partition) for item in run.refused}
    left = {
        place: row
        for place, row in wanted.items()
        if not run.is_cancelled and place in now and list(now[place]) != row and place not in asked
    }
    if any(place in under_way for place in wanted):
        return Step(Next.WAIT, left=len([place for place in left if place not in under_way]))
    if not left:
        return Step(Next.FINISH)
    wave = waves(left, now, run.at_once)[0]
    return Step(Next.BEGIN, wave, len(left) - len(wave))


def moved(run: Run, now: Rows) -> int:
    return sum(list(now.get(row.place, ())) == row.after for row in run.rows)


def changed(rows: Sequence[PlanRow], now: Rows) -> list[str]:
    """What is not any more as the plan saw it, in words."""
    return [
        f"{row.place} is on {','.join(map(str, now[row.place]))} by now, not on {','.join(map(str, row.before))}"
        if row.place in now
        else f"there is no {row.place} any more"
        for row in rows
        if list(now.get(row.place, ())) != row.before
    ]
