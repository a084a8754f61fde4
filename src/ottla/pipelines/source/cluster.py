"""What a query must know of a cluster: which partitions there are, where they start and end, what lies at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.errors import BadPropertyError, ClientError, refusal
from ottla.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from ottla.client.opening import open_client
from ottla.pipelines.source.bounds import EARLIEST, LATEST, Offsets
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.source.options import Options, Subscription
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

CLIENT_ID = "ottla-spark"
PATIENCE_MS = 20_000  # for a broker that has been there before: it may be restarting
ABSENT = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION})

R = TypeVar("R")


class Cluster(Protocol):
    """The questions; each answer is about partitions that exist."""

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """The partitions that exist at the moment, sorted; topics that do not exist have none."""
        ...

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that partitions() told last, as far as they are known: each topic made has its own."""
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; None where no record is that late."""
        ...

    def close(self) -> None: ...


def open_cluster(options: Options) -> Cluster:
    """Raises SourceError if the options say nothing of which a client can be made."""
    try:
        return WireCluster(options)
    except BadPropertyError as problem:
        raise SourceError(str(problem)) from None


class WireCluster:
    """Asks through our own wire client."""

    def __init__(self, options: Options) -> None:
        self.client = open_client(options.bootstrap, options.properties, CLIENT_ID)
        self.retries = options.retries
        self.retry_interval_s = options.retry_interval_ms / 1000
        self.isolation_level = READ_COMMITTED if options.is_committed_only else READ_UNCOMMITTED
        self._topic_ids: dict[str, str] = {}

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        names = {partition.topic for partition in subscription.partitions} or set(subscription.topics)
        wanted = None if subscription.pattern else [MetadataRequestTopic(name=name) for name in sorted(names)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self._ask(lambda: self.client.call(request, MetadataResponse, _check_metadata))
        found = [
            TopicPartition(topic.name or "", item.partition_index)
            for topic in answer.topics
            if not topic.error_code and not (subscription.pattern and topic.is_internal)
            for item in topic.partitions
        ]
        partitions = sorted(chosen(subscription, found))
        wanted_topics = {partition.topic for partition in partitions}
        self._topic_ids = {
            topic.name: str(topic.topic_id)
            for topic in answer.topics
            if topic.name in wanted_topics and topic.topic_id.int  # brokers before 2.8 know none
        }
        return partitions

    def topic_ids(self) -> dict[str, str]:
        return self._topic_ids

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(partitions, EARLIEST)

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._list(partitions, LATEST)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for time_ms in set(times_ms.values()):
            asked = [partition for partition, wanted in times_ms.items() if wanted == time_ms]
            offsets = self._list(asked, time_ms)
            found |= {partition: offset if offset >= 0 else None for partition, offset in offsets.items()}
        return found

    def _list(self, partitions: Iterable[TopicPartition], time: int) -> Offsets:
        wanted = list(partitions)
        if not wanted:
            return {}
        return self._ask(lambda: self._list_once(wanted, time))

    def _list_once(self, wanted: list[TopicPartition], time: int) -> Offsets:
        found, failures = list_offsets(self.client, wanted, time, self.isolation_level)
        for partition, problem in failures.items():
            if problem.error not in ABSENT:  # deleted since we knew of it: whoever asked will miss it
                raise ClientError(f"the offsets of {partition} cannot be had: {problem}", problem.error)
        return {partition: answer.offset for partition, answer in found.items()}

    def _ask(self, question: Callable[[], R]) -> R:
        """Ask, and again after trouble that may pass; only a cluster that has answered before gets patience."""
        for attempt in range(self.retries + 1):
            try:
                answer = question()
            except ClientError as problem:
                if attempt == self.retries or not _may_pass(problem):
                    raise SourceError(str(problem)) from None
                self.client.close()
                self.client.sleep(self.retry_interval_s)
            else:
                self.client.patience_ms = PATIENCE_MS
                return answer
        raise AssertionError("the last attempt answers or raises")

    def close(self) -> None:
        self.client.close()

    def __repr__(self) -> str:
        return f"<WireCluster {self.client!r}>"


def chosen(subscription: Subscription, existing: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the existing partitions that are subscribed to."""
    if subscription.partitions:
        return [partition for partition in existing if partition in subscription.partitions]
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return [partition for partition in existing if pattern.fullmatch(partition.topic)]
    return [partition for partition in existing if partition.topic in subscription.topics]


def _check_metadata(answer: MetadataResponse) -> None:
    for topic in answer.topics:
        if topic.error_code and topic.error_code not in ABSENT:
            raise refusal(topic.error_code, f"topic {topic.name}: {refusal(topic.error_code)}")


def _may_pass(problem: ClientError) -> bool:
    return problem.is_retriable or problem.error is Error.BROKER_NOT_AVAILABLE
