"""What must be so before replicas of a whole cluster are moved."""

from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerRoom, PartitionLoad
from ottla.client.admin import Partition, Topic
from ottla.operations.reassignment.facts import ClusterFacts, check_led, check_whole
from ottla.operations.reassignment.plan import PlanError


def facts(living: list[int], **partitions: Partition) -> ClusterFacts:
    """A cluster of topics with one partition each."""
    topics = [Topic(name, UUID(int=1), False, [found]) for name, found in partitions.items()]
    loads = [
        PartitionLoad(TopicPartition(name, 0), tuple(found.replicas), 100) for name, found in sorted(partitions.items())
    ]
    return ClusterFacts("id", topics, loads, {broker: BrokerRoom() for broker in living}, {}, [], [])


LED = Partition(0, 2, [1, 2], [2])
SOLO = Partition(0, -1, [1], [1])


def test_what_nobody_leads_cannot_be_moved() -> None:
    found = facts([2, 3], led=LED, solo=SOLO)
    for gone in ([1], []):  # `remove 1`, and a command that would have to say: remove 1
        with pytest.raises(PlanError, match=r"^solo-0 has no leader, and its records are only on broker 1: ") as caught:
            check_whole(found, gone)
        assert (
            "Start that broker again, or, if its records may be lost, delete the topic (ottla topics delete solo)"
            in str(caught.value)
        )
    check_whole(facts([2, 3], led=LED), [1])


def test_all_that_nobody_leads_is_named() -> None:
    fallen_behind = Partition(0, -1, [2, 1], [1])  # 2 is there, but has not all records
    nobody_in_sync = Partition(0, -1, [1, 4], [], [], [4])
    found = facts([2, 3], led=LED, solo=SOLO, behind=fallen_behind, none=nobody_in_sync)
    with pytest.raises(PlanError) as caught:
        check_whole(found, [1, 4])
    words = str(caught.value)
    assert words.startswith("solo-0, behind-0, none-0 have no leader, and their records are only on brokers 1, 4: ")
    assert "delete the topics (ottla topics delete solo behind none)" in words


def test_only_what_is_moved_needs_a_leader() -> None:
    found = facts([1, 2, 3], led=LED, solo=SOLO)  # the folder of solo-0 has failed, the broker is there
    check_whole(found)
    check_led(found, [TopicPartition("led", 0)])
    with pytest.raises(PlanError, match="solo-0 has no leader"):
        check_led(found, [TopicPartition("solo", 0)])


def test_a_topic_with_other_partitions_is_not_to_be_deleted_for_one_that_nobody_leads() -> None:
    found = facts([1, 2, 3], led=LED, solo=SOLO)
    half = found.topics[1]._replace(partitions=[*found.topics[1].partitions, Partition(1, 2, [2], [2])])
    with pytest.raises(PlanError) as caught:
        check_led(found._replace(topics=[found.topics[0], half]), [TopicPartition("solo", 0)])
    assert "delete" not in str(caught.value)
    assert str(caught.value).endswith(
        "let a replica lead that is not in sync (ottla elect --election-type unclean --topic solo --partition 0)"
    )
    dead = found._replace(topics=[found.topics[0], half], brokers={2: found.brokers[2]})
    with pytest.raises(PlanError, match=r"Start that broker again$"):
        check_led(dead, [TopicPartition("solo", 0)])


def test_all_brokers_that_are_away_are_named() -> None:
    with pytest.raises(PlanError, match=r"^broker 1 is away, but holds replicas: .*take it out \(.*remove 1\)"):
        check_whole(facts([2], led=LED))
    wide = Partition(0, 2, [1, 2, 3, 5], [2])
    with pytest.raises(PlanError, match=r"^brokers 3, 5 are away, but hold .*take them out \(.*cluster remove 3 5\)"):
        check_whole(facts([1, 2], wide=wide))
