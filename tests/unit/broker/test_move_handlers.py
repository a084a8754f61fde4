"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments without a socket."""

from pathlib import Path

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers import alter_partition_reassignments, elect_leaders, list_partition_reassignments
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import NewTopic
from ottla.controller.image import BrokerImage, PartitionImage
from ottla.protocol.messages.elections import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from unit.broker.handler_stand import Broker, Client, with_broker

CLUSTER = ResourceType.CLUSTER


async def prepare(broker: Broker) -> None:
    """Broker 1, and a broker 2 that only the image knows; orders-0 is led by 1 and prefers 2."""
    broker.election_facts = lambda: (Liveness(), Rules())  # type: ignore[attr-defined]
    await broker.controller.create_topics([NewTopic("orders", partition_count=2)])
    image = broker.controller.image.with_brokers(
        {**broker.image.brokers, 2: BrokerImage(2, broker.image.brokers[1].endpoints, None, 5)}
    )
    topic = image.topics["orders"]
    first = PartitionImage(1, 0, (1, 2), (2, 1))
    broker.controller._publish(image.with_topics([topic._replace(partitions=(first, topic.partitions[1]))]))


def wanted(**rows: list[tuple[int, list[int] | None]]) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=number, replicas=row) for number, row in found],
        )
        for name, found in rows.items()
    ]
    return AlterPartitionReassignmentsRequest(topics=topics)


def test_moves_are_begun_listed_and_ended(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await prepare(broker)
        client = Client(broker)
        request = wanted(orders=[(1, [2, 1]), (0, None), (9, [1])], none=[(0, [1])])
        answer = await client.ask(alter_partition_reassignments.handle, request, 1)
        assert answer.error_code == 0
        told = {
            (t.name, p.partition_index): (p.error_code, p.error_message) for t in answer.responses for p in t.partitions
        }
        assert told == {
            ("orders", 1): (Error.NONE, None),
            ("orders", 0): (Error.NO_REASSIGNMENT_IN_PROGRESS, None),
            ("orders", 9): (Error.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition orders:9."),
            ("none", 0): (Error.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named none."),
        }
        assert [row.name for row in answer.responses] == ["orders", "none"]
        listed = await client.ask(list_partition_reassignments.handle, ListPartitionReassignmentsRequest(), 0)
        (topic,) = listed.topics
        (move,) = topic.partitions
        assert (topic.name, move.partition_index) == ("orders", 1)
        assert (move.replicas, move.adding_replicas, move.removing_replicas) == ([2, 1], [2], [])
        for numbers, count in (([0], 0), ([0, 1], 1)):
            rows = [ListPartitionReassignmentsTopics(name="orders", partition_indexes=numbers)]
            request = ListPartitionReassignmentsRequest(topics=rows)
            assert len((await client.ask(list_partition_reassignments.handle, request, 0)).topics) == count
        held = wanted(orders=[(0, [1])])
        held.allow_replication_factor_change = False
        answer = await client.ask(alter_partition_reassignments.handle, held, 1)
        assert answer.responses[0].partitions[0].error_code == Error.INVALID_REPLICATION_FACTOR
        assert answer.allow_replication_factor_change is False

    with_broker(tmp_path, play)


def test_leaders_are_elected(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await prepare(broker)
        client = Client(broker)
        rows = [TopicPartitions(topic="orders", partitions=[0, 1, 0]), TopicPartitions(topic="none", partitions=[3])]
        answer = await client.ask(elect_leaders.handle, ElectLeadersRequest(topic_partitions=rows), 2)
        told = {
            (t.topic, p.partition_id): (p.error_code, p.error_message)
            for t in answer.replica_election_results
            for p in t.partition_result
        }
        assert told == {
            ("orders", 0): (Error.NONE, None),
            ("orders", 1): (Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
            ("none", 3): (Error.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as none"),
        }
        assert broker.image.partition_leader(*TopicPartition("orders", 0)) == 2
        answer = await client.ask(elect_leaders.handle, ElectLeadersRequest(topic_partitions=None), 2)
        assert [(row.topic, row.partition_result) for row in answer.replica_election_results] == [("orders", [])]
        nonsense = ElectLeadersRequest(election_type=7, topic_partitions=rows[1:])
        answer = await client.ask(elect_leaders.handle, nonsense, 2)
        assert answer.error_code == Error.INVALID_REQUEST

    with_broker(tmp_path, play)


def test_rights_are_asked_for(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await prepare(broker)
        client = Client(broker, (Operation.ALTER, CLUSTER, CLUSTER_NAME), (Operation.DESCRIBE, CLUSTER, CLUSTER_NAME))
        refused = Error.CLUSTER_AUTHORIZATION_FAILED
        answer = await client.ask(alter_partition_reassignments.handle, wanted(orders=[(0, [1])]), 1)
        assert answer.error_code == refused
        listed = await client.ask(list_partition_reassignments.handle, ListPartitionReassignmentsRequest(), 0)
        assert (listed.error_code, listed.topics) == (refused, [])
        rows = [TopicPartitions(topic="orders", partitions=[0])]
        elected = await client.ask(elect_leaders.handle, ElectLeadersRequest(topic_partitions=rows), 2)
        assert elected.error_code == refused
        assert elected.replica_election_results[0].partition_result[0].error_code == refused
        assert broker.image.partition_leader("orders", 0) == 1

    with_broker(tmp_path, play)
