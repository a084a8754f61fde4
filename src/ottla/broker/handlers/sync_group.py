"""SyncGroup (key 14), v0-5: get the assignment that the leader made, or bring it as the leader."""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.groups.classic_answers import refused_sync
from ottla.protocol.messages.groups import SyncGroupRequest

PROTOCOL_SINCE: Final = 5


def handle(request: SyncGroupRequest, context: Context) -> Any:
    if not request.group_id:
        return refused_sync(Error.INVALID_GROUP_ID)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return refused_sync(Error.GROUP_AUTHORIZATION_FAILED)
    if context.api_version >= PROTOCOL_SINCE and not (request.protocol_type and request.protocol_name):
        return refused_sync(Error.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return context.broker.coordinators.ask_group(
            context, request.group_id, lambda machine, reply_to, now_ms: machine.sync(request, reply_to, now_ms)
        )
    except KafkaError as error:
        return refused_sync(error.error)
