"""A run: a plan that the console executes in the background, in waves. Pure.

Rules:
1. The remaining work follows from the plan, the state of the partitions in the cluster, and `begun`. A restarted
   console therefore resumes the run, whatever happened meanwhile.
2. Each partition is requested once. If it is not moving and not at its target, its move was cancelled from outside, and
   it is skipped.
3. A run ends only after its throttle has been removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

import msgspec

from ottla.base.names import TopicPartition
from ottla.operations.reassignment.plan import split_into_waves

Assignments = Mapping[TopicPartition, Sequence[int]]


class PlanRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition with its replicas before and after; the first one is the preferred leader."""

    topic: str
    partition: int
    before: list[int]
    after: list[int]

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Refused(msgspec.Struct, frozen=True):
    """A partition whose move or election the cluster refused, with the reason."""

    topic: str
    partition: int
    reason: str


class Run(msgspec.Struct, frozen=True):
    """A run as it is stored; the last one of a cluster stays as a report."""

    person: str
    address: str  # of the person's request
    started_ms: int
    rows: list[PlanRow]
    throttle: int | None  # bytes a second for each broker
    at_once: int  # concurrent copies that a broker makes or serves
    begun: list[Place] = []
    refused: list[Refused] = []
    throttled: list[int] = []  # brokers with a throttle
    is_cancelled: bool = False
    problem: str | None = None  # why the last round failed; it is retried
    ended_ms: int | None = None
    moved: int = 0  # of the partitions, at the end
    elected: int = 0  # leaders, at the end
    still_throttled: list[int] = []  # brokers that were down when the throttle was removed

    @property
    def wanted(self) -> dict[TopicPartition, list[int]]:
        return {row.topic_partition: row.after for row in self.rows}

    @property
    def topics(self) -> list[str]:
        return sorted({row.topic for row in self.rows})


class StepKind(Enum):
    """The kind of the next step."""

    WAIT = "wait"
    BEGIN = "begin"
    FINISH = "finish"


class Step(msgspec.Struct, frozen=True):
    """The next step and its partitions; `left` partitions start later."""

    kind: StepKind
    rows: dict[TopicPartition, list[int]] = {}
    remaining: int = 0


def next_step(run: Run, under_way: Collection[TopicPartition], now: Assignments) -> Step:
    """The next wave, after the last one is done. Deleted partitions are missing in `now`."""
    wanted = run.wanted
    asked = {item.topic_partition for item in run.begun} | {
        TopicPartition(item.topic, item.partition) for item in run.refused
    }
    left = {
        place: row
        for place, row in wanted.items()
        if not run.is_cancelled and place in now and list(now[place]) != row and place not in asked
    }
    if any(place in under_way for place in wanted):
        return Step(StepKind.WAIT, remaining=len([place for place in left if place not in under_way]))
    if not left:
        return Step(StepKind.FINISH)
    wave = split_into_waves(left, now, run.at_once)[0]
    return Step(StepKind.BEGIN, wave, len(left) - len(wave))


def count_moved(run: Run, now: Assignments) -> int:
    return sum(list(now.get(row.topic_partition, ())) == row.after for row in run.rows)


def describe_changes(rows: Sequence[PlanRow], now: Assignments) -> list[str]:
    """The partitions that changed since the plan was made, as sentences."""

    def describe(row: PlanRow) -> str:
        if row.topic_partition not in now:
            return f"{row.topic_partition} no longer exists"
        current, before = (",".join(map(str, replicas)) for replicas in (now[row.topic_partition], row.before))
        return f"{row.topic_partition} is on {current}, no longer on {before}"

    return [describe(row) for row in rows if list(now.get(row.topic_partition, ())) != row.before]
