"""SyncGroup (key 14), v0-5: returns the assignment of a member; the leader sends the assignments of all members."""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import CHUNK_ROWS, in_slices
from ottla.groups.classic_group import sync_error_response
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.protocol.messages.groups import SyncGroupRequest

PROTOCOL_SINCE: Final = 5


def handle(request: SyncGroupRequest, context: Context) -> Any:
    if not request.group_id:
        return sync_error_response(Error.INVALID_GROUP_ID)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return sync_error_response(Error.GROUP_AUTHORIZATION_FAILED)
    if context.api_version >= PROTOCOL_SINCE and not (request.protocol_type and request.protocol_name):
        return sync_error_response(Error.INCONSISTENT_GROUP_PROTOCOL)
    if len(request.assignments) > CHUNK_ROWS:
        return sync_many(request, context)
    return sync(request, context)


def sync(request: SyncGroupRequest, context: Context) -> Any:
    try:
        return context.broker.coordinators.run_group_decision(
            context, request.group_id, lambda machine, reply_to, now_ms: machine.sync(request, reply_to, now_ms)
        )
    except KafkaError as error:
        return sync_error_response(error.error)


async def sync_many(request: SyncGroupRequest, context: Context) -> Any:
    try:
        await drop_unknown_members(request, context.broker.coordinators.groups.shard(request.group_id).machine)
    except KafkaError as error:
        return sync_error_response(error.error)
    return sync(request, context)


async def drop_unknown_members(request: SyncGroupRequest, machine: GroupCoordinator) -> None:
    """Remove assignments of unknown members in slices: the machine then decides in one step."""
    group = machine.groups.get(request.group_id)
    members = group.members if group is not None else {}
    given = {each.member_id: each async for each in in_slices(request.assignments) if each.member_id in members}
    request.assignments = list(given.values())
