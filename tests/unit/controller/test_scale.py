"""The cost of a change is independent of the cluster size: equal calls and memory in a cluster ten times as large."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.controller.controller_harness import broker, check_configs

from ottla.controller.cluster.deltas import apply_delta, difference
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.isr_changes import ANY_BROKER_EPOCH, IsrChange, decide_alter_partitions
from ottla.controller.decisions.leader_election import decide_broker_changes
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.topic_changes import (
    NewPartitions,
    NewTopic,
    NewTopicSeed,
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
)
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage

SMALL, LARGE = 2_000, 20_000  # topics
PLACES = 40  # topics on the broker that dies, in either
RULES = ElectionRules(min_insync_replicas=2)
LOTS = [NewTopicSeed(UUID(int=2**100), 3, 5)]
Change = Callable[[MetadataImage, BrokerIndex], MetadataImage]


def cluster(topics: int) -> MetadataImage:
    """Broker 9 has the same replicas in both clusters; only the others have more in the larger one."""
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
    change = IsrChange(UUID(int=101), 1, 0, 0, ((1, ANY_BROKER_EPOCH), (2, ANY_BROKER_EPOCH)))
    return decide_alter_partitions(image, 1, 0, [change], BrokerAvailability(), RULES).image


def topic_created(image: MetadataImage, _: BrokerIndex) -> MetadataImage:
    return decide_create_topics(image, [NewTopic("new.topic", 3, 3)], TopicDefaults(), LOTS, check_configs).image


def partition_added(image: MetadataImage, _: BrokerIndex) -> MetadataImage:
    return decide_create_partitions(image, [NewPartitions("topic.50", 4)], LOTS).image


def broker_lost(image: MetadataImage, index: BrokerIndex) -> MetadataImage:
    left = {id_: each for id_, each in image.brokers.items() if id_ != 9}
    return decide_broker_changes(image, left, BrokerAvailability(), RULES, index.topics_of).image


def cost(topics: int, change: Change) -> tuple[int, int]:
    """Calls and bytes of one change: decision, delta, application by another broker, update of the index."""
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
        BrokerIndex.update(index, new)

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
