"""DeleteAcls (key 31), v1-3: take the access rules away that filters mean.  v2 flexible; v3 users as resources."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers.create_acls import NO_AUTHORIZER, RULES_AT_ONCE
from ottla.broker.handlers.describe_acls import filter_of, is_known
from ottla.broker.long_messages import in_worker
from ottla.broker.slices import Turn, in_slices, pieces_of
from ottla.controller.decisions.acl_changes import decide_delete_acls, patterns_meant
from ottla.protocol.messages.acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.security.acls import AclBinding, AclFilter


class Removed(NamedTuple):
    """What became of one filter, in all pieces together."""

    error: Error
    message: str | None
    rules: list[AclBinding]


async def handle(request: DeleteAclsRequest, context: Context) -> Any:
    turn = Turn()
    filters = [filter_of(each) async for each in in_slices(request.filters, turn)]
    if not all([is_known(each) async for each in in_slices(filters, turn)]):  # Kafka cannot read it, either
        return context.responder.fail("a DeleteAcls request contains UNKNOWN elements")
    if not context.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if context.broker.authorizer is None:
        return refuse(request, Error.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        results = await delete(filters, context)
    except KafkaError as refusal:
        return refuse(request, refusal.error, refusal.message)
    return DeleteAclsResponse(filter_results=[await row(result, turn) async for result in in_slices(results, turn)])


async def delete(filters: list[AclFilter], context: Context) -> list[Removed]:
    """In pieces, as rules are made. Whatever was taken before an error is taken: to ask again tells of the rest."""
    acls = context.broker.image.acls
    if len(filters) * len(acls) > RULES_AT_ONCE:  # each of them may have to look at all rules
        patterns = await in_worker(context.broker.workers, patterns_meant, acls, filters)
    else:
        patterns = patterns_meant(acls, filters)
    pieces = list(pieces_of(patterns, RULES_AT_ONCE)) or [()]
    results: list[Removed] = []
    for piece in pieces:
        decide = partial(decide_delete_acls, filters=filters, patterns=piece)
        size, is_urgent = len(filters) * len(piece), piece is not pieces[-1]  # all are seen when the last one is
        found = await context.broker.controller.change(decide, size=size, is_urgent=is_urgent)
        results = results or [Removed(each.error, each.message, []) for each in found]
        for result, each in zip(results, found, strict=True):
            result.rules.extend(each.removed)
    return results


async def row(result: Removed, turn: Turn) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=result.error,
        error_message=result.message,
        matching_acls=[
            DeleteAclsMatchingAcl(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            async for pattern, entry in in_slices(result.rules, turn)
        ],
    )


def refuse(request: DeleteAclsRequest, error: Error, message: str | None, _: int = 0) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error, error_message=message) for _ in request.filters]
    )
