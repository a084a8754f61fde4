"""The Metadata handler: what only one broker with rights and listeners can show. The rest is in tests/conformance."""

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers import metadata
from ottla.controller.decisions.machine import NewTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from unit.broker.handler_stand import Broker, Client, with_broker

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def request(*names: str, auto: bool = False, **options: bool) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=auto, **options)


def errors(answer: metadata.MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def test_a_client_is_told_the_addresses_of_its_own_listener(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        for listener, address in (("PLAINTEXT", ("127.0.0.1", 9092)), ("OUTSIDE", ("broker.example", 9093))):
            answer = await Client(broker, listener=listener).ask(metadata.handle, request(), 13)
            assert [(row.host, row.port, row.rack) for row in answer.brokers] == [(*address, "rack-a")]
        answer = await Client(broker, listener="UNKNOWN").ask(metadata.handle, request(), 13)
        assert answer.brokers == []

    with_broker(tmp_path, play)


def test_a_missing_topic_is_created_before_the_answer(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        answer = await Client(broker).ask(metadata.handle, request("a", auto=True), 13)
        assert errors(answer) == {"a": 0}
        assert len(answer.topics[0].partitions) == 3

    with_broker(tmp_path, play, num_partitions="3")


def test_a_crowd_creates_a_topic_once(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        clients = [Client(broker) for _ in range(50)]
        answers = await asyncio.gather(
            *(client.ask(metadata.handle, request("a", auto=True), 13) for client in clients)
        )
        assert len({answer.topics[0].topic_id for answer in answers}) == 1

    with_broker(tmp_path, play)


def test_nothing_is_created_against_the_settings_or_without_the_right(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        denied = ((Operation.CREATE, CLUSTER, CLUSTER_NAME), (Operation.CREATE, TOPIC, "a"))
        answer = await Client(broker, *denied).ask(metadata.handle, request("a", "b", auto=True), 13)
        assert errors(answer) == {"a": Error.TOPIC_AUTHORIZATION_FAILED, "b": 0}

    async def play_without(broker: Broker) -> None:
        answer = await Client(broker).ask(metadata.handle, request("c", auto=True), 13)
        assert errors(answer) == {"c": Error.UNKNOWN_TOPIC_OR_PARTITION}

    with_broker(tmp_path, play)
    with_broker(tmp_path, play_without, auto_create_topics_enable="false")


def test_hidden_topics_stay_hidden(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("open"), NewTopic("hidden")])
        hidden_id = broker.image.topics["hidden"].topic_id
        client = Client(broker, (Operation.DESCRIBE, TOPIC, "hidden"), (Operation.DESCRIBE, TOPIC, "nothing"))
        answer = await client.ask(metadata.handle, MetadataRequest(topics=None), 13)
        assert errors(answer) == {"open": 0}
        answer = await client.ask(metadata.handle, request("hidden", "nothing", auto=True), 13)
        assert errors(answer) == dict.fromkeys(["hidden", "nothing"], Error.TOPIC_AUTHORIZATION_FAILED)
        assert all(topic.topic_id == UUID(int=0) and not topic.partitions for topic in answer.topics)
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=hidden_id)])
        answer = await client.ask(metadata.handle, by_id, 13)
        assert [(row.name, row.error_code) for row in answer.topics] == [(None, Error.TOPIC_AUTHORIZATION_FAILED)]
        assert set(broker.image.topics) == {"open", "hidden"}

    with_broker(tmp_path, play)


def test_operations_are_those_of_the_client(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a")])
        wanted = request("a", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
        answer = await Client(broker).ask(metadata.handle, wanted, 8)
        assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (3576, 8096)
        client = Client(broker, (Operation.DELETE, TOPIC, "a"), (Operation.DESCRIBE, CLUSTER, CLUSTER_NAME))
        answer = await client.ask(metadata.handle, wanted, 8)
        assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (3576 - 64, 0)

    with_broker(tmp_path, play)


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_with_neither_name_nor_id_is_malformed(tmp_path: Path, version: int) -> None:
    async def play(broker: Broker) -> None:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
        answer = await Client(broker).ask(metadata.handle, wanted, version)
        assert [row.error_code for row in answer.topics] == [Error.INVALID_REQUEST]
        assert answer.brokers == []
        mixed = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=uuid4())])
        assert (await Client(broker).ask(metadata.handle, mixed, version)).topics[
            0
        ].error_code == Error.UNKNOWN_TOPIC_ID

    with_broker(tmp_path, play)


def test_all_of_many_topics_are_told(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic(f"t{number}") for number in range(1200)])
        answer = await Client(broker).ask(metadata.handle, MetadataRequest(topics=None), 13)
        assert errors(answer) == {f"t{number}": 0 for number in range(1200)}

    with_broker(tmp_path, play)
