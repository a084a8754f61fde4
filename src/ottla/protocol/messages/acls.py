"""Access rules (ACLs): describe, create and delete them (KIP-140; patterns KIP-290; users KIP-373)."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, message, part, wire

LITERAL_PATTERN = 3


@message(api_key=29, versions="1-3", flexible=2)
class DescribeAclsRequest:
    """DescribeAcls (key 29), v1-3. In a filter null and 1 match everything."""

    resource_type_filter: Int8
    resource_name_filter: str | None = wire(nullable=0, default=None)
    pattern_type_filter: Int8 = LITERAL_PATTERN
    principal_filter: str | None = wire(nullable=0, default=None)
    host_filter: str | None = wire(nullable=0, default=None)
    operation: Int8
    permission_type: Int8


@part
class AclDescription:
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@part
class DescribeAclsResource:
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = LITERAL_PATTERN
    acls: list[AclDescription] = wire(default_factory=list)


@message(api_key=29, versions="1-3", flexible=2)
class DescribeAclsResponse:
    """DescribeAcls (key 29), v1-3. Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    resources: list[DescribeAclsResource] = wire(default_factory=list)


@part
class AclCreation:
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = LITERAL_PATTERN
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(api_key=30, versions="1-3", flexible=2)
class CreateAclsRequest:
    """CreateAcls (key 30), v1-3."""

    creations: list[AclCreation] = wire(default_factory=list)


@part
class AclCreationResult:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=30, versions="1-3", flexible=2)
class CreateAclsResponse:
    """CreateAcls (key 30), v1-3. Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = wire(default_factory=list)


@part
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: str | None = wire(nullable=0, default=None)
    pattern_type_filter: Int8 = LITERAL_PATTERN
    principal_filter: str | None = wire(nullable=0, default=None)
    host_filter: str | None = wire(nullable=0, default=None)
    operation: Int8
    permission_type: Int8


@message(api_key=31, versions="1-3", flexible=2)
class DeleteAclsRequest:
    """DeleteAcls (key 31), v1-3."""

    filters: list[DeleteAclsFilter] = wire(default_factory=list)


@part
class DeleteAclsMatchingAcl:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = LITERAL_PATTERN
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@part
class DeleteAclsFilterResult:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = wire(default_factory=list)


@message(api_key=31, versions="1-3", flexible=2)
class DeleteAclsResponse:
    """DeleteAcls (key 31), v1-3. Errors: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = wire(default_factory=list)
