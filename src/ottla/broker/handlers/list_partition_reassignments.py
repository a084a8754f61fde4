"""ListPartitionReassignments (key 46), v0: the moves that are under way (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.controller.decisions.reassignment import moves
from ottla.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return ListPartitionReassignmentsResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    names = wanted = None
    if request.topics is not None:
        names = list(dict.fromkeys(topic.name for topic in request.topics))
        wanted = {TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for move in moves(context.broker.image, names):
        if wanted is not None and move.partition not in wanted:
            continue
        name = move.partition
        row = OngoingPartitionReassignment(
            partition_index=name.partition,
            replicas=list(move.replicas),
            adding_replicas=list(move.adding),
            removing_replicas=list(move.removing),
        )
        topics.setdefault(name.topic, OngoingTopicReassignment(name=name.topic)).partitions.append(row)
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def refuse(
    _request: ListPartitionReassignmentsRequest, error: Error, message: str | None, _: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error, error_message=message)
