"""DeleteAcls (key 31), v1-3: removes the ACLs that match filters. v2 flexible; v3 users as resources."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers.create_acls import ACLS_PER_CHANGE_MAX, NO_AUTHORIZER
from ottla.broker.handlers.describe_acls import filter_of, is_unreadable
from ottla.broker.offload import TimeSlice, chunks, in_slices, run_in_worker
from ottla.controller.decisions.acl_changes import decide_delete_acls, matching_patterns
from ottla.network.close_reason import CloseReason
from ottla.protocol.messages.acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.security.acls import AclBinding, AclFilter


class DeletedAcls(NamedTuple):
    """The combined result of one filter."""

    error: Error
    message: str | None
    rules: list[AclBinding]


async def handle(request: DeleteAclsRequest, context: Context) -> Any:
    turn = TimeSlice()
    filters = [filter_of(each) async for each in in_slices(request.filters, turn)]
    if any([is_unreadable(each) async for each in in_slices(filters, turn)]):
        return context.responder.fail(CloseReason.MALFORMED_REQUEST, "a DeleteAcls request contains UNKNOWN elements")
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if context.broker.authorizer is None:
        return refuse(request, Error.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        results = await delete(filters, context)
    except KafkaError as refusal:
        return refuse(request, refusal.error, refusal.message)
    return DeleteAclsResponse(filter_results=[await row(result, turn) async for result in in_slices(results, turn)])


async def delete(filters: list[AclFilter], context: Context) -> list[DeletedAcls]:
    """Delete in pieces, as in CreateAcls. Deletions before an error stay; a retry deletes the rest."""
    acls = context.broker.image.acls
    if len(filters) * len(acls) > ACLS_PER_CHANGE_MAX:  # each filter may visit all ACLs
        patterns = await run_in_worker(context.broker.workers, matching_patterns, acls, filters)
    else:
        patterns = matching_patterns(acls, filters)
    pieces = list(chunks(patterns, ACLS_PER_CHANGE_MAX)) or [()]
    results: list[DeletedAcls] = []
    for piece in pieces:
        decide = partial(decide_delete_acls, filters=filters, patterns=piece)
        size, is_urgent = len(filters) * len(piece), piece is not pieces[-1]  # all are visible when the last one is
        found = await context.broker.controller.change(decide, size=size, is_urgent=is_urgent)
        results = results or [DeletedAcls(each.error, each.message, []) for each in found]
        for result, each in zip(results, found, strict=True):
            result.rules.extend(each.removed)
    return results


async def row(result: DeletedAcls, turn: TimeSlice) -> DeleteAclsFilterResult:
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
