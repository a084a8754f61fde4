"""LeaveGroup (key 13), v0-5: members leave a classic group, which rebalances at once. v3 several members."""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import run_decision
from ottla.broker.offload import chunks, in_slices
from ottla.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

SEVERAL_SINCE: Final = 3


async def handle(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    if not request.group_id:
        return LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    is_single = context.api_version < SEVERAL_SINCE
    if is_single:
        request.members = [MemberIdentity(member_id=request.member_id)]
    try:
        response = await leave(request, context)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.error)
    return single(response) if is_single else response


async def leave(request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
    """Remove some members at a time. Members that have left stay removed, even if the coordinator moves meanwhile."""
    whole = LeaveGroupResponse()
    async for members in in_slices(chunks(request.members) if request.members else [[]]):
        response = await leave_some(request.group_id, list(members), context)
        if response.error_code != Error.NONE:
            return response
        whole.members += response.members
    return whole


async def leave_some(group_id: str, members: list[MemberIdentity], context: Context) -> LeaveGroupResponse:
    piece = LeaveGroupRequest(group_id=group_id, members=members)
    response: LeaveGroupResponse = await run_decision(
        context.broker.coordinators.groups,
        group_id,
        lambda machine, reply_to, now_ms: machine.leave(piece, reply_to, now_ms),
    )
    return response


def single(response: LeaveGroupResponse) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
