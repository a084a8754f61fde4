"""CMAK's figures: both examples of its sources, and each rule."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.operations.topic_summary import Level, TopicSummary, partitions_without_preferred_leader, percent, summarize


def summary(
    *replicas: list[int], leaders: list[int], isr: list[list[int]] | None = None, live: tuple[int, ...] = (0, 1, 2)
) -> TopicSummary:
    in_sync = isr or list(replicas)
    partitions = [
        Partition(number, leader, stored, synced)
        for number, (leader, stored, synced) in enumerate(zip(leaders, replicas, in_sync, strict=True))
    ]
    topic = Topic("t", UUID(int=1), is_internal=False, partitions=partitions)
    return summarize(topic, dict.fromkeys(range(len(replicas)), 0), live)


def figures(found: TopicSummary) -> dict[str, int | None]:
    return {figure.name: figure.value for figure in found.figures}


def levels(found: TopicSummary) -> dict[str, Level]:
    return {figure.name: figure.level for figure in found.figures if figure.level is not Level.OK}


def test_the_topic_of_the_sources() -> None:
    """3 x 3 replicas on two brokers, 4 and 5 of them, as in the sources (no cluster stores a replica twice)."""
    found = summary([0, 1, 0], [1, 0, 1], [0, 1, 0], leaders=[0, 1, 0])
    assert figures(found) == {
        "Replication": 3,
        "Number of Partitions": 3,
        "Sum of partition offsets": 0,
        "Total number of Brokers": 3,
        "Number of Brokers for Topic": 2,
        "Preferred Replicas %": 100,
        "Brokers Skewed %": 0,
        "Brokers Leader Skewed %": 0,
        "Brokers Spread %": 66,
        "Under-replicated %": 0,
    }
    assert [len(row.partitions) for row in found.brokers] == [5, 4]
    assert levels(found) == {"Brokers Spread %": Level.YELLOW}


def test_the_brokers_of_the_sources() -> None:
    found = summary([0, 1, 2], [1, 2, 0], [1, 0, 2], leaders=[0, 1, 1])
    rows = [
        (row.broker, len(row.partitions), row.leader_count, row.partitions, row.is_skewed, row.is_leader_skewed)
        for row in found.brokers
    ]
    assert rows == [
        (0, 3, 1, (0, 1, 2), False, False),
        (1, 3, 2, (0, 1, 2), False, True),
        (2, 3, 0, (0, 1, 2), False, False),
    ]
    assert figures(found)["Brokers Leader Skewed %"] == 33
    assert levels(found) == {"Brokers Leader Skewed %": Level.YELLOW}


def test_a_broker_that_stores_more_than_its_share_rounded_up_is_skewed() -> None:
    found = summary([0], [0], [0], [1], leaders=[0, 0, 0, 1])
    assert [row.is_skewed for row in found.brokers] == [True, False]
    assert [row.is_leader_skewed for row in found.brokers] == [True, False]
    assert figures(found)["Brokers Skewed %"] == 50
    assert levels(found)["Brokers Skewed %"] is Level.RED


def test_a_dead_broker_that_stores_something_counts() -> None:
    found = summary([0, 9], leaders=[0], isr=[[0]], live=(0, 1))
    assert (found.broker_count, len(found.brokers)) == (3, 2)
    assert [row.broker for row in found.brokers] == [0, 9]
    assert figures(found)["Under-replicated %"] == 100


def test_a_broker_that_stores_nothing_counts_only_in_the_total() -> None:
    found = summary([2], leaders=[2], live=(1, 2))
    assert (found.broker_count, len(found.brokers), found.spread_percent) == (2, 1, 50)
    assert levels(found) == {"Brokers Spread %": Level.RED}


def test_a_partition_without_a_leader_is_not_preferred() -> None:
    found = summary([0, 1], [1, 0], leaders=[-1, 1])
    assert found.preferred_percent == 50
    assert [row.leader_count for row in found.brokers] == [0, 1]


def test_partitions_that_another_broker_should_lead_are_named() -> None:
    partitions = [Partition(0, 1, [1, 2], [1, 2]), Partition(1, 1, [2, 1], [2, 1]), Partition(2, -1, [2], [])]
    topic = Topic("t", UUID(int=1), False, partitions)
    assert partitions_without_preferred_leader([topic]) == [TopicPartition("t", 1), TopicPartition("t", 2)]


def test_percentages_are_cut() -> None:
    assert [percent(part, 3) for part in range(4)] == [0, 33, 66, 100]
    assert percent(199, 200) == 99
    assert percent(0, 0) is None


def test_a_sum_with_an_unknown_end_is_unknown() -> None:
    topic = Topic("t", UUID(int=1), False, [Partition(0, 0, [0], [0]), Partition(1, -1, [0], [])])
    assert summarize(topic, {0: 7, 1: 8}, [0]).offset_sum == 15
    assert summarize(topic, {0: 7}, [0]).offset_sum is None


def test_a_topic_without_partitions_has_no_shares() -> None:
    found = summarize(Topic("t", UUID(int=1), False, []), {}, [0])
    assert (found.preferred_percent, found.skewed_percent, found.under_replicated_percent) == (None, None, None)
    assert (found.spread_percent, found.offset_sum) == (0, 0)


@pytest.mark.parametrize(
    ("under_replicated", "level"), [(0, Level.OK), (1, Level.YELLOW), (50, Level.YELLOW), (51, Level.RED)]
)
def test_under_replicated_partitions_are_yellow_and_most_of_them_red(under_replicated: int, level: Level) -> None:
    replicas = [[0, 1]] * 100
    isr = [[0] if number < under_replicated else [0, 1] for number in range(100)]
    found = summary(*replicas, leaders=[0] * 100, isr=isr)
    assert levels(found).get("Under-replicated %", Level.OK) is level


@pytest.mark.parametrize(
    ("preferred", "level"), [(100, Level.OK), (76, Level.OK), (75, Level.YELLOW), (51, Level.YELLOW), (50, Level.RED)]
)
def test_few_preferred_leaders_are_yellow_and_fewer_red(preferred: int, level: Level) -> None:
    found = summary(*[[0, 1]] * 100, leaders=[0 if number < preferred else 1 for number in range(100)])
    assert levels(found).get("Preferred Replicas %", Level.OK) is level


@pytest.mark.parametrize(("brokers", "level"), [(3, Level.YELLOW), (2, Level.RED)])
def test_a_third_of_skewed_brokers_is_yellow_and_half_red(brokers: int, level: Level) -> None:
    replicas = [[0]] * (brokers + 1) + [[broker] for broker in range(1, brokers)]
    found = summary(*replicas, leaders=[stored[0] for stored in replicas])
    assert found.skewed_percent == 100 // brokers
    assert levels(found)["Brokers Skewed %"] is level
