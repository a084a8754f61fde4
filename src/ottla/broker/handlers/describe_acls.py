"""DescribeAcls (key 29), v1-3: the ACLs that match a filter. v2 flexible; v3 users as resources (KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from ottla.broker.offload import in_slices, run_in_worker
from ottla.network.close_reason import CloseReason
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

RESOURCES_ON_LOOP_MAX: Final = 2_000  # resources on the loop
NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


async def handle(request: DescribeAclsRequest, context: Context) -> Any:
    wanted = filter_of(request)
    if is_unreadable(wanted):
        return context.responder.fail(CloseReason.MALFORMED_REQUEST, "a DescribeAcls request contains UNKNOWN elements")
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeAclsResponse(
            error_code=Error.CLUSTER_AUTHORIZATION_FAILED, error_message="Cluster authorization failed."
        )
    if context.broker.authorizer is None:
        return DescribeAclsResponse(error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    acls = context.broker.image.acls
    if len(acls) > RESOURCES_ON_LOOP_MAX:  # an image never changes: any thread may read it
        found = await run_in_worker(context.broker.workers, wanted.select, acls)
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


def is_unreadable(wanted: AclFilter) -> bool:
    """Return whether a value is UNKNOWN, as in Kafka. Values of later versions match no ACL."""
    return (
        wanted.resource_type == ResourceType.UNKNOWN
        or wanted.pattern_type == PatternType.UNKNOWN
        or wanted.operation == Operation.UNKNOWN
        or wanted.permission == Permission.UNKNOWN
    )


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
