"""Heartbeat (key 12), v0-4: a member of a classic group is alive; is its assignment still good?"""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=Error.INVALID_GROUP_ID)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    groups = context.broker.coordinators.groups
    try:
        return groups.shard(request.group_id).machine.heartbeat(request, groups.now_ms())
    except KafkaError as error:
        # A member cannot do better than wait for a coordinator that is loading: it knows all that we know.
        is_loading = error.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=Error.NONE if is_loading else error.error)
