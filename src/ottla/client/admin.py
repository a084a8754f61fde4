"""Administration of topics: list, describe, create, grow, delete, and their settings.

Each method sends one kind of request, turns error codes into ClientError, and returns small values of its own, so that
callers need not know the wire messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.protocol.messages import topics as wire
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.topics import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsTopic,
)

if TYPE_CHECKING:
    from ottla.client.configs import Config

CLUSTER_DEFAULT = -1  # for the number of partitions or replicas: the cluster's default
PARTITIONS_PER_ANSWER = 2000


class Partition(NamedTuple):
    """One partition; the lists of eligible leaders are None if the broker does not return them (KIP-966)."""

    number: int
    leader: int  # -1: none
    replicas: list[int]
    isr: list[int]
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None


class Topic(NamedTuple):
    """One topic with its partitions in order."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: list[Partition]


class Created(NamedTuple):
    """A created topic; -1 where an old broker does not return the number."""

    partitions: int
    replication_factor: int


class Admin:
    """Administration through one client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def topics(self, names: Sequence[str] | None = None, *, from_controller: bool = False) -> list[Topic]:
        """All topics, or the existing ones of the given names, sorted by name. With `is_decisive` the controller is
        asked, because the other brokers receive changes a moment later.
        """
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        rows = self._metadata(wanted, is_decisive=from_controller)
        return sorted(_from_metadata(topic) for topic in rows if topic.error_code in _EXISTING_TOPIC_ERRORS)

    def topics_by_id(self, topic_ids: Sequence[UUID]) -> list[Topic]:
        """The existing topics of the given ids."""
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        return [_from_metadata(topic) for topic in self._metadata(wanted) if not topic.error_code]

    def topic(self, name: str, *, may_create: bool = False, needs_leaders: bool = False) -> Topic:
        """One topic; with `needs_leaders` every partition must have one; with `may_create` the broker may create it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=may_create)
        answer = self.client.call(request, MetadataResponse, _check_leaders if needs_leaders else None)
        _check_topic(answer)
        return _from_metadata(answer.topics[0])

    def describe(self, names: Sequence[str], partitions_per_answer: int = PARTITIONS_PER_ANSWER) -> list[Topic]:
        """Topics with all details of their partitions."""

        if not supports_describe_topic_partitions(self.client):
            return self.topics(names)
        return list(describe_topic_partitions(self.client, names, partitions_per_answer))

    def live_brokers(self) -> list[int]:
        return [broker.node_id for broker in self.client.cluster().brokers]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Created:
        """Create one topic; partitions and replicas come from the cluster's defaults, the numbers, or an assignment."""
        topic = wire.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[
                wire.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in (assignment or {}).items()
            ],
            configs=[wire.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = wire.CreateTopicsRequest(
            topics=[topic], timeout_ms=self.client.timeout_ms, validate_only=validate_only
        )
        answer = self.client.call_controller(request, wire.CreateTopicsResponse, lambda answer: _check(answer.topics))
        return Created(answer.topics[0].num_partitions, answer.topics[0].replication_factor)

    def create_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Add partitions to a topic; `assignment` names the brokers of each new one."""
        new = None
        if assignment is not None:
            new = [wire.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignment]
        request = wire.CreatePartitionsRequest(
            topics=[wire.CreatePartitionsTopic(name=name, count=count, assignments=new)],
            timeout_ms=self.client.timeout_ms,
            validate_only=validate_only,
        )
        self.client.call_controller(request, wire.CreatePartitionsResponse, lambda answer: _check(answer.results))

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; if one is refused, the others are still deleted."""
        request = wire.DeleteTopicsRequest(
            topics=[wire.DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=self.client.timeout_ms,
        )
        self.client.call_controller(request, wire.DeleteTopicsResponse, lambda answer: _check(answer.responses))

    def topic_configs(self, names: Iterable[str], keys: Sequence[str] | None = None) -> dict[str, list[Config]]:
        """The settings of topics, in the broker's order; only `keys` if given."""
        from ottla.client.configs import Resource, describe_configs  # noqa: PLC0415 (most calls do not need it)

        return describe_configs(self.client, Resource.TOPIC, names, keys=keys)

    def _metadata(
        self, wanted: list[MetadataRequestTopic] | None, *, is_decisive: bool = False
    ) -> list[MetadataResponseTopic]:
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        ask = self.client.call_controller if is_decisive else self.client.call
        return ask(request, MetadataResponse).topics


# A topic with a partition without a leader is still listed.
_EXISTING_TOPIC_ERRORS = frozenset({Error.NONE, Error.LEADER_NOT_AVAILABLE})


class _Result(Protocol):
    """The common fields of the items of most responses."""

    error_code: int
    error_message: str | None


def _check(results: Iterable[_Result]) -> None:
    for result in results:
        raise_for_error(result.error_code, result.error_message)


def _check_topic(answer: MetadataResponse) -> None:
    if len(answer.topics) != 1:
        raise error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if answer.topics[0].error_code not in _EXISTING_TOPIC_ERRORS:
        raise error_from_code(answer.topics[0].error_code)


def _check_leaders(answer: MetadataResponse) -> None:
    _check_topic(answer)
    (topic,) = answer.topics
    for code in (topic.error_code, *(partition.error_code for partition in topic.partitions)):
        if code and code != Error.REPLICA_NOT_AVAILABLE:
            raise error_from_code(code)


def _from_metadata(topic: MetadataResponseTopic) -> Topic:
    partitions = sorted((_partition(item) for item in topic.partitions), key=lambda partition: partition.number)
    return Topic(topic.name or "", topic.topic_id, topic.is_internal, partitions)


def _partition(item: MetadataResponsePartition) -> Partition:
    return Partition(item.partition_index, item.leader_id, item.replica_nodes, item.isr_nodes)


# ---- many topics in one request; each topic succeeds or fails by itself
#
# If a response was lost, the request is repeated for the topics without an answer. Then "already exists" (or "no such
# topic") is the requested outcome, and not an error.
class NewTopic(NamedTuple):
    """-1: the cluster's default."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def create_topics(
    client: Client, wanted: Mapping[str, NewTopic], *, validate_only: bool = False
) -> dict[str, BrokerError]:
    def ask(names: Sequence[str]) -> Iterable[tuple[str, _Result]]:
        request = wire.CreateTopicsRequest(
            topics=[_creatable(name, wanted[name]) for name in names],
            timeout_ms=client.timeout_ms,
            validate_only=validate_only,
        )
        answer = client.call_controller(request, wire.CreateTopicsResponse)
        return ((result.name, result) for result in answer.topics)

    return _for_each(client, wanted, ask, None if validate_only else Error.TOPIC_ALREADY_EXISTS)


def create_partitions(
    client: Client, wanted: Mapping[str, int], *, validate_only: bool = False
) -> dict[str, BrokerError]:
    """Increase topics to these numbers of partitions."""

    def ask(names: Sequence[str]) -> Iterable[tuple[str, _Result]]:
        request = wire.CreatePartitionsRequest(
            topics=[wire.CreatePartitionsTopic(name=name, count=wanted[name]) for name in names],
            timeout_ms=client.timeout_ms,
            validate_only=validate_only,
        )
        answer = client.call_controller(request, wire.CreatePartitionsResponse)
        return ((result.name, result) for result in answer.results)

    # Kafka's error for a topic that has this number of partitions already.
    return _for_each(client, wanted, ask, None if validate_only else Error.INVALID_PARTITIONS)


def delete_topics(client: Client, wanted: Sequence[str]) -> dict[str, BrokerError]:
    def ask(names: Sequence[str]) -> Iterable[tuple[str, _Result]]:
        request = wire.DeleteTopicsRequest(
            topics=[wire.DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=client.timeout_ms,
        )
        answer = client.call_controller(request, wire.DeleteTopicsResponse)
        return ((result.name or "", result) for result in answer.responses)

    return _for_each(client, wanted, ask, Error.UNKNOWN_TOPIC_OR_PARTITION)


def _for_each(
    client: Client,
    wanted: Iterable[str],
    ask: Callable[[Sequence[str]], Iterable[tuple[str, _Result]]],
    already_done_error: Error | None,
) -> dict[str, BrokerError]:
    left = dict.fromkeys(wanted)
    refused: dict[str, BrokerError] = {}
    tries = 0

    def attempt() -> None:
        nonlocal tries
        client.cluster()  # cached before the request count is read: a retried call shows in the number of requests
        sent = client.requests
        try:
            results = ask(list(left))
        finally:  # also after a failed call: what it has sent may have been done
            tries += client.requests - sent
        again: BrokerError | None = None
        for name, result in results:
            problem = error_from_code(result.error_code, result.error_message) if result.error_code else None
            if problem is not None and problem.is_retriable:
                again = problem
                continue
            left.pop(name, None)
            if problem is not None and not (tries > 1 and problem.error is already_done_error):
                refused[name] = problem
        if again is not None:
            raise again

    if left:
        client.retry(attempt)
    return refused


def _creatable(name: str, topic: NewTopic) -> wire.CreatableTopic:
    return wire.CreatableTopic(
        name=name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[wire.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


# ---- DescribeTopicPartitions (KIP-966): partitions page by page, with the eligible leader replicas
UNKNOWN_TOPIC_ERRORS = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID})


def supports_describe_topic_partitions(client: Client) -> bool:
    return client.supports(DescribeTopicPartitionsRequest)


def describe_topic_partitions(client: Client, names: Sequence[str], partitions_per_answer: int) -> Iterator[Topic]:
    """The existing topics of the given names, sorted by name as the API requires."""
    left = sorted(names)
    cursor: Cursor | None = None
    current: Topic | None = None
    while left:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopic(name=name) for name in left],
            response_partition_limit=partitions_per_answer,
            cursor=cursor,
        )
        answer = client.call(request, DescribeTopicPartitionsResponse)
        for found in answer.topics:
            if found.error_code in UNKNOWN_TOPIC_ERRORS:
                continue
            raise_for_error(found.error_code)
            partitions = [_described_partition(item) for item in found.partitions]
            if current is not None and current.name == found.name:
                current.partitions.extend(partitions)  # the rest of a topic that was split at the end of the last page
                continue
            if current is not None:
                yield current
            current = Topic(found.name or "", found.topic_id, found.is_internal, partitions)
        if answer.next_cursor is None or (cursor is not None and _place(answer.next_cursor) <= _place(cursor)):
            break
        cursor = answer.next_cursor
        left = [name for name in left if name >= cursor.topic_name]
    if current is not None:
        yield current


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _described_partition(item: DescribeTopicPartitionsResponsePartition) -> Partition:
    return Partition(
        item.partition_index,
        item.leader_id,
        item.replica_nodes,
        item.isr_nodes,
        item.eligible_leader_replicas,
        item.last_known_elr,
    )
