"""Replication throttles for reassignments: brokers, replicas and settings.

Kafka throttles only listed replicas, never all traffic of a broker, so both the rate of the brokers and the replicas of
the topics are set, and both are removed afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.throttled_replicas import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    REPLICA_KEYS,
    by_topic,
)
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs
from ottla.client.reassignments import Reassignment
from ottla.operations.reassignment.plan import Plan, Rows

FOLDER_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_KEYS = (LEADER_RATE, FOLLOWER_RATE, FOLDER_RATE)
TOPIC_KEYS = REPLICA_KEYS


class Throttles(NamedTuple):
    """The settings of a throttle: brokers, and replicas by topic in the format of Kafka's keys."""

    brokers: list[int]
    leaders: dict[str, str]
    followers: dict[str, str]


def throttle_settings(under_way: Mapping[TopicPartition, Reassignment], wanted: Rows, now: Rows) -> Throttles:
    """The brokers and replicas to throttle: sources and targets of copies, including moves under way."""
    sources: dict[TopicPartition, set[int]] = {}
    targets: dict[TopicPartition, set[int]] = {}
    for partition, move in under_way.items():
        sources[partition] = set(move.replicas) - set(move.adding)
        targets[partition] = set(move.adding)
    for partition, row in wanted.items():
        sources.setdefault(partition, set(now[partition]))
        targets[partition] = set(row) - sources[partition]
    brokers = {broker for row in (*sources.values(), *targets.values()) for broker in row}
    return Throttles(sorted(brokers), by_topic(sources), by_topic(targets))


def set_throttles(client: Client, wanted: Throttles, rate: int) -> None:
    """Throttle replication between brokers, for the replicas that move."""
    for topic in sorted({*wanted.leaders, *wanted.followers}):
        values = {LEADER_REPLICAS: wanted.leaders.get(topic, ""), FOLLOWER_REPLICAS: wanted.followers.get(topic, "")}
        alter_configs(client, Resource.TOPIC, topic, {key: value for key, value in values.items() if value}, ())
    for broker in wanted.brokers:
        alter_configs(client, Resource.BROKER, str(broker), {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}, ())


def set_log_dir_throttle(client: Client, brokers: Collection[int], rate: int) -> None:
    """Throttle moves between log directories."""
    for broker in sorted(brokers):
        alter_configs(client, Resource.BROKER, str(broker), {FOLDER_RATE: str(rate)}, ())


def clear_throttles(client: Client, topics: Collection[str]) -> None:
    """Remove the throttle from all live brokers and these topics."""
    clear_broker_throttles(client, Admin(client).live_brokers())
    clear_topic_throttles(client, sorted(topics))


def throttled_brokers(admin: Admin, plan: Plan) -> list[int]:
    """The brokers that may have a throttle."""
    return sorted({*admin.live_brokers(), *plan.brokers})


def clear_broker_throttles(client: Client, brokers: Collection[int]) -> None:
    for broker in sorted(brokers):
        alter_configs(client, Resource.BROKER, str(broker), {}, BROKER_KEYS)


def clear_topic_throttles(client: Client, topics: Collection[str]) -> None:
    for topic in topics:
        alter_configs(client, Resource.TOPIC, topic, {}, TOPIC_KEYS)
