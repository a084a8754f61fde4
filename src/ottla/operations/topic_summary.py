"""Replica counts of a topic, and the figures that CMAK shows for it and its brokers. Pure.

Rules, with P partitions, T brokers that store some of the topic, and B brokers in all:
1. Every stored replica counts, in sync or not. A dead broker that stores one counts in T and in B.
2. Of P, those led by their first replica are preferred; those with an ISR smaller than their replicas are
   under-replicated.
3. Of T, those that store more than ⌈all replicas ÷ T⌉ are skewed; those that lead more than ⌈P ÷ T⌉ are leader-skewed.
4. Percentages are truncated: 2 of 3 are 66.
5. A sum with an unknown term and a share of nothing are None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.client.reassignments import Reassignment

if TYPE_CHECKING:
    from ottla.client.configs import Config


MIN_ISR = "min.insync.replicas"

Moves = Mapping[TopicPartition, Reassignment]


def is_preferred(partition: Partition) -> bool:
    """Whether the first replica leads."""
    return bool(partition.replicas) and partition.leader == partition.replicas[0]


def partitions_without_preferred_leader(topics: Iterable[Topic]) -> list[TopicPartition]:
    """Partitions whose leader a preferred election would change once their first replica is in sync."""
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if not is_preferred(partition)
    ]


def is_under_replicated(name: str, partition: Partition, moves: Moves) -> bool:
    """Whether existing replicas are out of sync. Replicas that a reassignment is adding do not count."""
    return len(partition.isr) < _replica_count(name, partition, moves)


def _replica_count(name: str, partition: Partition, moves: Moves) -> int:
    move = moves.get(TopicPartition(name, partition.number))
    if move is None or not {*move.adding, *move.removing} & {*partition.replicas}:
        return len(partition.replicas)  # the reassignment ended since it was listed
    return len(move.replicas) - len(move.adding)


def min_isr(settings: list[Config]) -> int:
    for config in settings:
        if config.name == MIN_ISR and config.value is not None and config.value.isdecimal():
            return int(config.value)
    return 1


def replication_factor(topic: Topic, moves: Moves | None = None) -> int:
    """The number of replicas; without `moves` it includes those being added."""
    return _replica_count(topic.name, topic.partitions[0], moves or {}) if topic.partitions else 0


UNDER_REPLICATED_RED = 50  # above it red; above 0 yellow
SKEWED_RED = 34  # at or above it red; above 0 yellow
YELLOW_UP_TO, RED_UP_TO = 75, 50  # of what should be 100


class Level(Enum):
    """The severity of a figure: CMAK's colours."""

    OK = "ok"
    YELLOW = "yellow"
    RED = "red"


class Figure(NamedTuple):
    """A value under CMAK's name."""

    name: str
    value: int | None
    level: Level = Level.OK


class BrokerRow(NamedTuple):
    """One broker's part of the topic."""

    broker: int
    partitions: tuple[int, ...]  # of which it stores a replica
    leader_count: int
    is_skewed: bool
    is_leader_skewed: bool


class TopicSummary(NamedTuple):
    """The figures of a topic, and a row for each broker that stores some of it."""

    topic: str
    replication: int
    partition_count: int
    offset_sum: int | None
    broker_count: int  # B
    brokers: tuple[BrokerRow, ...]  # T
    preferred_percent: int | None
    under_replicated_percent: int | None

    @property
    def skewed_percent(self) -> int | None:
        return percent(sum(row.is_skewed for row in self.brokers), len(self.brokers))

    @property
    def leader_skewed_percent(self) -> int | None:
        return percent(sum(row.is_leader_skewed for row in self.brokers), len(self.brokers))

    @property
    def spread_percent(self) -> int | None:
        return percent(len(self.brokers), self.broker_count)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """In CMAK's order."""
        under_replicated = self.under_replicated_percent
        return (
            Figure("Replication", self.replication),
            Figure("Number of Partitions", self.partition_count),
            Figure("Sum of partition offsets", self.offset_sum),
            Figure("Total number of Brokers", self.broker_count),
            Figure("Number of Brokers for Topic", len(self.brokers)),
            _figure_high("Preferred Replicas %", self.preferred_percent),
            _figure_low("Brokers Skewed %", self.skewed_percent, SKEWED_RED),
            _figure_low("Brokers Leader Skewed %", self.leader_skewed_percent, SKEWED_RED),
            _figure_high("Brokers Spread %", self.spread_percent),
            _figure_low("Under-replicated %", under_replicated, UNDER_REPLICATED_RED + 1),
        )


def summarize(topic: Topic, ends: Mapping[int, int], live_brokers: Collection[int]) -> TopicSummary:
    """`ends` are the known log end offsets by partition."""
    partitions = topic.partitions
    stored: dict[int, list[int]] = {}
    for partition in partitions:
        for broker in partition.replicas:
            stored.setdefault(broker, []).append(partition.number)
    leaders = Counter(partition.leader for partition in partitions)
    replicas_max = _even_share(sum(map(len, stored.values())), len(stored))
    leaders_max = _even_share(len(partitions), len(stored))
    brokers = tuple(
        BrokerRow(
            broker,
            tuple(sorted(numbers)),
            leaders[broker],
            is_skewed=len(numbers) > replicas_max,
            is_leader_skewed=leaders[broker] > leaders_max,
        )
        for broker, numbers in sorted(stored.items())
    )
    under_replicated = sum(len(item.isr) < len(item.replicas) for item in partitions)
    return TopicSummary(
        topic.name,
        replication=len(partitions[0].replicas) if partitions else 0,
        partition_count=len(partitions),
        offset_sum=_sum(ends.get(item.number) for item in partitions),
        broker_count=len({*live_brokers, *stored}),
        brokers=brokers,
        preferred_percent=percent(sum(map(is_preferred, partitions)), len(partitions)),
        under_replicated_percent=percent(under_replicated, len(partitions)),
    )


def percent(part: int, whole: int) -> int | None:
    """Truncated: 2 of 3 are 66."""
    return 100 * part // whole if whole else None


def _even_share(count: int, brokers: int) -> int:
    """The largest even share of one broker."""
    return -(-count // brokers) if brokers else 0


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _figure_low(name: str, value: int | None, red_from: int) -> Figure:
    return Figure(name, value, Level.OK if not value else Level.RED if value >= red_from else Level.YELLOW)


def _figure_high(name: str, value: int | None) -> Figure:
    if value is None or value > YELLOW_UP_TO:
        return Figure(name, value)
    return Figure(name, value, Level.RED if value <= RED_UP_TO else Level.YELLOW)
