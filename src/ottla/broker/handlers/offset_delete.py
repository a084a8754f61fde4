"""OffsetDelete (key 47), v0: forget how far a group has read topics that it does not read now."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.known_partitions import refused_partitions
from ottla.protocol.messages.group_offsets import OffsetDeleteRequest, OffsetDeleteResponse


def handle(request: OffsetDeleteRequest, context: Context) -> Any:
    if not context.may(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=Error.INVALID_GROUP_ID)
    places = ((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)
    refused = refused_partitions(places, Operation.READ, context)
    try:
        return context.broker.coordinators.ask_group(
            context, request.group_id, lambda machine, reply_to, _: machine.delete_offsets(request, refused, reply_to)
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.error)
