"""The plans of commands that move replicas of a whole cluster: balance, add and remove brokers, replication factor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from ottla.base.names import INTERNAL_TOPICS, TopicPartition
from ottla.base.placement.balance import plan_balance
from ottla.base.placement.broker_loads import BalanceGoals, racks_of
from ottla.base.placement.moves import plan_factor
from ottla.base.placement.removal import plan_removal
from ottla.client.admin import Admin, Topic
from ottla.operations.reassignment.cluster_model import ClusterModel, check_all_brokers_live
from ottla.operations.reassignment.moves import check_known, find_topics, replicas_of
from ottla.operations.reassignment.plan import PlanError
from ottla.operations.topic_summary import min_isr

DEFAULT_FACTOR: Final = "default.replication.factor"
INTERNAL_FACTORS: Final = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")


class MovePlan(NamedTuple):
    """The moves that a command requests: target replicas, urgent partitions, pinned partitions, unknown loads."""

    rows: dict[TopicPartition, list[int]]
    urgent: frozenset[TopicPartition] = frozenset()
    pinned: int = 0
    unknown: frozenset[int] = frozenset()


def plan_cluster_balance(model: ClusterModel, goals: BalanceGoals, takers: Collection[int] | None = None) -> MovePlan:
    """Even out the load of all brokers; with `takers` only these brokers receive replicas."""
    check_all_brokers_live(model)
    plan = plan_balance(model.loads, model.brokers, goals, takers)
    return MovePlan(plan.rows, plan.urgent, plan.pinned, plan.unknown)


def plan_brokers_removal(model: ClusterModel, brokers: Collection[int], goals: BalanceGoals) -> MovePlan:
    """Move everything off these brokers; they may be down."""
    check_known(brokers, {*model.brokers, *model.dead_brokers})
    check_all_brokers_live(model, brokers)
    staying = {broker: capacity for broker, capacity in model.brokers.items() if broker not in brokers}
    return MovePlan(plan_removal(model.loads, staying, brokers, goals))


def plan_replication_factor(
    admin: Admin, model: ClusterModel, factor: int, names: Sequence[str], *, with_internal: bool
) -> MovePlan:
    """Give topics more or fewer replicas; without names all topics of users."""
    check_all_brokers_live(model)
    internal = [topic for topic in model.topics if topic.is_internal or topic.name in INTERNAL_TOPICS]
    chosen = find_topics(admin, names) if names else [topic for topic in model.topics if topic not in internal]
    chosen += [topic for topic in internal if with_internal and topic not in chosen]
    check_min_isr(admin, chosen, factor)
    return MovePlan(plan_factor(replicas_of(chosen), factor, list(model.brokers), racks_of(model.brokers)))


def check_min_isr(admin: Admin, topics: Sequence[Topic], factor: int) -> None:
    """Reject a factor below min.insync.replicas: no producer could write with acks=all."""
    shrinking = [topic.name for topic in topics if any(len(row.replicas) > factor for row in topic.partitions)]
    for name, settings in admin.topic_configs(shrinking).items():
        least = min_isr(settings)
        if least > factor:
            raise PlanError(
                f"{name} has min.insync.replicas={least}: with {factor} writing with acks=all would fail. Lower it "
                f"first: ottla configs set topic {name} min.insync.replicas={factor}"
            )
