"""How many replicas a topic has and should have, in the midst of moves too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.client.reassignments import Reassignment

if TYPE_CHECKING:
    from ottla.client.configs import Config

MIN_ISR = "min.insync.replicas"

Moves = Mapping[TopicPartition, Reassignment]


def is_preferred(partition: Partition) -> bool:
    """Whether it is led by its first replica."""
    return bool(partition.replicas) and partition.leader == partition.replicas[0]


def unpreferred(topics: Iterable[Topic]) -> list[TopicPartition]:
    """Partitions whose leader a preferred election would change, as soon as their first replica is in sync."""
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if not is_preferred(partition)
    ]


def is_under_replicated(name: str, partition: Partition, moves: Moves) -> bool:
    """Whether replicas are missing that it should have by now: those that a move is about to add are not."""
    return len(partition.isr) < _replica_count(name, partition, moves)


def _replica_count(name: str, partition: Partition, moves: Moves) -> int:
    move = moves.get(TopicPartition(name, partition.number))
    if move is None or not {*move.adding, *move.removing} & {*partition.replicas}:
        return len(partition.replicas)  # a move of which nothing is left has ended since it was asked for
    return len(move.replicas) - len(move.adding)


def min_isr(settings: list[Config]) -> int:
    for config in settings:
        if config.name == MIN_ISR and config.value is not None and config.value.isdecimal():
            return int(config.value)
    return 1


def replication_factor(topic: Topic, moves: Moves | None = None) -> int:
    """Without `moves` those count, too, that are yet to come."""
    return _replica_count(topic.name, topic.partitions[0], moves or {}) if topic.partitions else 0
