"""The replicas that are throttled during a reassignment, in the form of Kafka's keys (KIP-73). Pure.

Kafka throttles only replicas that are named, never all traffic of a broker: the brokers have a rate, the topics name
the replicas. Tools and the controller set both for as long as replicas move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.base.names import TopicPartition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATE_KEYS: Final = (LEADER_RATE, FOLLOWER_RATE)
REPLICA_KEYS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
ALL: Final = "*"


def throttled_entries(partition: int, brokers: Iterable[int]) -> list[str]:
    """`0:1`: partition 0 on broker 1."""
    return [f"{partition}:{broker}" for broker in brokers]


def by_topic(rows: Mapping[TopicPartition, Collection[int]]) -> dict[str, str]:
    """`0:1,0:2,1:3` for each topic: partition and broker, sorted as text as in Kafka."""
    words: dict[str, list[str]] = {}
    for partition, brokers in rows.items():
        words.setdefault(partition.topic, []).extend(throttled_entries(partition.partition, brokers))
    return {topic: ",".join(sorted(found)) for topic, found in sorted(words.items())}
