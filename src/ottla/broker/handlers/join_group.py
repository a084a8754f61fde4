"""JoinGroup (key 11), v0-9: joins a classic group.

v1 rebalance timeout; v4 a new member gets its id first; v5 static members; v7 nullable protocol; v9 SkipAssignment for
the leader.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.groups.classic_group import RequestClient, join_error_response
from ottla.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.primitives import STRING_BYTES_MAX

KNOWN_ID_SINCE: Final = 4
NO_PROTOCOL_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9
PREFIX_BYTES_MAX: Final = STRING_BYTES_MAX - len(f"-{uuid4()}")


def handle(request: JoinGroupRequest, context: Context) -> Any:
    version = context.api_version
    shape = None if version >= NO_PROTOCOL_SINCE else with_protocol
    try:
        check(request, context)
        client_id = context.client_id or ""
        host = f"/{context.client_host}"
        client = RequestClient(client_id, host, version >= KNOWN_ID_SINCE, version >= SKIP_ASSIGNMENT_SINCE)
        prefix = truncate_prefix(client_id if request.group_instance_id is None else request.group_instance_id)
        return context.broker.coordinators.run_group_decision(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.join(request, client, f"{prefix}-{uuid4()}", reply_to, now_ms),
            shape,
        )
    except KafkaError as error:
        refusal = join_error_response(request.member_id if error.error is Error.INVALID_GROUP_ID else "", error.error)
        return refusal if shape is None else shape(refusal)


def truncate_prefix(prefix: str) -> str:
    """Cut the client id, so that the member id fits into a protocol string."""
    return (
        prefix if len(prefix) <= PREFIX_BYTES_MAX // 4 else prefix.encode()[:PREFIX_BYTES_MAX].decode(errors="ignore")
    )


def check(request: JoinGroupRequest, context: Context) -> None:
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)


def with_protocol(response: JoinGroupResponse) -> JoinGroupResponse:
    """Return the response with a protocol name, which older clients require."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response
