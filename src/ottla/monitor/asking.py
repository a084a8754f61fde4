"""What a monitor asks brokers, in bounded pieces, through the wire client. Blocking: for a thread of its own.

Rules:
1. Nobody waits long for one broker: a question has TIMEOUT_MS.
2. Once the cluster is known any of its brokers will do: the one that was named first may be the one that is away.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.addresses import Address
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError, refusal
from ottla.client.offsets import CONSUMER, LATEST, READ_UNCOMMITTED, by_topic
from ottla.monitor.facts import ClusterFacts, FolderFacts, PartitionFacts
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5_000
PARTITIONS_A_QUESTION: Final = 1_000
TOPICS_A_QUESTION: Final = 100
MIN_ISR: Final = "min.insync.replicas"
# A topic without a leader somewhere is still a topic.
_STILL_A_TOPIC: Final = (Error.NONE, Error.LEADER_NOT_AVAILABLE, Error.REPLICA_NOT_AVAILABLE)

T = TypeVar("T")


class Asker:
    """Questions to one cluster; not for use by several threads at once."""

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self._make_client = make_client
        self._client: Client | None = None
        self._first: list[Address] = []

    def describe(self) -> ClusterFacts:
        """Raises ClientError."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self._open().call(request, MetadataResponse, _check)
        self._remember(answer)
        topics = [topic for topic in answer.topics if topic.name and topic.error_code in _STILL_A_TOPIC]
        return ClusterFacts(
            answer.cluster_id or "",
            answer.controller_id,
            {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers},
            {topic.name: topic.topic_id for topic in topics if topic.name},
            tuple(partition for topic in topics for partition in _partitions(topic)),
        )

    def ends(self, leader: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end that this broker leads; those that it does not lead any more are missing.

        Raises ClientError.
        """
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(
            replica_id=CONSUMER, isolation_level=READ_UNCOMMITTED, topics=topics, timeout_ms=TIMEOUT_MS
        )
        return {
            TopicPartition(topic.name, item.partition_index): item.offset
            for topic in self._open().call_broker(leader, request, ListOffsetsResponse).topics
            for item in topic.partitions
            if not item.error_code
        }

    def folders(self, brokers: Iterable[int]) -> list[FolderFacts]:
        """The log folders of those brokers that answer."""
        found: list[FolderFacts] = []
        for broker in brokers:
            try:
                request = DescribeLogDirsRequest(topics=[])  # no topic: only the folders are wanted
                answer = self._open().call_broker(broker, request, DescribeLogDirsResponse)
            except ClientError as trouble:
                logger.debug("broker %d was not asked for its folders: %s", broker, trouble)
                continue
            found += [
                FolderFacts(broker, item.log_dir, bool(item.error_code), item.total_bytes, item.usable_bytes)
                for item in answer.results
            ]
        return found

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """How many replicas must be in sync, for those topics that we may ask about."""
        found: dict[str, int] = {}
        for piece in pieces(topics, TOPICS_A_QUESTION):
            try:
                described = describe_configs(self._open(), Resource.TOPIC, piece)
            except ClientError as trouble:  # one that was deleted a moment ago spoils its neighbours' answer
                logger.debug("the settings of %d topics were not told: %s", len(piece), trouble)
                continue
            for name, configs in described.items():
                value = next((config.value for config in configs if config.name == MIN_ISR), None)
                if value is not None and value.isdecimal():
                    found[name] = int(value)
        return found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> Client:
        if self._client is None:
            self._client = self._make_client()
            self._client.timeout_ms = min(self._client.timeout_ms, TIMEOUT_MS)
            self._client.patience_ms = 0
            self._first = list(self._client.bootstrap)
        return self._client

    def _remember(self, answer: MetadataResponse) -> None:
        client = self._open()
        client.metadata = MetadataResponse(brokers=answer.brokers, controller_id=answer.controller_id)
        known = [Address(broker.host, broker.port) for broker in answer.brokers]
        client.bootstrap = [*self._first, *(address for address in known if address not in self._first)]

    def __repr__(self) -> str:
        return f"<Asker {self._client!r}>"


def by_leader(facts: ClusterFacts, wanted: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """Whom to ask about which partitions; those without a leader are left out."""
    leaders = {(item.topic, item.partition): item.leader for item in facts.partitions}
    found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition in wanted:
        leader = leaders.get(partition)
        if leader is not None and leader in facts.brokers:
            found[leader].append(partition)
    return dict(found)


def pieces(items: Sequence[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece


def _check(answer: MetadataResponse) -> None:
    if answer.error_code:
        raise refusal(answer.error_code)


def _partitions(topic: MetadataResponseTopic) -> Iterator[PartitionFacts]:
    for item in topic.partitions:
        yield PartitionFacts(
            topic.name or "", item.partition_index, item.leader_id, tuple(item.replica_nodes), tuple(item.isr_nodes)
        )
