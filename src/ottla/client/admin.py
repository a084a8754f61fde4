"""What administrators ask of a cluster, as plain calls: topics and their settings.

Each method sends one kind of request, turns error codes into ClientError, and returns small values of its own, so
that nobody above this file needs to know the wire messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import refusal
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from ottla.client.configs import Config

CLUSTER_DEFAULT = -1  # as a number of partitions or replicas: the cluster decides
PARTITIONS_PER_ANSWER = 2000


class Partition(NamedTuple):
    """One partition; the lists of eligible leaders are None where the broker does not tell (KIP-966)."""

    number: int
    leader: int  # -1: none
    replicas: list[int]
    isr: list[int]
    eligible: list[int] | None = None
    last_eligible: list[int] | None = None


class Topic(NamedTuple):
    """One topic with its partitions in order."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: list[Partition]


class Created(NamedTuple):
    """What became of a new topic; -1 where an old broker does not tell."""

    partitions: int
    replication_factor: int


class Admin:
    """Administration over one client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def topics(self, names: Sequence[str] | None = None, *, is_decisive: bool = False) -> list[Topic]:
        """All topics, or those of the given names that exist, sorted by name; as the controller knows them, on request:
        others hear of changes a moment later.
        """
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        rows = self._metadata(wanted, is_decisive=is_decisive)
        return sorted(_from_metadata(topic) for topic in rows if topic.error_code in _STILL_A_TOPIC)

    def topics_by_id(self, topic_ids: Sequence[UUID]) -> list[Topic]:
        """The topics of the given ids that exist."""
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        return [_from_metadata(topic) for topic in self._metadata(wanted) if not topic.error_code]

    def topic(self, name: str, *, may_create: bool = False, needs_leaders: bool = False) -> Topic:
        """One topic, on request one with a leader for each partition; asking makes it, if both sides want that."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=may_create)
        answer = self.client.call(request, MetadataResponse, _check_leaders if needs_leaders else None)
        _check_topic(answer)
        return _from_metadata(answer.topics[0])

    def describe(self, names: Sequence[str], partitions_per_answer: int = PARTITIONS_PER_ANSWER) -> list[Topic]:
        """Topics with all that the cluster tells about their partitions."""
        from ottla.client.topic_partitions import describe_topic_partitions, is_supported  # noqa: PLC0415 (start-up)

        if not is_supported(self.client):
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
        """Create one topic; the numbers may be left to the cluster, or to an assignment partition -> brokers."""
        from ottla.protocol.messages import topics as wire  # noqa: PLC0415 (most calls do not need it)

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
        """Give a topic more partitions; `assignment` names the brokers of each new one."""
        from ottla.protocol.messages import topics as wire  # noqa: PLC0415

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
        """Delete topics; one refusal does not keep the others from going."""
        from ottla.protocol.messages import topics as wire  # noqa: PLC0415

        request = wire.DeleteTopicsRequest(
            topics=[wire.DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=self.client.timeout_ms,
        )
        self.client.call_controller(request, wire.DeleteTopicsResponse, lambda answer: _check(answer.responses))

    def topic_configs(self, names: Iterable[str], keys: Sequence[str] | None = None) -> dict[str, list[Config]]:
        """The settings of topics, in the order in which the broker lists them; only `keys` if given."""
        from ottla.client.configs import Resource, describe_configs  # noqa: PLC0415 (most calls do not need it)

        return describe_configs(self.client, Resource.TOPIC, names, keys=keys)

    def _metadata(
        self, wanted: list[MetadataRequestTopic] | None, *, is_decisive: bool = False
    ) -> list[MetadataResponseTopic]:
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        ask = self.client.call_controller if is_decisive else self.client.call
        return ask(request, MetadataResponse).topics


# A topic without a leader somewhere is still a topic.
_STILL_A_TOPIC = frozenset({Error.NONE, Error.LEADER_NOT_AVAILABLE})


class _Result(Protocol):
    """What the items of most answers have in common."""

    error_code: int
    error_message: str | None


def _check(results: Iterable[_Result]) -> None:
    for result in results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)


def _check_topic(answer: MetadataResponse) -> None:
    if len(answer.topics) != 1:
        raise refusal(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if answer.topics[0].error_code not in _STILL_A_TOPIC:
        raise refusal(answer.topics[0].error_code)


def _check_leaders(answer: MetadataResponse) -> None:
    _check_topic(answer)
    (topic,) = answer.topics
    for code in (topic.error_code, *(partition.error_code for partition in topic.partitions)):
        if code and code != Error.REPLICA_NOT_AVAILABLE:
            raise refusal(code)


def _from_metadata(topic: MetadataResponseTopic) -> Topic:
    partitions = sorted((_partition(item) for item in topic.partitions), key=lambda partition: partition.number)
    return Topic(topic.name or "", topic.topic_id, topic.is_internal, partitions)


def _partition(item: MetadataResponsePartition) -> Partition:
    return Partition(item.partition_index, item.leader_id, item.replica_nodes, item.isr_nodes)
