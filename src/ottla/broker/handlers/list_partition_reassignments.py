"""ListPartitionReassignments (key 46), v0: reassignments in progress (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.offload import TimeSlice, in_slices
from ottla.controller.decisions.reassignment import ongoing_reassignments
from ottla.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return ListPartitionReassignmentsResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    names = wanted = None
    if request.topics is not None:
        turn = TimeSlice()
        names = list(dict.fromkeys([topic.name async for topic in in_slices(request.topics, turn)]))
        wanted = {
            TopicPartition(topic.name, number)
            async for topic in in_slices(request.topics, turn)
            async for number in in_slices(topic.partition_indexes, turn)
        }
    topics: dict[str, OngoingTopicReassignment] = {}
    async for move in in_slices(ongoing_reassignments(context.broker.image, names)):
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
