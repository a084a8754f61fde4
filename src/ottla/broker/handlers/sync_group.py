"""SyncGroup (key 14), v0-5: get the assignment that the leader made, or bring it as the leader."""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.slices import PIECE_ROWS, in_slices
from ottla.groups.classic_answers import refused_sync
from ottla.groups.machine import GroupMachine
from ottla.protocol.messages.groups import SyncGroupRequest

PROTOCOL_SINCE: Final = 5


def handle(request: SyncGroupRequest, context: Context) -> Any:
    if not request.group_id:
        return refused_sync(Error.INVALID_GROUP_ID)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return refused_sync(Error.GROUP_AUTHORIZATION_FAILED)
    if context.api_version >= PROTOCOL_SINCE and not (request.protocol_type and request.protocol_name):
        return refused_sync(Error.INCONSISTENT_GROUP_PROTOCOL)
    if len(request.assignments) > PIECE_ROWS:
        return sync_many(request, context)
    return sync(request, context)


def sync(request: SyncGroupRequest, context: Context) -> Any:
    try:
        return context.broker.coordinators.ask_group(
            context, request.group_id, lambda machine, reply_to, now_ms: machine.sync(request, reply_to, now_ms)
        )
    except KafkaError as error:
        return refused_sync(error.error)


async def sync_many(request: SyncGroupRequest, context: Context) -> Any:
    try:
        await keep_members_only(request, context.broker.coordinators.groups.shard(request.group_id).machine)
    except KafkaError as error:
        return refused_sync(error.error)
    return sync(request, context)


async def keep_members_only(request: SyncGroupRequest, machine: GroupMachine) -> None:
    """Assignments for nobody are thrown away before the machine sees them: it decides in one go."""
    group = machine.groups.get(request.group_id)
    members = group.members if group is not None else {}
    given = {each.member_id: each async for each in in_slices(request.assignments) if each.member_id in members}
    request.assignments = list(given.values())
