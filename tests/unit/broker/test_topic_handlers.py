"""Topic and reassignment handlers: permissions and refusals. tests/conformance compares responses with Kafka."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.broker.handler_stand import Broker, Client, with_broker

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    list_partition_reassignments,
)
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import BrokerImage, PartitionImage
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
NO_ID = UUID(int=0)


def creation(*names: str, **configs: str) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=settings) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000)


def deletion(*topics: tuple[str | None, UUID]) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=states, timeout_ms=5000)


def test_a_created_topic_is_returned_with_its_settings_and_their_sources(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        answer = await Client(broker).ask(create_topics.handle, creation("a", retention_ms="5"), 7)
        (row,) = answer.topics
        assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)
        assert row.topic_id == broker.image.topics["a"].topic_id
        told = {config.name: (config.value, config.config_source) for config in row.configs}
        assert len(told) == 33
        assert told["retention.ms"] == ("5", 1)
        assert told["segment.bytes"] == ("2000000", 4)
        assert told["cleanup.policy"] == ("delete", 5)

    with_broker(tmp_path, play, log_segment_bytes="2000000")


def test_settings_are_hidden_from_unauthorized_clients(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        client = Client(broker, (Operation.DESCRIBE_CONFIGS, TOPIC, "a"))
        (row,) = (await client.ask(create_topics.handle, creation("a"), 7)).topics
        assert (row.error_code, row.topic_config_error_code) == (0, Error.TOPIC_AUTHORIZATION_FAILED)
        assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, [])

    with_broker(tmp_path, play)


def test_creation_needs_a_permission_on_the_cluster_or_on_the_topic(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        client = Client(broker, (Operation.CREATE, CLUSTER, CLUSTER_NAME), (Operation.CREATE, TOPIC, "a"))
        answer = await client.ask(create_topics.handle, creation("a", "b"), 7)
        assert {row.name: row.error_code for row in answer.topics} == {"a": Error.TOPIC_AUTHORIZATION_FAILED, "b": 0}

    with_broker(tmp_path, play)


def test_a_refused_topic_has_no_details(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        (row,) = (await Client(broker).ask(create_topics.handle, creation("a", retention_ms="x"), 7)).topics
        message = "Invalid value x for configuration retention.ms: Not a number of type LONG"
        expected = CreatableTopicResult(name="a", error_code=Error.INVALID_CONFIG, error_message=message, configs=[])
        assert row == expected

    with_broker(tmp_path, play)


def test_deletion_needs_a_permission_and_an_id_reveals_no_name(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a"), NewTopic("b")])
        ids = {name: topic.topic_id for name, topic in broker.image.topics.items()}
        denied = [
            (Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME),
            (Operation.DELETE, TOPIC, "a"),
            (Operation.DELETE, TOPIC, "b"),
            (Operation.DESCRIBE, TOPIC, "b"),
        ]
        answer = await Client(broker, *denied).ask(
            delete_topics.handle, deletion((None, ids["a"]), (None, ids["b"])), 6
        )
        error = Error.TOPIC_AUTHORIZATION_FAILED
        assert [(row.name, row.topic_id, row.error_code) for row in answer.responses] == [
            ("a", ids["a"], error),
            (None, ids["b"], error),
        ]
        assert set(broker.image.topics) == {"a", "b"}

    with_broker(tmp_path, play)


@pytest.mark.parametrize(("version", "error"), [(1, 42), (2, 42), (3, 73), (5, 73)])
def test_disabled_deletion_is_refused(tmp_path: Path, version: int, error: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a")])
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=5000)
        answer = await Client(broker).ask(delete_topics.handle, request, version)
        assert [(row.name, row.error_code) for row in answer.responses] == [("a", error)]

    with_broker(tmp_path, play, delete_topic_enable="false")


def test_adding_partitions_needs_a_permission(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a"), NewTopic("b")])
        topics = [CreatePartitionsTopic(name=name, count=4) for name in ("a", "b")]
        client = Client(broker, (Operation.ALTER, TOPIC, "a"))
        answer = await client.ask(create_partitions.handle, CreatePartitionsRequest(topics=topics, timeout_ms=5000), 3)
        assert {row.name: row.error_code for row in answer.results} == {"a": Error.TOPIC_AUTHORIZATION_FAILED, "b": 0}
        assert [len(broker.image.topics[name].partitions) for name in ("a", "b")] == [1, 4]

    with_broker(tmp_path, play)


def test_a_timeout_is_reported_for_each_topic(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a")])
        topics = [CreatePartitionsTopic(name="a", count=4)]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=0)
        answer = await Client(broker).ask(create_partitions.handle, request, 3)
        assert [(row.name, row.error_code) for row in answer.results] == [("a", Error.REQUEST_TIMED_OUT)]

    with_broker(tmp_path, play)


# ---- ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments

MOVE_CLUSTER = ResourceType.CLUSTER


async def prepare(broker: Broker) -> None:
    """Broker 1, and a broker 2 that exists in the image only; 1 leads orders-0, 2 is its preferred leader."""
    broker.election_state = lambda: (BrokerAvailability(), ElectionRules())  # type: ignore[attr-defined]
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


def test_reassignments_are_started_listed_and_cancelled(tmp_path: Path) -> None:
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


def test_permissions_are_checked(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await prepare(broker)
        client = Client(
            broker, (Operation.ALTER, MOVE_CLUSTER, CLUSTER_NAME), (Operation.DESCRIBE, MOVE_CLUSTER, CLUSTER_NAME)
        )
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
