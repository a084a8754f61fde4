"""JoinGroup (key 11), v0-9: become a member of a classic group.

v1 rebalance timeout; v4 a new member is first given its id; v5 static members; v7 a refusal names no protocol; v9 the
leader may be told not to assign.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.groups.classic_answers import Client, refused_join
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
        client = Client(client_id, host, version >= KNOWN_ID_SINCE, version >= SKIP_ASSIGNMENT_SINCE)
        prefix = cut(client_id if request.group_instance_id is None else request.group_instance_id)
        return context.broker.coordinators.ask_group(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.join(request, client, f"{prefix}-{uuid4()}", reply_to, now_ms),
            shape,
        )
    except KafkaError as error:
        refusal = refused_join(request.member_id, error.error)
        return refusal if shape is None else shape(refusal)


def cut(prefix: str) -> str:
    """So that a member id fits into a string of the protocol, whatever its client calls itself."""
    return (
        prefix if len(prefix) <= PREFIX_BYTES_MAX // 4 else prefix.encode()[:PREFIX_BYTES_MAX].decode(errors="ignore")
    )


def check(request: JoinGroupRequest, context: Context) -> None:
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)


def with_protocol(response: JoinGroupResponse) -> JoinGroupResponse:
    """Older clients want a name even where there is none."""
    if response.protocol_name is None:
        response.protocol_name = ""
    return response
