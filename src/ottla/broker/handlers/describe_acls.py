"""DescribeAcls (key 29), v1-3: the access rules that a filter means.  v2 flexible; v3 users as resources (KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ottla.broker.long_messages import in_worker
from ottla.broker.slices import in_slices
from ottla.protocol.messages.acls import (
    AclDescription,
    DeleteAclsFilter,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acls import AclFilter, Entries, ResourcePattern

if TYPE_CHECKING:
    from ottla.broker.context import Context

LOOKED_AT_ONCE: Final = 2_000  # resources
NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"
KNOWN: Final = {
    "resource_type": frozenset(ResourceType) - {ResourceType.UNKNOWN},
    "pattern_type": frozenset(PatternType) - {PatternType.UNKNOWN},
    "operation": frozenset(Operation) - {Operation.UNKNOWN},
    "permission": frozenset(Permission) - {Permission.UNKNOWN},
}


async def handle(request: DescribeAclsRequest, context: Context) -> Any:
    wanted = filter_of(request)
    if not is_known(wanted):  # Kafka cannot read such a request, either
        return context.responder.fail("a DescribeAcls request contains UNKNOWN elements")
    if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeAclsResponse(
            error_code=Error.CLUSTER_AUTHORIZATION_FAILED, error_message="Cluster authorization failed."
        )
    if context.broker.authorizer is None:
        return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    acls = context.broker.image.acls
    if len(acls) > LOOKED_AT_ONCE:  # an image never changes: any thread will do
        found = await in_worker(context.broker.workers, wanted.select, acls)
    else:
        found = wanted.select(acls)
    return DescribeAclsResponse(resources=[row(*each) async for each in in_slices(found.items())])


def filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def is_known(wanted: AclFilter) -> bool:
    """Whether all of its numbers mean something."""
    return all(getattr(wanted, name) in numbers for name, numbers in KNOWN.items())


def row(pattern: ResourcePattern, entries: Entries) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=[
            AclDescription(
                principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission
            )
            for each in sorted(entries)
        ],
    )
