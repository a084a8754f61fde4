"""Partition reassignments (KIP-455) and leader elections (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)


class Reassignment(NamedTuple):
    """A reassignment in progress: all replicas, added ones and removed ones."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        return [replica for replica in self.replicas if replica not in self.removing]


def list_reassignments(
    client: Client, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The reassignments in progress, of all partitions or of these."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in numbers_by_topic(sorted(partitions)).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=client.timeout_ms, topics=topics)

    def check(answer: ListPartitionReassignmentsResponse) -> None:
        raise_for_error(answer.error_code, answer.error_message)

    answer = client.call_controller(request, ListPartitionReassignmentsResponse, check)
    return {
        TopicPartition(topic.name, item.partition_index): Reassignment(
            item.replicas, item.adding_replicas, item.removing_replicas
        )
        for topic in answer.topics
        for item in topic.partitions
    }


def alter_reassignments(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
) -> dict[TopicPartition, BrokerError]:
    """Assign new replicas to partitions; None cancels a reassignment. Returns the errors."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=as_list(wanted[TopicPartition(name, number)]))
                for number in numbers
            ],
        )
        for name, numbers in numbers_by_topic(sorted(wanted)).items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=client.timeout_ms, allow_replication_factor_change=may_change_factor, topics=topics
    )

    def check(answer: AlterPartitionReassignmentsResponse) -> None:
        raise_for_error(answer.error_code, answer.error_message)

    answer = client.call_controller(request, AlterPartitionReassignmentsResponse, check)
    return {
        TopicPartition(topic.name, item.partition_index): error_from_code(item.error_code, item.error_message)
        for topic in answer.responses
        for item in topic.partitions
        if item.error_code
    }


def numbers_by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the given order."""
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found


def as_list(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def reassignments_of(client: Client, topics: Iterable[Topic]) -> dict[TopicPartition, Reassignment]:
    """The reassignments of these topics; empty if the cluster does not support or allow the request."""
    partitions = [TopicPartition(topic.name, item.number) for topic in topics for item in topic.partitions]
    if not partitions or not client.supports(ListPartitionReassignmentsRequest):
        return {}
    try:
        return list_reassignments(client, partitions)
    except BrokerError:
        return {}


# ---- leader elections
class Election(IntEnum):
    """The kind of election, by its number on the wire: the preferred replica, or any that is alive."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    client: Client, kind: Election, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, BrokerError | None]:
    """The outcome of each partition, None for success; for all partitions (None) only those that needed an election."""
    wanted = None
    if partitions is not None:
        wanted = [
            TopicPartitions(topic=name, partitions=numbers) for name, numbers in numbers_by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=client.timeout_ms)

    def check(answer: ElectLeadersResponse) -> None:
        raise_for_error(answer.error_code)

    answer = client.call_controller(request, ElectLeadersResponse, check)
    return {
        TopicPartition(topic.topic, item.partition_id): error_from_code(item.error_code, item.error_message)
        if item.error_code
        else None
        for topic in answer.replica_election_results
        for item in topic.partition_result
    }
