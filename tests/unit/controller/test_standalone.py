"""Partitions in a failed log directory have no leader until the directory is repaired."""

from __future__ import annotations

from uuid import UUID

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.broker.encoded_topics_cache import describe_partition
from ottla.controller.decisions.standalone import decide_local_leaders, decide_offline
from ottla.controller.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import SetNode
from ottla.controller.tree import partition_state_path

LED = PartitionImage(leader=1, leader_epoch=4, isr=(1,), replicas=(1,), partition_epoch=2)
BROKERS = {1: BrokerImage(1, {"PLAINTEXT": Endpoint("localhost", 9092)}, None, 1)}


def image_of(*partitions: PartitionImage) -> MetadataImage:
    topic = TopicImage("topic", UUID(int=1), partitions)
    return MetadataImage(brokers=BROKERS, topics={"topic": topic}, topic_configs={"topic": {}})


def names(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("topic", number) for number in numbers]


def test_the_broker_leads_them_no_more_under_a_new_epoch() -> None:
    decision = decide_offline(image_of(LED, LED, LED), 1, names(0, 2))
    states = decision.image.topics["topic"].partitions
    assert [(state.leader, state.leader_epoch, state.isr) for state in states] == [
        (NO_LEADER, 5, (1,)),
        (1, 4, (1,)),
        (NO_LEADER, 5, (1,)),
    ]
    assert decision.reply == 2
    paths = [operation.path for operation in decision.operations if isinstance(operation, SetNode)]
    assert paths == [partition_state_path("topic", 0), partition_state_path("topic", 2)]
    assert decision.image.changed_topics == {"topic"}


def test_other_leaders_and_unknown_partitions_do_not_change() -> None:
    elsewhere = LED._replace(leader=2)
    decision = decide_offline(image_of(elsewhere), 1, [*names(0, 7), TopicPartition("unknown", 0)])
    assert decision.operations == ()
    assert decision.reply == 0


def test_the_next_start_makes_it_the_leader_again() -> None:
    offline = decide_offline(image_of(LED), 1, names(0)).image
    state = decide_local_leaders(offline, 1).image.topics["topic"].partitions[0]
    assert (state.leader, state.leader_epoch) == (1, 6)


def test_clients_see_no_leader_and_an_offline_replica() -> None:
    state = decide_offline(image_of(LED), 1, names(0)).image.topics["topic"].partitions[0]
    row = describe_partition(BROKERS, "PLAINTEXT", 12, 0, state)
    assert (row.error_code, row.leader_id, row.leader_epoch) == (Error.LEADER_NOT_AVAILABLE, -1, 5)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([1], [], [1])
