"""CreateTopics, DeleteTopics, CreatePartitions: rights and refusals. Kafka's own answers are in tests/conformance."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers import create_partitions, create_topics, delete_topics
from ottla.controller.decisions.machine import NewTopic
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
from unit.broker.handler_stand import Broker, Client, with_broker

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
NO_ID = UUID(int=0)


def creation(*names: str, **configs: str) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=settings) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=5000)


def deletion(*topics: tuple[str | None, UUID]) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=states, timeout_ms=5000)


def test_a_created_topic_is_told_with_its_settings_and_their_sources(tmp_path: Path) -> None:
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


def test_settings_are_hidden_from_those_who_may_not_read_them(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        client = Client(broker, (Operation.DESCRIBE_CONFIGS, TOPIC, "a"))
        (row,) = (await client.ask(create_topics.handle, creation("a"), 7)).topics
        assert (row.error_code, row.topic_config_error_code) == (0, Error.TOPIC_AUTHORIZATION_FAILED)
        assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, [])

    with_broker(tmp_path, play)


def test_creation_needs_a_right_on_the_cluster_or_on_the_topic(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        client = Client(broker, (Operation.CREATE, CLUSTER, CLUSTER_NAME), (Operation.CREATE, TOPIC, "a"))
        answer = await client.ask(create_topics.handle, creation("a", "b"), 7)
        assert {row.name: row.error_code for row in answer.topics} == {"a": Error.TOPIC_AUTHORIZATION_FAILED, "b": 0}

    with_broker(tmp_path, play)


def test_a_refused_topic_is_a_row_without_details(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        (row,) = (await Client(broker).ask(create_topics.handle, creation("a", retention_ms="x"), 7)).topics
        message = "Invalid value x for configuration retention.ms: Not a number of type LONG"
        expected = CreatableTopicResult(name="a", error_code=Error.INVALID_CONFIG, error_message=message, configs=[])
        assert row == expected

    with_broker(tmp_path, play)


def test_deletion_needs_a_right_and_an_id_gives_no_name_away(tmp_path: Path) -> None:
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
def test_deletion_that_is_switched_off(tmp_path: Path, version: int, error: int) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a")])
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=5000)
        answer = await Client(broker).ask(delete_topics.handle, request, version)
        assert [(row.name, row.error_code) for row in answer.responses] == [("a", error)]

    with_broker(tmp_path, play, delete_topic_enable="false")


def test_growth_needs_a_right(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a"), NewTopic("b")])
        topics = [CreatePartitionsTopic(name=name, count=4) for name in ("a", "b")]
        client = Client(broker, (Operation.ALTER, TOPIC, "a"))
        answer = await client.ask(create_partitions.handle, CreatePartitionsRequest(topics=topics, timeout_ms=5000), 3)
        assert {row.name: row.error_code for row in answer.results} == {"a": Error.TOPIC_AUTHORIZATION_FAILED, "b": 0}
        assert [len(broker.image.topics[name].partitions) for name in ("a", "b")] == [1, 4]

    with_broker(tmp_path, play)


def test_time_that_is_up_is_told_for_each_topic(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a")])
        topics = [CreatePartitionsTopic(name="a", count=4)]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=0)
        answer = await Client(broker).ask(create_partitions.handle, request, 3)
        assert [(row.name, row.error_code) for row in answer.results] == [("a", Error.REQUEST_TIMED_OUT)]

    with_broker(tmp_path, play)
