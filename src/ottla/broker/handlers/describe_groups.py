"""DescribeGroups (key 15), v0-6: state and members of classic groups. v6 GROUP_ID_NOT_FOUND for missing groups."""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.authorization import group_operations
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.protocol.messages.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

NOT_FOUND_SINCE: Final = 6
DEAD: Final = "Dead"


async def handle(request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    asked = {group_id: None async for group_id in in_slices(request.groups)}  # without duplicates: a group may be large
    rows = [describe(group_id, context) async for group_id in in_slices(asked)]
    if request.include_authorized_operations:
        async for row in in_slices(rows):
            if row.error_code == Error.NONE:
                row.authorized_operations = group_operations(context, row.group_id)
    return DescribeGroupsResponse(groups=rows)


def describe(group_id: str, context: Context) -> DescribedGroup:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return refused(group_id, Error.GROUP_AUTHORIZATION_FAILED)
    try:
        machine = context.broker.coordinators.groups.shard(group_id).machine
    except KafkaError as error:
        return refused(group_id, error.error)
    found = machine.describe(group_id)
    if found is not None:
        return found
    if context.api_version >= NOT_FOUND_SINCE:
        is_new = group_id in machine.consumer.groups
        problem = f"Group {group_id} is not a classic group." if is_new else f"Group {group_id} not found."
        return refused(group_id, Error.GROUP_ID_NOT_FOUND, problem, DEAD)
    return refused(group_id, Error.NONE, None, DEAD)


def refused(group_id: str, error: Error, message: str | None = None, state: str = "") -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
    )
