"""Groups seen from outside: list, describe, delete."""

from __future__ import annotations

from ottla.protocol.schema import NO_OPERATIONS, Int16, Int32, message, part, wire


@message(api_key=16, versions="0-5", flexible=3)
class ListGroupsRequest:
    """ListGroups (key 16), v0-5. v3 flexible; v4 only groups in some states (KIP-518); v5 of some types (KIP-848)."""

    states_filter: list[str] = wire(since=4, default_factory=list)
    types_filter: list[str] = wire(since=5, default_factory=list)


@part
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: str = wire(since=4, default="")
    group_type: str = wire(since=5, default="")


@message(api_key=16, versions="0-5", flexible=3)
class ListGroupsResponse:
    """ListGroups (key 16), v0-5. v1 throttle time; v3 flexible; v4 state (KIP-518); v5 type (KIP-848)."""

    throttle_time_ms: Int32 = wire(since=1, default=0)
    error_code: Int16 = 0
    groups: list[ListedGroup] = wire(default_factory=list)


@message(api_key=15, versions="0-6", flexible=5)
class DescribeGroupsRequest:
    """DescribeGroups (key 15), v0-6. v3 authorized operations (KIP-430); v5 flexible."""

    groups: list[str] = wire(default_factory=list)
    include_authorized_operations: bool = wire(since=3, default=False)


@part
class DescribedGroupMember:
    member_id: str
    group_instance_id: str | None = wire(since=4, nullable=4, default=None)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@part
class DescribedGroup:
    error_code: Int16 = 0
    error_message: str | None = wire(since=6, nullable=6, default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember] = wire(default_factory=list)
    authorized_operations: Int32 = wire(since=3, default=NO_OPERATIONS)


@message(api_key=15, versions="0-6", flexible=5)
class DescribeGroupsResponse:
    """DescribeGroups (key 15), v0-6. v1 throttle time; v3 authorized operations (KIP-430); v4 static membership
    (KIP-345); v5 flexible; v6 GROUP_ID_NOT_FOUND with a message instead of a dead group (KIP-1043).
    """

    throttle_time_ms: Int32 = wire(since=1, default=0)
    groups: list[DescribedGroup] = wire(default_factory=list)


@message(api_key=42, versions="0-2", flexible=2)
class DeleteGroupsRequest:
    """DeleteGroups (key 42), v0-2 (KIP-229). v2 flexible."""

    groups_names: list[str] = wire(default_factory=list)


@part
class DeletableGroupResult:
    group_id: str
    error_code: Int16 = 0


@message(api_key=42, versions="0-2", flexible=2)
class DeleteGroupsResponse:
    """DeleteGroups (key 42), v0-2 (KIP-229). v2 flexible."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = wire(default_factory=list)
