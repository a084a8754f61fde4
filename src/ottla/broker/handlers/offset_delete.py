"""OffsetDelete (key 47), v0: deletes committed offsets of topics that the group is not subscribed to."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.authorization import PartitionErrors, find_unauthorized_or_unknown
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import run_decision
from ottla.broker.offload import TimeSlice, chunks, in_slices
from ottla.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Row = tuple[str, OffsetDeleteRequestPartition]


async def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    if not context.is_authorized(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=Error.INVALID_GROUP_ID)
    places = ((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)
    turn = TimeSlice()
    refused = await find_unauthorized_or_unknown(places, Operation.READ, context, turn)
    whole = OffsetDeleteResponse()
    rows = [(topic.name, row) for topic in request.topics for row in topic.partitions]
    async for piece in in_slices(chunks(rows) if rows else [[]], turn):
        try:
            response = await delete(request.group_id, piece, refused, context)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.error)
        if response.error_code != Error.NONE:
            return response
        merge_response(whole, response)
    return whole


async def delete(
    group_id: str, rows: Sequence[Row], refused: PartitionErrors, context: Context
) -> OffsetDeleteResponse:
    """Delete some of the offsets; thousands are deleted in several steps."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, row in rows:
        if name not in topics:
            topics[name] = OffsetDeleteRequestTopic(name=name, partitions=[])
        topics[name].partitions.append(row)
    piece = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
    response: OffsetDeleteResponse = await run_decision(
        context.broker.coordinators.groups,
        group_id,
        lambda machine, reply_to, _: machine.offset_manager.delete_offsets(piece, refused, reply_to),
    )
    return response


def merge_response(whole: OffsetDeleteResponse, piece: OffsetDeleteResponse) -> None:
    """Merge a response; a topic may be split between two pieces."""
    for topic in piece.topics:
        if whole.topics and whole.topics[-1].name == topic.name:
            whole.topics[-1].partitions += topic.partitions
        else:
            whole.topics.append(topic)
