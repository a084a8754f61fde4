"""DeleteGroups (key 42), v0-2: deletes groups without members, with their committed offsets."""

from __future__ import annotations

from asyncio import Future, get_running_loop

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.coordination.machine import Decision, Reply
from ottla.protocol.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    deleting = [await delete(name, context) async for name in in_slices(dict.fromkeys(request.groups_names))]
    return DeleteGroupsResponse(results=[await each for each in deleting])


async def delete(group_id: str, context: Context) -> Future[DeletableGroupResult]:
    """Delete a group; the result follows when the deletion is committed. Offsets are first removed in pieces."""
    try:
        if not context.is_authorized(Operation.DELETE, ResourceType.GROUP, group_id):
            raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)
        while True:
            deleted, is_whole = start_deletion(group_id, context)
            if is_whole or (await deleted).error_code != Error.NONE:
                return deleted
    except KafkaError as error:
        refused: Future[DeletableGroupResult] = get_running_loop().create_future()
        refused.set_result(DeletableGroupResult(group_id=group_id, error_code=error.error))
        return refused


def start_deletion(group_id: str, context: Context) -> tuple[Future[DeletableGroupResult], bool]:
    groups = context.broker.coordinators.groups
    shard = groups.shard(group_id)
    records, error, is_whole = shard.machine.delete_group(group_id)
    deleted: Future[DeletableGroupResult] = get_running_loop().create_future()
    result = DeletableGroupResult(group_id=group_id, error_code=error)
    groups.execute(shard, Decision(records, [Reply(deleted.set_result, result)]))
    return deleted, is_whole
