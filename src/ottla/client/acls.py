"""Access rules (ACLs): describe, create and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.client.client import Client
from ottla.client.errors import raise_for_error
from ottla.protocol.messages import acls as wire
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern


def describe_acls(client: Client, wanted: AclFilter) -> list[AclBinding]:
    """The rules that match a filter."""
    request = wire.DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    answer = client.call(request, wire.DescribeAclsResponse)
    raise_for_error(answer.error_code, answer.error_message)
    return [AclBinding(_pattern(resource), _entry(row)) for resource in answer.resources for row in resource.acls]


def create_acls(client: Client, bindings: Sequence[AclBinding]) -> None:
    request = wire.CreateAclsRequest(
        creations=[
            wire.AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
    )
    for result in client.call(request, wire.CreateAclsResponse).results:
        raise_for_error(result.error_code, result.error_message)


def delete_acls(client: Client, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Returns the deleted rules."""
    request = wire.DeleteAclsRequest(
        filters=[
            wire.DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    removed: dict[AclBinding, None] = {}
    for result in client.call(request, wire.DeleteAclsResponse).filter_results:
        raise_for_error(result.error_code, result.error_message)
        for row in result.matching_acls:
            raise_for_error(row.error_code, row.error_message)
            removed[AclBinding(_pattern(row), _entry(row))] = None
    return list(removed)


def _pattern(row: wire.DescribeAclsResource | wire.DeleteAclsMatchingAcl) -> ResourcePattern:
    return ResourcePattern(ResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type))


def _entry(row: wire.AclDescription | wire.DeleteAclsMatchingAcl) -> AccessControlEntry:
    return AccessControlEntry(row.principal, row.host, Operation(row.operation), Permission(row.permission_type))
