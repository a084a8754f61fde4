"""FindCoordinator (key 10), v0-6: there are no coordinators yet, and this says so.

v1 key type and error message; v4 several keys at once.

Groups get COORDINATOR_NOT_AVAILABLE: clients that only read partitions of their own choice ask for the coordinator of
their group too, and go on without it. Transactions get UNSUPPORTED_VERSION: a transactional producer can do nothing
without its coordinator, and of all errors this one makes it give up at once instead of asking for ever.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1

NO_GROUPS: Final = "This broker does not coordinate consumer groups. Assign partitions by hand, without a group."
NO_TRANSACTIONS: Final = "This broker does not serve transactions. Produce without a transactional id."
BAD_KEY_TYPE: Final = "Unknown coordinator type {}."


def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    if context.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            node_id=0, host="", port=0, coordinators=[refuse(request, context, key) for key in request.coordinator_keys]
        )
    row = refuse(request, context, request.key)
    return FindCoordinatorResponse(
        error_code=row.error_code, error_message=row.error_message, node_id=row.node_id, host=row.host, port=row.port
    )


def refuse(request: FindCoordinatorRequest, context: Context, key: str) -> Coordinator:
    error, message = refusal(request.key_type, context, key)
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)


def refusal(key_type: int, context: Context, key: str) -> tuple[Error, str]:
    if key_type == GROUP:
        if not context.may(Operation.DESCRIBE, ResourceType.GROUP, key):
            return Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
        return Error.COORDINATOR_NOT_AVAILABLE, NO_GROUPS
    if key_type == TRANSACTION:
        if not context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional id authorization failed."
        return Error.UNSUPPORTED_VERSION, NO_TRANSACTIONS
    return Error.INVALID_REQUEST, BAD_KEY_TYPE.format(key_type)
