"""The numbers that CMAK shows for a topic and its brokers. Pure.

Rules, with P partitions, T brokers that store some of the topic, and B brokers in all:
1. What is stored counts, in sync or not. A dead broker that stores something counts in T and in B.
2. Of P, those led by their first replica are preferred, those with an ISR smaller than their replicas under-replicated.
3. Of T, those are skewed that store more than ⌈all replicas ÷ T⌉, and leader-skewed that lead more than ⌈P ÷ T⌉.
4. Percentages are cut, not rounded: 2 of 3 are 66.
5. A sum with an end that nobody knows is not known, nor is a share of nothing: None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.client.admin import Topic
from ottla.operations.topic_replicas import is_preferred

UNDER_REPLICATED_RED = 50  # above it; above nothing it is yellow
SKEWED_RED = 34  # from it on; above nothing it is yellow
YELLOW_UP_TO, RED_UP_TO = 75, 50  # of what should be 100


class Level(Enum):
    """How bad a number is, by the colour in which CMAK paints it."""

    OK = "ok"
    YELLOW = "yellow"
    RED = "red"


class Figure(NamedTuple):
    """A number under CMAK's name for it."""

    name: str
    value: int | None
    level: Level = Level.OK


class BrokerRow(NamedTuple):
    """What one broker has of the topic."""

    broker: int
    partitions: tuple[int, ...]  # of which it stores a replica
    leader_count: int
    is_skewed: bool
    is_leader_skewed: bool


class TopicSummary(NamedTuple):
    """A topic in numbers, and a row for each broker that stores some of it."""

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
            _should_be_all("Preferred Replicas %", self.preferred_percent),
            _should_be_none("Brokers Skewed %", self.skewed_percent, SKEWED_RED),
            _should_be_none("Brokers Leader Skewed %", self.leader_skewed_percent, SKEWED_RED),
            _should_be_all("Brokers Spread %", self.spread_percent),
            _should_be_none("Under-replicated %", under_replicated, UNDER_REPLICATED_RED + 1),
        )


def summarize(topic: Topic, ends: Mapping[int, int], live_brokers: Collection[int]) -> TopicSummary:
    """`ends` are the end offsets of the partitions, as far as they are known."""
    partitions = topic.partitions
    stored: dict[int, list[int]] = {}
    for partition in partitions:
        for broker in partition.replicas:
            stored.setdefault(broker, []).append(partition.number)
    leaders = Counter(partition.leader for partition in partitions)
    replicas_max = _share(sum(map(len, stored.values())), len(stored))
    leaders_max = _share(len(partitions), len(stored))
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
    """Cut: 2 of 3 are 66."""
    return 100 * part // whole if whole else None


def _share(count: int, brokers: int) -> int:
    """The most that one of so many brokers should have."""
    return -(-count // brokers) if brokers else 0


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _should_be_none(name: str, value: int | None, red_from: int) -> Figure:
    return Figure(name, value, Level.OK if not value else Level.RED if value >= red_from else Level.YELLOW)


def _should_be_all(name: str, value: int | None) -> Figure:
    if value is None or value > YELLOW_UP_TO:
        return Figure(name, value)
    return Figure(name, value, Level.RED if value <= RED_UP_TO else Level.YELLOW)
