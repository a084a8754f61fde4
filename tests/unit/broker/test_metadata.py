"""The Metadata handler with ACLs and listeners, and the cache of encoded topics. The rest is in tests/conformance."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.unit.broker.handler_stand import Broker, Client, with_broker

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.encoded_topics_cache import EncodedTopicsCache, describe_topic, encode_response
from ottla.broker.handlers import metadata
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def request(*names: str, auto: bool = False, **options: bool) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=auto, **options)


def errors(answer: metadata.MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def test_a_client_gets_the_addresses_of_its_listener(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        for listener, address in (("PLAINTEXT", ("127.0.0.1", 9092)), ("OUTSIDE", ("broker.example", 9093))):
            answer = await Client(broker, listener=listener).ask(metadata.handle, request(), 13)
            assert [(row.host, row.port, row.rack) for row in answer.brokers] == [(*address, "rack-a")]
        answer = await Client(broker, listener="UNKNOWN").ask(metadata.handle, request(), 13)
        assert answer.brokers == []

    with_broker(tmp_path, play)


def test_a_missing_topic_is_created_before_the_response(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        answer = await Client(broker).ask(metadata.handle, request("a", auto=True), 13)
        assert errors(answer) == {"a": 0}
        assert len(answer.topics[0].partitions) == 3

    with_broker(tmp_path, play, num_partitions="3")


def test_concurrent_requests_create_a_topic_once(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        clients = [Client(broker) for _ in range(50)]
        answers = await asyncio.gather(
            *(client.ask(metadata.handle, request("a", auto=True), 13) for client in clients)
        )
        assert len({answer.topics[0].topic_id for answer in answers}) == 1

    with_broker(tmp_path, play)


def test_topics_are_not_created_against_the_settings_or_without_permission(tmp_path: Path) -> None:
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


def test_authorized_operations_are_those_of_the_client(tmp_path: Path) -> None:
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


def test_all_of_many_topics_are_returned(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic(f"t{number}") for number in range(1200)])
        answer = await Client(broker).ask(metadata.handle, MetadataRequest(topics=None), 13)
        assert errors(answer) == {f"t{number}": 0 for number in range(1200)}

    with_broker(tmp_path, play)


# ---- encoded topics must equal the codec's output

BROKERS = {
    1: BrokerImage(1, {"PLAINTEXT": Endpoint("h", 1)}, None, 5),
    2: BrokerImage(2, {"OTHER": Endpoint("h", 2)}, "rack", 6),
}
PARTITIONS = (
    PartitionImage(1, 0, (1,), (1,)),
    PartitionImage(1, 0, (1,), (1,)),
    PartitionImage(2, 7, (2, 1), (2, 1)),
    PartitionImage(-1, 3, (), (9, 1)),
    PartitionImage(9, 4, (9,), (9,)),
)


def topic(name: str, number: int, partitions: tuple[PartitionImage, ...] = PARTITIONS) -> TopicImage:
    return TopicImage(name, UUID(int=number), partitions)


def image_with(*topics: TopicImage) -> MetadataImage:
    return MetadataImage(brokers=BROKERS, topics={each.name: each for each in topics})


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=1, host="h", port=1), MetadataResponseBroker(node_id=2, host="i", port=2)]
    return MetadataResponse(
        brokers=brokers, cluster_id="cluster", controller_id=1, topics=list(topics), cluster_authorized_operations=77
    )


def join(kept: EncodedTopicsCache, image: MetadataImage, version: int, *own: MetadataResponseTopic) -> EncodedBody:
    rows = kept.encode_topics(image, "PLAINTEXT", version, image.topics.values())
    return encode_response(response(*own), rows, version)


@pytest.mark.parametrize("version", range(14))
def test_joined_bytes_equal_those_of_the_codec(version: int) -> None:
    image = image_with(topic("a", 1), topic("__consumer_offsets", 2), topic("b", 3, PARTITIONS[:1] * 200))
    rows = [describe_topic(image, "PLAINTEXT", version, each) for each in image.topics.values()]
    unknown = MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_OR_PARTITION, name="x", is_internal=True)
    kept = EncodedTopicsCache()
    assert join(kept, image, version).body == encode(response(*rows), version)
    assert join(kept, image, version, unknown).body == encode(response(unknown, *rows), version)
    assert encode(join(kept, image, version), version) == encode(response(*rows), version)


@pytest.mark.parametrize("version", [0, 9, 13])
def test_no_topics_and_many_topics(version: int) -> None:
    assert join(EncodedTopicsCache(), image_with(), version).body == encode(response(), version)
    many = image_with(*(topic(f"t{number}", number, PARTITIONS[:1]) for number in range(300)))
    rows = [describe_topic(many, "PLAINTEXT", version, each) for each in many.topics.values()]
    assert join(EncodedTopicsCache(), many, version).body == encode(response(*rows), version)


def test_an_unreachable_leader_is_an_error() -> None:
    image = image_with(topic("a", 1))
    told = {
        version: [
            (p.leader_id, p.error_code) for p in describe_topic(image, "PLAINTEXT", version, topic("a", 1)).partitions
        ]
        for version in (5, 6)
    }
    gone = (-1, Error.LEADER_NOT_AVAILABLE)
    assert told[6] == [(1, 0), (1, 0), (-1, Error.LISTENER_NOT_FOUND), gone, gone]
    assert told[5] == [(1, 0), (1, 0), gone, gone, gone]
    offline = [p.offline_replicas for p in describe_topic(image, "PLAINTEXT", 6, topic("a", 1)).partitions]
    assert offline == [[], [], [2], [9], [9]]


def test_a_new_image_replaces_changed_topics_only() -> None:
    kept = EncodedTopicsCache()
    first = image_with(topic("a", 1), topic("b", 2))
    before = kept.encode_topics(first, "PLAINTEXT", 12, first.topics.values())
    second = first.with_topics([topic("a", 1, PARTITIONS[:1])])
    after = kept.encode_topics(second, "PLAINTEXT", 12, second.topics.values())
    assert after[0] != before[0]
    assert after[1] is before[1]
    assert kept.encode_topics(first, "PLAINTEXT", 12, first.topics.values()) == before
    third = second.with_topics(removed=["b"]).with_topics([topic("b", 9)])
    assert kept.encode_topics(third, "PLAINTEXT", 12, [third.topics["b"]])[0] != before[1]


def test_other_brokers_invalidate_all_topics() -> None:
    kept = EncodedTopicsCache()
    image = image_with(topic("a", 1))
    before = kept.encode_topics(image, "PLAINTEXT", 12, image.topics.values())
    alone = image.with_brokers({})
    assert kept.encode_topics(alone, "PLAINTEXT", 12, alone.topics.values()) != before
    assert kept.encode_topics(image, "OTHER", 12, image.topics.values()) != before
