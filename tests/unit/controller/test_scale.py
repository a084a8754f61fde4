"""Cost follows what changed: in a cluster ten times as large a change makes as many calls and takes as much memory."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.controller.cluster.deltas import apply_delta, difference
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.isr import ANY_EPOCH, IsrChange, decide_alter_partitions
from ottla.controller.decisions.leader_election import decide_brokers
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import (
    Lot,
    MorePartitions,
    NewTopic,
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
)
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from unit.controller.stand import broker, check_configs

SMALL, LARGE = 2_000, 20_000  # topics
PLACES = 40  # topics on the broker that dies, in either
RULES = Rules(min_insync_replicas=2)
LOTS = [Lot(UUID(int=2**100), 3, 5)]
Change = Callable[[MetadataImage, BrokerIndex], MetadataImage]


def cluster(topics: int) -> MetadataImage:
    """Broker 9 holds as much in either; only the others hold more in a larger one."""
    rest = PartitionImage(1, 0, (1, 2, 3), (1, 2, 3))
    ours = PartitionImage(9, 0, (9, 1, 2), (9, 1, 2))
    rows = [
        TopicImage(f"topic.{number}", UUID(int=number + 1), (ours if number < PLACES else rest,) * 3)
        for number in range(topics)
    ]
    brokers = {id_: broker(id_) for id_ in range(1, 10)}
    configs = {topic.name: {} for topic in rows}
    return MetadataImage(brokers=brokers, topics={topic.name: topic for topic in rows}, topic_configs=configs)


def isr_change(image: MetadataImage, _: BrokerIndex) -> MetadataImage:
    change = IsrChange(UUID(int=101), 1, 0, 0, ((1, ANY_EPOCH), (2, ANY_EPOCH)))
    return decide_alter_partitions(image, 1, 0, [change], Liveness(), RULES).image


def topic_created(image: MetadataImage, _: BrokerIndex) -> MetadataImage:
    return decide_create_topics(image, [NewTopic("new.topic", 3, 3)], TopicDefaults(), LOTS, check_configs).image


def partition_added(image: MetadataImage, _: BrokerIndex) -> MetadataImage:
    return decide_create_partitions(image, [MorePartitions("topic.50", 4)], LOTS).image


def broker_lost(image: MetadataImage, index: BrokerIndex) -> MetadataImage:
    left = {id_: each for id_, each in image.brokers.items() if id_ != 9}
    return decide_brokers(image, left, Liveness(), RULES, index.topics_of).image


def cost(topics: int, change: Change) -> tuple[int, int]:
    """Calls and bytes of one change: decided, told, taken in by another broker, noted in the index."""
    image = cluster(topics)
    index = BrokerIndex(image)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def run() -> None:
        new = change(image, index)
        assert new is not image
        told = apply_delta(image, difference(image, new, 1))
        assert told.changed_topics_since(image) == new.changed_topics_since(image)
        BrokerIndex.follow(index, new)

    tracemalloc.start()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return calls, peak


@pytest.mark.parametrize("change", [isr_change, topic_created, partition_added, broker_lost])
def test_a_change_costs_the_same_in_a_cluster_ten_times_as_large(change: Change) -> None:
    cost(PLACES + 80, change)  # what is imported and compiled at the first time counts for neither
    (small_calls, small_bytes), (large_calls, large_bytes) = cost(SMALL, change), cost(LARGE, change)
    assert large_calls <= 1.2 * small_calls
    assert large_bytes <= 1.5 * small_bytes  # fuller buckets are copied, but no more of them: all would be ten times
