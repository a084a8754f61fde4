"""DeleteGroups (key 42), v0-2: groups without members, with all that they have committed."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.coordination.machine import Reply, in_pieces
from ottla.protocol.messages.group_admin import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(request: DeleteGroupsRequest, context: Context) -> Any:
    responder = context.responder
    names = list(dict.fromkeys(request.groups_names))
    results: list[DeletableGroupResult] = []

    def answered(result: DeletableGroupResult) -> None:
        results.append(result)
        if len(results) == len(names):
            responder.answer(DeleteGroupsResponse(results=results))

    for name in names:
        delete(name, context, answered)
    return responder.keep() if names else DeleteGroupsResponse()


def delete(group_id: str, context: Context, answered: Any) -> None:
    if not context.may(Operation.DELETE, ResourceType.GROUP, group_id):
        answered(DeletableGroupResult(group_id=group_id, error_code=Error.GROUP_AUTHORIZATION_FAILED))
        return
    groups = context.broker.coordinators.groups
    try:
        shard = groups.shard(group_id)
    except KafkaError as error:
        answered(DeletableGroupResult(group_id=group_id, error_code=error.error))
        return
    records, error_code = shard.machine.delete_group(group_id)
    result = DeletableGroupResult(group_id=group_id, error_code=error_code)
    for decision in in_pieces(records, [Reply(answered, result)]):
        groups.run(shard, decision)
