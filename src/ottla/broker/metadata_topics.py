"""Topics as Metadata tells them, encoded once and kept: a client that asks for ten thousand partitions gets copies.

A topic's bytes depend on the version, on the listener that the client came through (a leader without that listener is
of no use to it) and on which brokers are alive. They are made at the first question and thrown away with the image.
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
    from ottla.controller.cluster.membership import Membership

METADATA: Final = APIS[3]
INDEX_AT: Final = 2  # where a partition has its number, in every version: behind the error code
HALVES_MAX: Final = 10_000
LISTENER_ERROR_SINCE: Final = 6  # older versions know no error for a leader without the client's listener


class MetadataTopics:
    """The encoded topics of one image after the other; belongs to one broker."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._kept: dict[tuple[int, str], KeptTopics] = {}

    def __repr__(self) -> str:
        return f"<MetadataTopics of {self._image!r}: {sum(len(kept.topics) for kept in self._kept.values())} kept>"

    def encoded(self, image: MetadataImage, listener: str, version: int, topics: Iterable[TopicImage]) -> list[bytes]:
        """The bytes of topics of this image, in their order."""
        self._follow(image)
        kept = self._kept.get((version, listener))
        if kept is None:
            kept = self._kept[version, listener] = KeptTopics(image.brokers, listener, version)
        return [kept.topics.get(topic.name) or kept.encode(topic) for topic in topics]

    def _follow(self, image: MetadataImage) -> None:
        """Forget what the new image says otherwise; all of it when brokers have come or gone."""
        old = self._image
        if old is image:
            return
        self._image = image
        if old is None or old.brokers is not image.brokers:
            self._kept.clear()
            return
        changed = image.changed_topics_since(old)
        for kept in self._kept.values():
            for name in changed:
                kept.topics.pop(name, None)


class KeptTopics:
    """Topics in one version, for one listener, while the same brokers are alive."""

    def __init__(self, brokers: Mapping[int, BrokerImage], listener: str, version: int) -> None:
        self.topics: dict[str, bytes] = {}
        self._brokers = brokers
        self._listener = listener
        self._version = version
        self._halves: dict[PartitionImage, tuple[bytes, bytes]] = {}

    def encode(self, topic: TopicImage) -> bytes:
        """Partitions that differ only in their number are encoded once and numbered afterwards."""
        halves = self._halves
        rows = []
        for index, partition in enumerate(topic.partitions):
            found = halves.get(partition) or self._encode_halves(partition)
            rows.append(found[0] + index.to_bytes(4, "big") + found[1])
        row = MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal)
        version = self._version
        data = with_rows(encode_topic(row, version), rows, topic_tail_bytes(version), version)
        self.topics[topic.name] = data
        return data

    def _encode_halves(self, partition: PartitionImage) -> tuple[bytes, bytes]:
        """What stands before and after the number of a partition."""
        if len(self._halves) >= HALVES_MAX:
            self._halves.clear()
        row = describe_partition(self._brokers, self._listener, self._version, 0, partition)
        data = encode_partition(row, self._version)
        found = self._halves[partition] = (data[:INDEX_AT], data[INDEX_AT + 4 :])
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


def absence(image: MetadataImage, name: str) -> Error:
    """Why a topic is not there. One whose node cannot be read exists: clients ask again, and nobody creates it."""
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


def reachable_controller(image: MetadataImage, cluster: Membership | None) -> int:
    """The controller, unless it is gone and the next one is not known yet, or nobody can know: ZooKeeper is away."""
    if cluster is not None and not cluster.is_in_touch():
        return NO_CONTROLLER
    return image.controller_id if image.controller_id in image.brokers else NO_CONTROLLER


def offline_replicas(brokers: Mapping[int, BrokerImage], listener: str, partition: PartitionImage) -> list[int]:
    """Replicas on brokers that are gone, or have no such listener. Without a leader also those that are in sync: only a
    failed folder keeps a replica that is in sync, and whose broker is alive, from leading."""
    without_leader = partition.isr if partition.leader == NO_LEADER else ()
    return [
        replica
        for replica in partition.replicas
        if replica in without_leader or replica not in brokers or listener not in brokers[replica].endpoints
    ]


def reachable_isr(brokers: Mapping[int, BrokerImage], listener: str, partition: PartitionImage) -> list[int]:
    """As Kafka shows it: a replica that is offline is eligible to lead, but not in sync any more."""
    if partition.leader != NO_LEADER:
        return list(partition.isr)
    offline = offline_replicas(brokers, listener, partition)
    return [replica for replica in partition.isr if replica not in offline]


# ---- bytes


def encode_response(response: MetadataResponse, topics: list[bytes], version: int) -> EncodedBody:
    """A response whose own topics are followed by topics that are bytes already."""
    own = [encode_topic(topic, version) for topic in response.topics]
    response.topics = []
    return EncodedBody(with_rows(encode(response, version), own + topics, response_tail_bytes(version), version))


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """One topic inside a response: what a response with it has more than one without."""
    with_it = encode(MetadataResponse(topics=[topic]), version)
    return added_bytes(empty_response(version), with_it, response_tail_bytes(version))


def encode_partition(partition: MetadataResponsePartition, version: int) -> bytes:
    """One partition inside a topic."""
    with_it = encode_topic(MetadataResponseTopic(name="", partitions=[partition]), version)
    return added_bytes(empty_topic(version), with_it, topic_tail_bytes(version))


@cache
def empty_topic(version: int) -> bytes:
    return encode_topic(MetadataResponseTopic(name=""), version)


@cache
def empty_response(version: int) -> bytes:
    return bytes(encode(MetadataResponse(), version))


def added_bytes(without: bytes | bytearray, with_one: bytes | bytearray, tail: int) -> bytes:
    """What an array's first element has added in front of the last `tail` bytes."""
    return bytes(with_one[len(without) - tail : len(with_one) - tail])


def with_rows(body: bytes | bytearray, rows: list[bytes], tail: int, version: int) -> bytes:
    """Fill the empty array that stands in front of the last `tail` bytes."""
    end = len(body) - tail
    count_at = end - len(encode_count(0, version))
    return b"".join((body[:count_at], encode_count(len(rows), version), *rows, body[end:]))


def response_tail_bytes(version: int) -> int:
    """What follows the topics: the cluster's operations (v8-10), an error (v13), the tags of flexible versions."""
    operations = 4 if 8 <= version <= 10 else 0
    error = 2 if version >= 13 else 0
    return operations + error + (1 if version >= METADATA.flexible_since else 0)


def topic_tail_bytes(version: int) -> int:
    """What follows a topic's partitions: its operations (v8), the tags of flexible versions."""
    return (4 if version >= 8 else 0) + (1 if version >= METADATA.flexible_since else 0)


def encode_count(count: int, version: int) -> bytes:
    return bytes(uvarint(count + 1)) if version >= METADATA.flexible_since else count.to_bytes(4, "big")
