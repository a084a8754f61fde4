"""Slowing down the copies that a move makes: whom, which replicas, and the settings that say so.

Kafka slows down only replicas that are named, never all that a broker does: so both the rate of the brokers and the
replicas of the topics are set, and both are taken back afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.throttled import (
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
    """What has to be set so that moves are slowed down: brokers, and replicas by topic as Kafka's keys want them."""

    brokers: list[int]
    leaders: dict[str, str]
    followers: dict[str, str]


def throttles(under_way: Mapping[TopicPartition, Reassignment], wanted: Rows, now: Rows) -> Throttles:
    """Whom to slow down: replicas that are copied from, and those that are copied to, also of moves under way."""
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
    """Slow down copying between brokers, for the replicas that move."""
    for topic in sorted({*wanted.leaders, *wanted.followers}):
        values = {LEADER_REPLICAS: wanted.leaders.get(topic, ""), FOLLOWER_REPLICAS: wanted.followers.get(topic, "")}
        alter_configs(client, Resource.TOPIC, topic, {key: value for key, value in values.items() if value}, ())
    for broker in wanted.brokers:
        alter_configs(client, Resource.BROKER, str(broker), {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}, ())


def set_folder_throttle(client: Client, brokers: Collection[int], rate: int) -> None:
    """Slow down copying between the folders of brokers."""
    for broker in sorted(brokers):
        alter_configs(client, Resource.BROKER, str(broker), {FOLDER_RATE: str(rate)}, ())


def clear_throttles(client: Client, topics: Collection[str]) -> None:
    """As fast as it goes, on all brokers that are alive."""
    clear_broker_throttles(client, Admin(client).live_brokers())
    clear_topic_throttles(client, sorted(topics))


def throttled_brokers(admin: Admin, plan: Plan) -> list[int]:
    """On whom a throttle may have been left."""
    return sorted({*admin.live_brokers(), *plan.brokers})


def clear_broker_throttles(client: Client, brokers: Collection[int]) -> None:
    for broker in sorted(brokers):
        alter_configs(client, Resource.BROKER, str(broker), {}, BROKER_KEYS)


def clear_topic_throttles(client: Client, topics: Collection[str]) -> None:
    for topic in topics:
        alter_configs(client, Resource.TOPIC, topic, {}, TOPIC_KEYS)
