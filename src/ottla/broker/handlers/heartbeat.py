"""Heartbeat (key 12), v0-4: heartbeat of a member of a classic group."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=Error.INVALID_GROUP_ID)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    groups = context.broker.coordinators.groups
    try:
        return groups.shard(request.group_id).machine.heartbeat(request, groups.now_ms())
    except KafkaError as error:
        # While the coordinator loads, its members keep their assignments, as in Kafka.
        is_loading = error.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=Error.NONE if is_loading else error.error)
