"""Plans that the tools and the console generate: topics spread over brokers, brokers drained or filled. Pure.

Whole clusters are planned by the load of their brokers in cluster_plans.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Literal, NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.moves import plan_drain, plan_factor, plan_fill
from ottla.base.placement.new_partitions import place_replicas
from ottla.client.admin import Topic
from ottla.operations.reassignment.moves import check_known, replicas_of
from ottla.operations.reassignment.plan import PlanError

RANDOM_START_MAX = 2**30

Racks = Mapping[int, str | None]  # of all live brokers


class PlanGoal(NamedTuple):
    """`spread` topics over these brokers, `drain` or `fill` them, or change only the replication `factor`."""

    kind: Literal["spread", "drain", "fill", "factor"]
    brokers: Sequence[int] = ()
    replication_factor: int | None = None  # None: unchanged
    keeps_balanced: bool = True  # topics that are spread well already stay as they are


def generate_plan(
    goal: PlanGoal, topics: Sequence[Topic], racks: Racks, random: Random, holders: Collection[int] = ()
) -> dict[TopicPartition, list[int]]:
    """The partitions that change. `holders`: brokers that may be drained, besides live ones and those of the topics."""
    rows = replicas_of(topics)
    factor = goal.replication_factor
    if goal.kind == "spread":
        check_known(goal.brokers, racks)
        if len(set(goal.brokers)) < len(goal.brokers):
            raise PlanError("a broker is listed twice")
        left = [
            topic
            for topic in topics
            if topic.partitions
            and not (
                goal.keeps_balanced and is_balanced(topic, goal.brokers, factor or len(topic.partitions[0].replicas))
            )
        ]
        made = make_plan(left, goal.brokers, racks, random, factor)
    elif goal.kind == "drain":
        check_known(goal.brokers, {*racks, *holders, *(broker for row in rows.values() for broker in row)})
        made = plan_drain(rows, goal.brokers, list(racks), racks)
    elif goal.kind == "fill":
        check_known(goal.brokers, racks)
        made = plan_fill(rows, goal.brokers, list(racks), racks)
    else:
        assert factor is not None, "nothing else would change"
        made = plan_factor(rows, factor, list(racks), racks)
    return {name: row for name, row in sorted(made.items()) if row != list(rows[name])}


def is_balanced(topic: Topic, brokers: Collection[int], replication_factor: int) -> bool:
    """Whether the topic is on these brokers only, with this replication factor, and evenly distributed."""
    rows = [partition.replicas for partition in topic.partitions]
    if any(len(row) != replication_factor or not set(row) <= set(brokers) for row in rows):
        return False
    stored = Counter(broker for row in rows for broker in row)
    preferred = Counter(row[0] for row in rows)
    stored_max = -(-len(rows) * replication_factor // len(brokers))
    preferred_max = -(-len(rows) // len(brokers))
    return max(stored.values(), default=0) <= stored_max and max(preferred.values(), default=0) <= preferred_max


def make_plan(
    topics: Sequence[Topic],
    brokers: Collection[int],
    racks: Racks,
    random: Random,
    replication_factor: int | None = None,
) -> dict[TopicPartition, list[int]]:
    """Spread all partitions of the topics over these brokers; KafkaError if they are too few.

    Without a replication factor each topic keeps its own.
    """
    with_rack = [broker for broker in brokers if racks.get(broker) is not None]
    if with_rack and len(with_rack) < len(brokers):
        raise PlanError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    plan: dict[TopicPartition, list[int]] = {}
    for topic in topics:
        rows = place_replicas(
            list(brokers),
            len(topic.partitions),
            replication_factor or len(topic.partitions[0].replicas),
            start=random.randrange(RANDOM_START_MAX),
            shift=random.randrange(RANDOM_START_MAX),
            racks=racks,
        )
        for partition, row in zip(topic.partitions, rows, strict=True):
            plan[TopicPartition(topic.name, partition.number)] = list(row)
    return plan
