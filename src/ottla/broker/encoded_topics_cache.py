"""Cache of encoded topics for Metadata responses: a client that requests ten thousand partitions gets copies.

The bytes of a topic depend on the version, on the client's listener (a leader without this listener is unreachable) and
on the live brokers. They are encoded at the first request and cached as long as the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from ottla.base.errors import Error
from ottla.base.names import topic_name_problem
from ottla.controller import tree
from ottla.controller.image import (
    NO_CONTROLLER,
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.protocol.apis import APIS
from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import uvarint

if TYPE_CHECKING:
    from ottla.controller.cluster.membership import ClusterMembership

METADATA: Final = APIS[3]
PARTITION_INDEX_POSITION: Final = 2  # position of the partition index in every version: after the error code
HALVES_MAX: Final = 10_000
LISTENER_ERROR_SINCE: Final = 6  # older versions have no error for a leader without the client's listener


class EncodedTopicsCache:
    """The encoded topics of the current image; one cache per broker."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._encoded: dict[tuple[int, str], EncodedTopics] = {}

    def __repr__(self) -> str:
        return (
            f"<EncodedTopicsCache of {self._image!r}: {sum(len(kept.topics) for kept in self._encoded.values())} kept>"
        )

    def encode_topics(
        self, image: MetadataImage, listener: str, version: int, topics: Iterable[TopicImage]
    ) -> list[bytes]:
        """Return the encoded topics of this image, in the given order."""
        self._drop_changed(image)
        kept = self._encoded.get((version, listener))
        if kept is None:
            kept = self._encoded[version, listener] = EncodedTopics(image.brokers, listener, version)
        return [kept.topics.get(topic.name) or kept.encode(topic) for topic in topics]

    def _drop_changed(self, image: MetadataImage) -> None:
        """Drop entries that the new image changes; all entries if brokers started or stopped."""
        old = self._image
        if old is image:
            return
        self._image = image
        if old is None or old.brokers is not image.brokers:
            self._encoded.clear()
            return
        changed = image.changed_topics_since(old)
        for kept in self._encoded.values():
            for name in changed:
                kept.topics.pop(name, None)


class EncodedTopics:
    """Topics of one version and one listener, while the same brokers are alive."""

    def __init__(self, brokers: Mapping[int, BrokerImage], listener: str, version: int) -> None:
        self.topics: dict[str, bytes] = {}
        self._brokers = brokers
        self._listener = listener
        self._version = version
        self._halves: dict[PartitionImage, tuple[bytes, bytes]] = {}

    def encode(self, topic: TopicImage) -> bytes:
        """Return the encoded topic; partitions that differ only in their index are encoded once."""
        halves = self._halves
        rows = []
        for index, partition in enumerate(topic.partitions):
            found = halves.get(partition) or self._encode_halves(partition)
            rows.append(found[0] + index.to_bytes(4, "big") + found[1])
        row = MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal)
        version = self._version
        data = insert_rows(encode_topic(row, version), rows, topic_tail_bytes(version), version)
        self.topics[topic.name] = data
        return data

    def _encode_halves(self, partition: PartitionImage) -> tuple[bytes, bytes]:
        """Return the bytes before and after the index of a partition."""
        if len(self._halves) >= HALVES_MAX:
            self._halves.clear()
        row = describe_partition(self._brokers, self._listener, self._version, 0, partition)
        data = encode_partition(row, self._version)
        found = self._halves[partition] = (data[:PARTITION_INDEX_POSITION], data[PARTITION_INDEX_POSITION + 4 :])
        return found


def describe_topic(image: MetadataImage, listener: str, version: int, topic: TopicImage) -> MetadataResponseTopic:
    partitions = [
        describe_partition(image.brokers, listener, version, index, partition)
        for index, partition in enumerate(topic.partitions)
    ]
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions
    )


def describe_partition(
    brokers: Mapping[int, BrokerImage], listener: str, version: int, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    leader, error = reachable_leader(brokers, listener, version, partition)
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=reachable_isr(brokers, listener, partition),
        offline_replicas=offline_replicas(brokers, listener, partition),
    )


def missing_topic_error(image: MetadataImage, name: str) -> Error:
    """Return the error of a missing topic.

    A topic with an unreadable node exists: clients retry, and auto-creation skips it.
    """
    if tree.topic_path(name) in image.damaged:
        return Error.LEADER_NOT_AVAILABLE
    return Error.UNKNOWN_TOPIC_OR_PARTITION if topic_name_problem(name) is None else Error.INVALID_TOPIC_EXCEPTION


def reachable_leader(
    brokers: Mapping[int, BrokerImage], listener: str, version: int, partition: PartitionImage
) -> tuple[int, Error]:
    broker = brokers.get(partition.leader)
    if broker is None:
        return NO_LEADER, Error.LEADER_NOT_AVAILABLE
    if listener not in broker.endpoints:
        error = Error.LISTENER_NOT_FOUND if version >= LISTENER_ERROR_SINCE else Error.LEADER_NOT_AVAILABLE
        return NO_LEADER, error
    return partition.leader, Error.NONE


def reachable_controller(image: MetadataImage, cluster: ClusterMembership | None) -> int:
    """Return the controller; -1 while the next one is unknown or ZooKeeper is unreachable."""
    if cluster is not None and not cluster.has_session():
        return NO_CONTROLLER
    return image.controller_id if image.controller_id in image.brokers else NO_CONTROLLER


def offline_replicas(brokers: Mapping[int, BrokerImage], listener: str, partition: PartitionImage) -> list[int]:
    """Return the replicas on brokers that are down or lack this listener. Without a leader this includes in-sync
    replicas: only a failed log directory prevents an in-sync replica on a live broker from leading.
    """
    without_leader = partition.isr if partition.leader == NO_LEADER else ()
    return [
        replica
        for replica in partition.replicas
        if replica in without_leader or replica not in brokers or listener not in brokers[replica].endpoints
    ]


def reachable_isr(brokers: Mapping[int, BrokerImage], listener: str, partition: PartitionImage) -> list[int]:
    """Return the ISR without offline replicas.

    As in Kafka, these stay eligible to lead but are not shown as in sync.
    """
    if partition.leader != NO_LEADER:
        return list(partition.isr)
    offline = offline_replicas(brokers, listener, partition)
    return [replica for replica in partition.isr if replica not in offline]


# ---- encoding


def encode_response(response: MetadataResponse, topics: list[bytes], version: int) -> EncodedBody:
    """Return a response whose own topics are followed by encoded topics."""
    own = [encode_topic(topic, version) for topic in response.topics]
    response.topics = []
    return EncodedBody(insert_rows(encode(response, version), own + topics, response_tail_bytes(version), version))


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """Return the bytes of one topic inside a response: the difference between a response with and without it."""
    with_it = encode(MetadataResponse(topics=[topic]), version)
    return added_bytes(empty_response(version), with_it, response_tail_bytes(version))


def encode_partition(partition: MetadataResponsePartition, version: int) -> bytes:
    """Return the bytes of one partition inside a topic."""
    with_it = encode_topic(MetadataResponseTopic(name="", partitions=[partition]), version)
    return added_bytes(empty_topic(version), with_it, topic_tail_bytes(version))


@cache
def empty_topic(version: int) -> bytes:
    return encode_topic(MetadataResponseTopic(name=""), version)


@cache
def empty_response(version: int) -> bytes:
    return bytes(encode(MetadataResponse(), version))


def added_bytes(without: bytes | bytearray, with_one: bytes | bytearray, tail: int) -> bytes:
    """Return the bytes that the first element of an array adds before the last `tail` bytes."""
    return bytes(with_one[len(without) - tail : len(with_one) - tail])


def insert_rows(body: bytes | bytearray, rows: list[bytes], tail: int, version: int) -> bytes:
    """Return the message with these rows in the empty array before the last `tail` bytes."""
    end = len(body) - tail
    count_at = end - len(encode_count(0, version))
    return b"".join((body[:count_at], encode_count(len(rows), version), *rows, body[end:]))


def response_tail_bytes(version: int) -> int:
    """Return the number of bytes after the topics: authorized operations (v8-10), an error (v13), tags."""
    operations = 4 if 8 <= version <= 10 else 0
    error = 2 if version >= 13 else 0
    return operations + error + (1 if version >= METADATA.flexible_since else 0)


def topic_tail_bytes(version: int) -> int:
    """Return the number of bytes after the partitions of a topic: its authorized operations (v8), tags."""
    return (4 if version >= 8 else 0) + (1 if version >= METADATA.flexible_since else 0)


def encode_count(count: int, version: int) -> bytes:
    return bytes(uvarint(count + 1)) if version >= METADATA.flexible_since else count.to_bytes(4, "big")
