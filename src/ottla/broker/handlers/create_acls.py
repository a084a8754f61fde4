"""CreateAcls (key 30), v1-3: adds ACLs. v2 flexible; v3 users as resources (KIP-373)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.offload import TimeSlice, chunks, in_slices
from ottla.controller.decisions.acl_changes import NewAcl, decide_create_acls
from ottla.protocol.messages.acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

ACLS_PER_CHANGE_MAX: Final = 500  # larger changes would block brokers that apply them; atomicity is not guaranteed
NO_AUTHORIZER: Final = "No Authorizer is configured."


async def handle(request: CreateAclsRequest, context: Context) -> Any:
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if context.broker.authorizer is None:
        return refuse(request, Error.SECURITY_DISABLED, NO_AUTHORIZER)
    turn = TimeSlice()
    wanted = [to_new_acl(creation) async for creation in in_slices(request.creations, turn)]
    results: list[KafkaError | None] = []
    try:
        for piece in chunks(wanted, ACLS_PER_CHANGE_MAX):
            is_last = len(results) + len(piece) == len(wanted)  # all are visible when the last one is
            results += await create(piece, context, is_urgent=not is_last)
    except KafkaError as refusal:
        results += [refusal] * (len(wanted) - len(results))
    return CreateAclsResponse(results=[row(refusal) async for refusal in in_slices(results, turn)])


async def create(rules: Sequence[NewAcl], context: Context, *, is_urgent: bool) -> list[KafkaError | None]:
    return await context.broker.controller.change(
        lambda image: decide_create_acls(image, rules), size=len(rules), is_urgent=is_urgent
    )


def to_new_acl(creation: AclCreation) -> NewAcl:
    return NewAcl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def row(refusal: KafkaError | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult()
    return AclCreationResult(error_code=refusal.error, error_message=refusal.message)


def refuse(request: CreateAclsRequest, error: Error, message: str | None, _: int = 0) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error, error_message=message) for _ in request.creations]
    )
