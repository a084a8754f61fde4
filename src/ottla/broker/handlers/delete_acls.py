"""DeleteAcls (key 31), v1-3: take the access rules away that filters mean.  v2 flexible; v3 users as resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers.create_acls import NO_AUTHORIZER
from ottla.broker.handlers.describe_acls import filter_of, is_known
from ottla.broker.slices import Turn, in_slices
from ottla.controller.decisions.acl_changes import Removal, decide_delete_acls
from ottla.protocol.messages.acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: DeleteAclsRequest, context: Context) -> Any:
    turn = Turn()
    filters = [filter_of(each) async for each in in_slices(request.filters, turn)]
    if not all([is_known(each) async for each in in_slices(filters, turn)]):  # Kafka cannot read it, either
        return context.responder.fail("a DeleteAcls request contains UNKNOWN elements")
    if not context.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if context.broker.authorizer is None:
        return refuse(request, Error.SECURITY_DISABLED, NO_AUTHORIZER)
    size = len(filters) * len(context.broker.image.acls)  # each of them may have to look at all rules
    try:
        results = await context.broker.controller.change(lambda image: decide_delete_acls(image, filters), size=size)
    except KafkaError as refusal:
        return refuse(request, refusal.error, refusal.message)
    return DeleteAclsResponse(filter_results=[await row(result, turn) async for result in in_slices(results, turn)])


async def row(result: Removal, turn: Turn) -> DeleteAclsFilterResult:
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
            async for pattern, entry in in_slices(result.removed, turn)
        ],
    )


def refuse(request: DeleteAclsRequest, error: Error, message: str | None, _: int = 0) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error, error_message=message) for _ in request.filters]
    )
