"""Topics that are kept as bytes must be the bytes that the codec makes."""

from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.broker.metadata_topics import MetadataTopics, describe_topic, encode_response
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

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


def join(kept: MetadataTopics, image: MetadataImage, version: int, *own: MetadataResponseTopic) -> EncodedBody:
    rows = kept.encoded(image, "PLAINTEXT", version, image.topics.values())
    return encode_response(response(*own), rows, version)


@pytest.mark.parametrize("version", range(14))
def test_joined_bytes_are_those_of_the_codec(version: int) -> None:
    image = image_with(topic("a", 1), topic("__consumer_offsets", 2), topic("b", 3, PARTITIONS[:1] * 200))
    rows = [describe_topic(image, "PLAINTEXT", version, each) for each in image.topics.values()]
    unknown = MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_OR_PARTITION, name="x", is_internal=True)
    kept = MetadataTopics()
    assert join(kept, image, version).body == encode(response(*rows), version)
    assert join(kept, image, version, unknown).body == encode(response(unknown, *rows), version)
    assert encode(join(kept, image, version), version) == encode(response(*rows), version)


@pytest.mark.parametrize("version", [0, 9, 13])
def test_no_topics_and_many_topics(version: int) -> None:
    assert join(MetadataTopics(), image_with(), version).body == encode(response(), version)
    many = image_with(*(topic(f"t{number}", number, PARTITIONS[:1]) for number in range(300)))
    rows = [describe_topic(many, "PLAINTEXT", version, each) for each in many.topics.values()]
    assert join(MetadataTopics(), many, version).body == encode(response(*rows), version)


def test_a_leader_that_the_client_cannot_reach_is_told_as_an_error() -> None:
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


def test_a_new_image_is_told_and_the_rest_is_kept() -> None:
    kept = MetadataTopics()
    first = image_with(topic("a", 1), topic("b", 2))
    before = kept.encoded(first, "PLAINTEXT", 12, first.topics.values())
    second = first.with_topics([topic("a", 1, PARTITIONS[:1])])
    after = kept.encoded(second, "PLAINTEXT", 12, second.topics.values())
    assert after[0] != before[0]
    assert after[1] is before[1]
    assert kept.encoded(first, "PLAINTEXT", 12, first.topics.values()) == before
    third = second.with_topics(removed=["b"]).with_topics([topic("b", 9)])
    assert kept.encoded(third, "PLAINTEXT", 12, [third.topics["b"]])[0] != before[1]


def test_other_brokers_make_everything_new() -> None:
    kept = MetadataTopics()
    image = image_with(topic("a", 1))
    before = kept.encoded(image, "PLAINTEXT", 12, image.topics.values())
    alone = image.with_brokers({})
    assert kept.encoded(alone, "PLAINTEXT", 12, alone.topics.values()) != before
    assert kept.encoded(image, "OTHER", 12, image.topics.values()) != before
