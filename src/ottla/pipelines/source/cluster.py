"""Metadata and offsets that a query needs: partitions, their first and last offsets, and offsets for times.

Also commits a query's progress as a consumer group for lag tools. The group has no members: the broker rejects the
commit while a group has members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from ottla.base.errors import Error
from ottla.base.names import BOOKKEEPING_TOPICS, TopicPartition
from ottla.base.regular_expressions import compile_java_pattern
from ottla.client.client import open_client
from ottla.client.errors import BadPropertyError, ClientError, error_from_code
from ottla.client.groups import commit_offsets
from ottla.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.source.options import EARLIEST, LATEST, Offsets, Options, Subscription
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

CLIENT_ID = "ottla-spark"
CONNECT_RETRY_MS = 20_000  # after the first success: the broker may be restarting
MISSING_TOPIC_ERRORS = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION})

R = TypeVar("R")

TIMEOUT_MS = 10_000


class Cluster(Protocol):
    """Metadata of a cluster; every answer covers existing partitions only."""

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """The existing partitions, sorted; a topic that does not exist has none."""
        ...

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics of the last partitions() call, if known. A recreated topic has a new id."""
        ...

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; None if no record is that late."""
        ...

    def close(self) -> None: ...


def open_cluster(options: Options) -> Cluster:
    """Raises SourceError if the options do not describe a client."""
    try:
        return KafkaCluster(options)
    except BadPropertyError as problem:
        raise SourceError(str(problem)) from None


class KafkaCluster:
    """Cluster metadata read with our own wire client."""

    def __init__(self, options: Options) -> None:
        self.client = open_client(options.bootstrap, options.properties, CLIENT_ID)
        self.retries = options.retries
        self.retry_interval_s = options.retry_interval_ms / 1000
        self.isolation_level = READ_COMMITTED if options.is_read_committed else READ_UNCOMMITTED
        self._topic_ids: dict[str, str] = {}

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        names = {partition.topic for partition in subscription.partitions} or set(subscription.topics)
        wanted = None if subscription.pattern else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self._call_with_retries(lambda: self.client.call(request, MetadataResponse, _check_metadata))
        found = [
            TopicPartition(topic.name or "", item.partition_index)
            for topic in answer.topics
            if not topic.error_code
            and not (subscription.pattern and (topic.is_internal or topic.name in BOOKKEEPING_TOPICS))
            for item in topic.partitions
        ]
        partitions = sorted(filter_subscribed(subscription, found))
        wanted_topics = {partition.topic for partition in partitions}
        self._topic_ids = {
            topic.name: str(topic.topic_id)
            for topic in answer.topics
            if topic.name in wanted_topics and topic.topic_id.int  # brokers before 2.8 have no topic ids
        }
        return partitions

    def topic_ids(self) -> dict[str, str]:
        return self._topic_ids

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list_offsets(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list_offsets(partitions, LATEST)

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for time_ms in set(times_ms.values()):
            asked = [partition for partition, wanted in times_ms.items() if wanted == time_ms]
            offsets = self._list_offsets(asked, time_ms)
            found |= {partition: offset if offset >= 0 else None for partition, offset in offsets.items()}
        return found

    def _list_offsets(self, partitions: Iterable[TopicPartition], time: int) -> Offsets:
        wanted = list(partitions)
        if not wanted:
            return {}
        return self._call_with_retries(lambda: self._list_offsets_once(wanted, time))

    def _list_offsets_once(self, wanted: list[TopicPartition], time: int) -> Offsets:
        found, failures = list_offsets(self.client, wanted, time, self.isolation_level)
        for partition, problem in failures.items():
            # the topic was deleted meanwhile: the caller reports its absence
            if problem.error not in MISSING_TOPIC_ERRORS:
                raise ClientError(f"the offsets of {partition} cannot be read: {problem}", problem.error)
        return {partition: answer.offset for partition, answer in found.items()}

    def _call_with_retries(self, call: Callable[[], R]) -> R:
        """Retry transient errors. Only a cluster that has answered before gets the longer connect timeout."""
        for attempt in range(self.retries + 1):
            try:
                answer = call()
            except ClientError as problem:
                if attempt == self.retries or not _is_retriable(problem):
                    raise SourceError(str(problem)) from None
                self.client.close()
                self.client.sleep(self.retry_interval_s)
            else:
                self.client.connect_retry_ms = CONNECT_RETRY_MS
                return answer
        raise AssertionError("the last attempt answers or raises")

    def close(self) -> None:
        self.client.close()

    def __repr__(self) -> str:
        return f"<KafkaCluster {self.client!r}>"


def filter_subscribed(subscription: Subscription, existing: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the existing partitions that match the subscription."""
    if subscription.partitions:
        return [partition for partition in existing if partition in subscription.partitions]
    if subscription.pattern is not None:
        pattern = compile_java_pattern(subscription.pattern)
        return [partition for partition in existing if pattern.fullmatch(partition.topic)]
    return [partition for partition in existing if partition.topic in subscription.topics]


def _check_metadata(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        if topic.error_code and topic.error_code not in MISSING_TOPIC_ERRORS:
            raise error_from_code(topic.error_code, f"topic {topic.name}: {error_from_code(topic.error_code)}")


def _is_retriable(problem: ClientError) -> bool:
    return problem.is_retriable or problem.error is Error.BROKER_NOT_AVAILABLE


def commit_progress(
    bootstrap: str,
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Commit {topic: {partition: offset}} for a group without members. Raises ClientError.

    `properties` are those of a Kafka client: connection and login.
    """
    wanted = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
    if not wanted:
        return
    with open_client(bootstrap, properties or {}, CLIENT_ID, timeout_ms=TIMEOUT_MS) as client:
        commit_offsets(client, group, wanted)
