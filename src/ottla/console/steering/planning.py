"""Plans for pages: made of a snapshot, shown before and after, with what they will copy.  Pure but for the dice.

The reckoning is that of the tools (operations/reassignment).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Literal

import msgspec

from ottla.base.names import TopicPartition
from ottla.base.placement.moves import plan_drain, plan_fill
from ottla.client.admin import Topic
from ottla.client.log_dirs import PlacedReplica
from ottla.console.clusters.snapshot import Snapshot
from ottla.console.steering.runs import PlanRow
from ottla.operations.reassignment.plan import Plan, PlanError, check_plan, fits, make_plan, waves
from ottla.operations.reassignment.progress import bytes_to_copy
from ottla.operations.reassignment.steps import check_known, replicas_of

Rows = Mapping[TopicPartition, Sequence[int]]
AT_ONCE = 5  # copies that a broker makes or serves at a time, unless told otherwise


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: int
    replicas: list[int]


class PlanBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a plan is wanted for: `spread` topics over brokers, `drain` or `fill` brokers, or `manual`ly as told."""

    kind: Literal["spread", "drain", "fill", "manual"]
    topics: list[str] = []  # none: all that the caller may move
    brokers: list[int] = []
    replication_factor: int | None = None  # None: as it is
    rows: list[Replicas] = []
    at_once: int = AT_ONCE


class PlannedRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    before: list[int]
    after: list[int]
    bytes: int | None  # to be copied; None: not known


class PlanAnswer(msgspec.Struct, frozen=True):
    """Only partitions that change; nothing of them has been asked for yet."""

    rows: list[PlannedRow]
    partitions: int  # that were looked at
    bytes: int
    unknown: int  # partitions whose size is not known
    leaders: int  # partitions that get another preferred leader: unavailable for a moment
    copies_most: int  # that one broker had to make or to serve if all began at once
    waves: int
    full: list[int]  # brokers whose disks have no room for it
    ignores_racks: bool  # some brokers have a rack and others have none


def make(snapshot: Snapshot, body: PlanBody, topics: Sequence[Topic], chance: Random) -> PlanAnswer:
    """PlanError, or KafkaError, where no such plan can be made."""
    rows = replicas_of(topics)
    all_racks = {broker.broker_id: broker.rack for broker in snapshot.brokers.values()}
    ignores = len({rack is None for rack in all_racks.values()}) > 1
    racks = dict.fromkeys(all_racks) if ignores else all_racks
    if body.kind == "manual":
        wanted = typed(body.rows, rows, racks)
    elif not body.brokers:
        raise PlanError("choose brokers")
    elif body.kind == "spread":
        wanted = spread(topics, body.brokers, racks, body.replication_factor, chance)
    elif body.kind == "drain":
        check_known(body.brokers, {*racks, *(broker for row in rows.values() for broker in row)})
        wanted = plan_drain(rows, body.brokers, list(racks), racks)
    else:
        check_known(body.brokers, racks)
        wanted = plan_fill(rows, body.brokers, list(racks), racks)
    plan = {place: row for place, row in sorted(wanted.items()) if row != list(rows[place])}
    return _answer(snapshot, plan, rows, body.at_once, ignores_racks=ignores)


def spread(
    topics: Sequence[Topic],
    brokers: Collection[int],
    racks: Mapping[int, str | None],
    factor: int | None,
    chance: Random,
) -> dict[TopicPartition, list[int]]:
    """Over these brokers, but for topics that lie well on them already."""
    check_known(brokers, racks)
    if len(set(brokers)) < len(brokers):
        raise PlanError("a broker is named twice")
    left = [
        topic
        for topic in topics
        if topic.partitions and not fits(topic, brokers, factor or len(topic.partitions[0].replicas))
    ]
    return make_plan(left, brokers, racks, chance, factor)


def typed(given: Sequence[Replicas], rows: Rows, living: Collection[int]) -> dict[TopicPartition, list[int]]:
    """What somebody has written down, checked."""
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
        check_known(set(row) - set(rows[place]), living)
    return plan.replicas


def _answer(
    snapshot: Snapshot, plan: dict[TopicPartition, list[int]], rows: Rows, at_once: int, *, ignores_racks: bool
) -> PlanAnswer:
    sizes = {
        PlacedReplica(place, rows[place][0]): snapshot.sizes[place]
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
    return PlanAnswer(
        [PlannedRow(*place, list(rows[place]), row, to_copy[place]) for place, row in plan.items()],
        len(rows),
        sum(size for size in to_copy.values() if size is not None),
        sum(size is None for size in to_copy.values()),
        sum(row[:1] != list(rows[place][:1]) for place, row in plan.items()),
        max(copies.values(), default=0),
        len(waves(plan, rows, at_once)),
        [broker for broker, size in sorted(coming.items()) if size > _room(snapshot, broker)],
        ignores_racks,
    )


def _room(snapshot: Snapshot, broker: int) -> float:
    """Bytes left on all disks of a broker; without end where it does not tell."""
    left = [folder.usable_bytes for folder in snapshot.folders.get(broker, ())]
    return sum(left) if left and min(left) >= 0 else float("inf")


def before_and_after(rows: Sequence[PlanRow]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """For the audit trail."""
    return {str(row.place): row.before for row in rows}, {str(row.place): row.after for row in rows}
