"""ListGroups (key 16), v0-5: the groups of this coordinator. v4 filter by states; v5 filter by types."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.groups import ListGroupsRequest, ListGroupsResponse


async def handle(request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    turn = TimeSlice()
    states = {state.lower() for state in request.states_filter}
    sees_all = context.is_granted(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    types = {kind.lower() for kind in request.types_filter}
    try:
        groups = [
            group
            async for shard in in_slices(list(context.broker.coordinators.groups.shards()), turn)
            async for group in in_slices(list(shard.machine.list_groups()), turn)
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type.lower() in types)
            and (sees_all or context.is_visible(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.error)
    return ListGroupsResponse(groups=groups)
