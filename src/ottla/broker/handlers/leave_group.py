"""LeaveGroup (key 13), v0-5: members go, and the others share their work at once. v3 several members in one request."""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

SEVERAL_SINCE: Final = 3


def handle(request: LeaveGroupRequest, context: Context) -> Any:
    if not request.group_id:
        return LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=Error.GROUP_AUTHORIZATION_FAILED)
    is_single = context.api_version < SEVERAL_SINCE
    if is_single:
        request.members = [MemberIdentity(member_id=request.member_id)]
    try:
        return context.broker.coordinators.ask_group(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.leave(request, reply_to, now_ms),
            single if is_single else None,
        )
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.error)


def single(response: LeaveGroupResponse) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
