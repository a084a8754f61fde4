"""AlterPartitionReassignments (key 45), v0-1: starts or cancels reassignments of replicas (KIP-455).

v1 the replication factor can be fixed (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.offload import TimeSlice, in_slices
from ottla.controller.decisions.reassignment import ReassignmentRequest, ReassignmentResult, decide_reassignments
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: AlterPartitionReassignmentsRequest, context: Context) -> AlterPartitionReassignmentsResponse:
    may_change_factor = request.allow_replication_factor_change
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return await unauthorized_response(request)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_factor, error_message="")
    turn = TimeSlice()
    wishes = [
        ReassignmentRequest(
            TopicPartition(topic.name, row.partition_index), None if row.replicas is None else tuple(row.replicas)
        )
        async for topic in in_slices(request.topics, turn)
        async for row in in_slices(topic.partitions, turn)
    ]
    liveness, rules = context.broker.election_state()
    try:
        results = await context.broker.controller.change(
            lambda image: decide_reassignments(image, wishes, liveness, rules, may_change_factor=may_change_factor),
            timeout_ms=request.timeout_ms,
            size=len(wishes),
        )
    except KafkaError as refusal:
        return error_response(refusal, may_change_factor)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, responses=await rows(request, results, turn)
    )


async def unauthorized_response(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    """Return the error for the request and, as in Kafka, for every partition in it."""
    error = Error.CLUSTER_AUTHORIZATION_FAILED
    topics = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(partition_index=row.partition_index, error_code=error)
                for row in topic.partitions
            ],
        )
        async for topic in in_slices(request.topics)
    ]
    response = error_response(KafkaError(error), request.allow_replication_factor_change)
    response.responses = topics
    return response


def error_response(refusal: KafkaError, may_change_factor: bool) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, error_code=refusal.error, error_message=refusal.message
    )


async def rows(
    request: AlterPartitionReassignmentsRequest, results: list[ReassignmentResult], turn: TimeSlice
) -> list[ReassignableTopicResponse]:
    """Return one row per row of the request, in its order."""
    left = iter(results)
    return [
        ReassignableTopicResponse(
            name=topic.name, partitions=[row(next(left)) async for _ in in_slices(topic.partitions, turn)]
        )
        async for topic in in_slices(request.topics, turn)
    ]


def row(result: ReassignmentResult) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=result.partition.partition, error_code=result.error, error_message=result.message
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, error: Error, message: str | None, _: int
) -> AlterPartitionReassignmentsResponse:
    rows = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=error, error_message=message
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message, responses=rows)
