"""OffsetDelete (key 47), v0: forget how far a group has read topics that it does not read now."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinators.waiting_answers import answer_of
from ottla.broker.known_partitions import Refused, refused_partitions
from ottla.broker.slices import Turn, in_slices, pieces_of
from ottla.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Row = tuple[str, OffsetDeleteRequestPartition]


async def handle(request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
    if not context.may(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=Error.INVALID_GROUP_ID)
    places = ((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)
    turn = Turn()
    refused = await refused_partitions(places, Operation.READ, context, turn)
    whole = OffsetDeleteResponse()
    rows = [(topic.name, row) for topic in request.topics for row in topic.partitions]
    async for piece in in_slices(pieces_of(rows) if rows else [[]], turn):
        try:
            response = await delete(request.group_id, piece, refused, context)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.error)
        if response.error_code != Error.NONE:
            return response
        join(whole, response)
    return whole


async def delete(group_id: str, rows: Sequence[Row], refused: Refused, context: Context) -> OffsetDeleteResponse:
    """Some of them: thousands are not forgotten at once."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, row in rows:
        if name not in topics:
            topics[name] = OffsetDeleteRequestTopic(name=name, partitions=[])
        topics[name].partitions.append(row)
    piece = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
    response: OffsetDeleteResponse = await answer_of(
        context.broker.coordinators.groups,
        group_id,
        lambda machine, reply_to, _: machine.delete_offsets(piece, refused, reply_to),
    )
    return response


def join(whole: OffsetDeleteResponse, piece: OffsetDeleteResponse) -> None:
    """A topic may be cut in two between the pieces."""
    for topic in piece.topics:
        if whole.topics and whole.topics[-1].name == topic.name:
            whole.topics[-1].partitions += topic.partitions
        else:
            whole.topics.append(topic)
