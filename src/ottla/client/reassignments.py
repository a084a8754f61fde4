"""Replicas that move between brokers (KIP-455): ask for it, cancel it, see what is under way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Topic
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


class Reassignment(NamedTuple):
    """A move under way: everybody who holds or shall hold the partition, who comes, who goes."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        return [replica for replica in self.replicas if replica not in self.removing]


def list_reassignments(
    client: Client, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """What is under way, of all partitions or of these."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in numbers_by_topic(sorted(partitions)).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=client.timeout_ms, topics=topics)

    def check(answer: ListPartitionReassignmentsResponse) -> None:
        if answer.error_code:
            raise refusal(answer.error_code, answer.error_message)

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
) -> dict[TopicPartition, RefusedError]:
    """Give partitions other replicas; None ends a move. What the cluster refuses is in the answer."""
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
        if answer.error_code:
            raise refusal(answer.error_code, answer.error_message)

    answer = client.call_controller(request, AlterPartitionReassignmentsResponse, check)
    return {
        TopicPartition(topic.name, item.partition_index): refusal(item.error_code, item.error_message)
        for topic in answer.responses
        for item in topic.partitions
        if item.error_code
    }


def numbers_by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    """In the order in which they are given."""
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found


def as_list(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def moves_of(client: Client, topics: Iterable[Topic]) -> dict[TopicPartition, Reassignment]:
    """What is under way in these topics; nothing where the cluster does not tell or must not tell us."""
    partitions = [TopicPartition(topic.name, item.number) for topic in topics for item in topic.partitions]
    if not partitions or not client.supports(ListPartitionReassignmentsRequest):
        return {}
    try:
        return list_reassignments(client, partitions)
    except RefusedError:
        return {}
