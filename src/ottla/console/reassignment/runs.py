"""A run: a plan that the console executes in the background. Pure.

Rules:
1. The next moves are those of any executor (operations/reassignment/executor.py), from the plan, the state of the
   cluster, and `begun`. A restarted console therefore resumes the run, whatever happened meanwhile.
2. A run ends only after its throttle has been removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ottla.base.names import TopicPartition
from ottla.operations.reassignment.executor import MoveTask

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

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


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
    def requested(self) -> set[TopicPartition]:
        """The partitions that are not requested again: all of them after a cancellation."""
        if self.is_cancelled:
            return set(self.wanted)
        return {item.topic_partition for item in self.begun} | {item.topic_partition for item in self.refused}

    @property
    def task(self) -> MoveTask:
        return MoveTask(self.wanted, self.throttle, self.at_once)

    @property
    def topics(self) -> list[str]:
        return sorted({row.topic for row in self.rows})


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
