"""FindCoordinator (key 10), v0-6: the coordinator of a group or a transactional id.

v1 key type and error message ("NONE" without an error); v4 several keys. The first request creates the internal topic.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.partitioning import partition_for
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.handlers.describe_configs import MALFORMED
from ottla.broker.offload import in_slices
from ottla.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

ERROR_MESSAGES: Final[dict[int, str]] = {Error.NONE: "NONE", Error.INVALID_REQUEST: MALFORMED}  # before version 4


async def handle(request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    if context.api_version >= BATCHED_SINCE:
        rows = [await find(request.key_type, key, context) async for key in in_slices(request.coordinator_keys)]
        return FindCoordinatorResponse(coordinators=rows)
    row = await find(request.key_type, request.key, context)
    row.error_message = ERROR_MESSAGES.get(row.error_code, row.error_message)
    return FindCoordinatorResponse(
        error_code=row.error_code, error_message=row.error_message, node_id=row.node_id, host=row.host, port=row.port
    )


async def find(key_type: int, key: str, context: Context) -> Coordinator:
    try:
        check(key_type, key, context)
        if context.broker.must_check_leadership:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
        partition = await coordinating_partition(key_type, key, context)
    except KafkaError as error:
        return refused(key, error)
    broker = context.broker.image.brokers.get(partition)
    endpoint = broker.endpoints.get(context.listener_name) if broker is not None else None
    if endpoint is None:
        return refused(key, KafkaError(Error.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=key, node_id=partition, host=endpoint.host, port=endpoint.port, error_message="")


def check(key_type: int, key: str, context: Context) -> None:
    if key_type == GROUP:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, key):
            raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif key_type == TRANSACTION:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional id authorization failed.")
    else:
        raise KafkaError(Error.INVALID_REQUEST, None if key_type == SHARE else MALFORMED)


async def coordinating_partition(key_type: int, key: str, context: Context) -> int:
    """Return the leader of the partition that the key belongs to."""
    coordinators = context.broker.coordinators
    internal = coordinators.internal_topics
    wanted = internal.transactions() if key_type == TRANSACTION else internal.offsets()
    topic = await coordinators.ensure_topic(wanted)
    state = context.broker.image.partition(topic.name, partition_for(key, len(topic.partitions)))
    return state.leader if state is not None else -1


def refused(key: str, error: KafkaError) -> Coordinator:
    message = error.message or ""
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.error, error_message=message)
