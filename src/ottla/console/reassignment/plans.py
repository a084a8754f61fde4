"""Reassignment plans from a snapshot, with replicas before and after and the bytes to copy. Pure except for randomness.

The algorithms are those of the tools (operations/reassignment).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Literal

import msgspec

from ottla.base.names import TopicPartition
from ottla.client.admin import Topic
from ottla.client.log_dirs import TopicPartitionReplica
from ottla.console.clusters.snapshot import Snapshot
from ottla.console.reassignment.runs import PlanRow
from ottla.operations.reassignment import executor
from ottla.operations.reassignment.generated_plans import PlanGoal, generate_plan
from ottla.operations.reassignment.moves import bytes_to_copy, check_known, replicas_of
from ottla.operations.reassignment.plan import Plan, PlanError, check_plan

Assignments = Mapping[TopicPartition, Sequence[int]]
COPIES_AT_ONCE = executor.COPIES_AT_ONCE


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: int
    replicas: list[int]


class PlanBody(msgspec.Struct, forbid_unknown_fields=True):
    """The request for a plan: `spread` topics over brokers, `drain` or `fill` brokers, or `manual` rows."""

    kind: Literal["spread", "drain", "fill", "manual"]
    topics: list[str] = []  # empty: all that the caller may move
    brokers: list[int] = []
    replication_factor: int | None = None  # None: unchanged
    rows: list[Replicas] = []
    at_once: int = COPIES_AT_ONCE


class PlannedRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    before: list[int]
    after: list[int]
    bytes: int | None  # to copy; None: unknown


class PlanAnswer(msgspec.Struct, frozen=True):
    """The partitions that would change; nothing has been requested yet."""

    rows: list[PlannedRow]
    partitions: int  # considered
    bytes: int
    unknown: int  # partitions of unknown size
    leaders: int  # partitions that get another preferred leader: unavailable for a moment
    copies_most: int  # of one broker, if all started at once
    waves: int  # at least, one after another
    full: list[int]  # brokers without enough disk space
    ignores_racks: bool  # some brokers have a rack and others have none


def plan_reassignment(snapshot: Snapshot, body: PlanBody, topics: Sequence[Topic], random: Random) -> PlanAnswer:
    """Raises PlanError or KafkaError if no such plan is possible."""
    rows = replicas_of(topics)
    all_racks = {broker.broker_id: broker.rack for broker in snapshot.brokers.values()}
    ignores = len({rack is None for rack in all_racks.values()}) > 1
    racks = dict.fromkeys(all_racks) if ignores else all_racks
    if body.kind == "manual":
        wanted = plan_manual(body.rows, rows, racks)
        plan = {place: row for place, row in sorted(wanted.items()) if row != list(rows[place])}
    elif not body.brokers:
        raise PlanError("select brokers")
    else:
        factor = body.replication_factor if body.kind == "spread" else None
        plan = generate_plan(PlanGoal(body.kind, body.brokers, factor), topics, racks, random)
    return _answer(snapshot, plan, rows, body.at_once, ignores_racks=ignores)


def plan_manual(
    given: Sequence[Replicas], rows: Assignments, live_brokers: Collection[int]
) -> dict[TopicPartition, list[int]]:
    """The rows of a manual plan, checked."""
    places = [TopicPartition(item.topic, item.partition) for item in given]
    plan = Plan(
        {place: list(item.replicas) for place, item in zip(places, given, strict=True)},
        {},
        tuple(place for place, count in Counter(places).items() if count > 1),
    )
    check_plan(plan)
    for place, row in plan.replicas.items():
        if place not in rows:
            raise PlanError(f"Unable to find partition: {place}")
        check_known(set(row) - set(rows[place]), live_brokers)
    return plan.replicas


def _answer(
    snapshot: Snapshot, plan: dict[TopicPartition, list[int]], rows: Assignments, at_once: int, *, ignores_racks: bool
) -> PlanAnswer:
    sizes = {
        TopicPartitionReplica(place, rows[place][0]): snapshot.sizes[place]
        for place in plan
        if place in snapshot.sizes and rows[place]
    }
    to_copy = bytes_to_copy(plan, rows, sizes)
    coming: Counter[int] = Counter()
    copies: Counter[int] = Counter()
    for place, row in plan.items():
        new = set(row) - set(rows[place])
        copies.update(new)
        copies.update(dict.fromkeys(rows[place][:1], len(new)))
        for broker in new:
            coming[broker] += snapshot.sizes.get(place, 0)
    most = max(copies.values(), default=0)
    return PlanAnswer(
        [PlannedRow(*place, list(rows[place]), row, to_copy[place]) for place, row in plan.items()],
        len(rows),
        sum(size for size in to_copy.values() if size is not None),
        sum(size is None for size in to_copy.values()),
        sum(row[:1] != list(rows[place][:1]) for place, row in plan.items()),
        most,
        max(-(-most // at_once), 1) if plan else 0,
        [broker for broker, size in sorted(coming.items()) if size > _free_bytes(snapshot, broker)],
        ignores_racks,
    )


def _free_bytes(snapshot: Snapshot, broker: int) -> float:
    """Free bytes on all disks of a broker; infinite if the broker does not report them."""
    left = [folder.usable_bytes for folder in snapshot.folders.get(broker, ())]
    return sum(left) if left and min(left) >= 0 else float("inf")


def audit_values(rows: Sequence[PlanRow]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """For the audit trail."""
    return {str(row.topic_partition): row.before for row in rows}, {str(row.topic_partition): row.after for row in rows}
