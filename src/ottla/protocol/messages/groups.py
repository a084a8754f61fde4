"""Classic groups: find the coordinator, join, sync, heartbeat, leave; list, describe and delete groups."""

from __future__ import annotations

from ottla.protocol.schema import NO_OPERATIONS, Int8, Int16, Int32, message, part, wire


@message(api_key=10, versions="0-6", flexible=3)
class FindCoordinatorRequest:
    """FindCoordinator (key 10), v0-6. v1 also transactions; v3 flexible; v4 several keys (KIP-699); v6 share groups
    (KIP-932).
    """

    key: str = wire(until=3, default="")
    key_type: Int8 = wire(since=1, default=0)  # 0 group, 1 transaction, 2 share group
    coordinator_keys: list[str] = wire(since=4, default_factory=list)


@part
class Coordinator:
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=10, versions="0-6", flexible=3)
class FindCoordinatorResponse:
    """FindCoordinator (key 10), v0-6. v1 throttle time and error message; v3 flexible; v4 several keys (KIP-699); v5
    may return TRANSACTION_ABORTABLE (KIP-890).
    """

    throttle_time_ms: Int32 = wire(since=1, default=0)
    error_code: Int16 = wire(until=3, default=0)
    error_message: str | None = wire(since=1, until=3, nullable=1, default=None)
    node_id: Int32 = wire(until=3, default=0)
    host: str = wire(until=3, default="")
    port: Int32 = wire(until=3, default=0)
    coordinators: list[Coordinator] = wire(since=4, default_factory=list)


@part
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


@message(api_key=11, versions="0-9", flexible=6)
class JoinGroupRequest:
    """JoinGroup (key 11), v0-9. v1 rebalance timeout; v4 a new member gets its id first (KIP-394); v5 static membership
    (KIP-345); v6 flexible; v8 reason (KIP-800).
    """

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = wire(since=1, default=-1)
    member_id: str
    group_instance_id: str | None = wire(since=5, nullable=5, default=None)
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol] = wire(default_factory=list)
    reason: str | None = wire(since=8, nullable=8, default=None)


@part
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None = wire(since=5, nullable=5, default=None)
    metadata: bytes


@message(api_key=11, versions="0-9", flexible=6)
class JoinGroupResponse:
    """JoinGroup (key 11), v0-9. v2 throttle time; v5 static membership (KIP-345); v6 flexible; v7 protocol type, null
    protocol (KIP-559); v9 the leader may skip the assignment (KIP-814).
    """

    throttle_time_ms: Int32 = wire(since=2, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: str | None = wire(since=7, nullable=7, default=None)
    protocol_name: str | None = wire(nullable=7)
    leader: str
    skip_assignment: bool = wire(since=9, default=False)
    member_id: str
    members: list[JoinGroupResponseMember] = wire(default_factory=list)


@part
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


@message(api_key=14, versions="0-5", flexible=4)
class SyncGroupRequest:
    """SyncGroup (key 14), v0-5. v3 static membership (KIP-345); v4 flexible; v5 protocol type and name (KIP-559)."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = wire(since=3, nullable=3, default=None)
    protocol_type: str | None = wire(since=5, nullable=5, default=None)
    protocol_name: str | None = wire(since=5, nullable=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = wire(default_factory=list)


@message(api_key=14, versions="0-5", flexible=4)
class SyncGroupResponse:
    """SyncGroup (key 14), v0-5. v1 throttle time; v4 flexible; v5 protocol type and name (KIP-559)."""

    throttle_time_ms: Int32 = wire(since=1, default=0)
    error_code: Int16 = 0
    protocol_type: str | None = wire(since=5, nullable=5, default=None)
    protocol_name: str | None = wire(since=5, nullable=5, default=None)
    assignment: bytes


@message(api_key=12, versions="0-4", flexible=4)
class HeartbeatRequest:
    """Heartbeat (key 12), v0-4. v3 static membership (KIP-345); v4 flexible."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = wire(since=3, nullable=3, default=None)


@message(api_key=12, versions="0-4", flexible=4)
class HeartbeatResponse:
    """Heartbeat (key 12), v0-4. v1 throttle time; v4 flexible."""

    throttle_time_ms: Int32 = wire(since=1, default=0)
    error_code: Int16 = 0


@part
class MemberIdentity:
    """A member by its id or, if static, by its instance id."""

    member_id: str
    group_instance_id: str | None = wire(nullable=0, default=None)
    reason: str | None = wire(since=5, nullable=5, default=None)


@message(api_key=13, versions="0-5", flexible=4)
class LeaveGroupRequest:
    """LeaveGroup (key 13), v0-5. v3 several members (KIP-345); v4 flexible; v5 reason (KIP-800)."""

    group_id: str
    member_id: str = wire(until=2, default="")
    members: list[MemberIdentity] = wire(since=3, default_factory=list)


@part
class MemberResponse:
    member_id: str
    group_instance_id: str | None = wire(nullable=0, default=None)
    error_code: Int16 = 0


@message(api_key=13, versions="0-5", flexible=4)
class LeaveGroupResponse:
    """LeaveGroup (key 13), v0-5. v1 throttle time; v3 several members (KIP-345); v4 flexible."""

    throttle_time_ms: Int32 = wire(since=1, default=0)
    error_code: Int16 = 0
    members: list[MemberResponse] = wire(since=3, default_factory=list)


# Administration of groups: list, describe, delete.
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
