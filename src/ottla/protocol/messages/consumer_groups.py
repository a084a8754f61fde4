"""Groups of the new protocol (KIP-848): the heartbeat, and the description of a group."""

from __future__ import annotations

from struct import Struct
from typing import TypeVar
from uuid import UUID

from ottla.protocol.codec import ProtocolError, decode, encode
from ottla.protocol.schema import NO_OPERATIONS, Int8, Int16, Int32, layout_of, message, part, wire


@part
class HeartbeatTopicPartitions:
    topic_id: UUID
    partitions: list[Int32]


@message(api_key=68, versions="0-1", flexible=0)
class ConsumerGroupHeartbeatRequest:
    """ConsumerGroupHeartbeat (key 68), v0-1. v1 regular expressions, and the client generates its member id (KIP-1082).

    A field that is unchanged since the last heartbeat is null (or -1).
    """

    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = wire(nullable=0, default=None)
    rack_id: str | None = wire(nullable=0, default=None)
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = wire(nullable=0, default=None)
    subscribed_topic_regex: str | None = wire(since=1, nullable=1, default=None)
    server_assignor: str | None = wire(nullable=0, default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = wire(nullable=0, default=None)


@part
class HeartbeatAssignment:
    topic_partitions: list[HeartbeatTopicPartitions]


@message(api_key=68, versions="0-1", flexible=0)
class ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat (key 68), v0-1."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    member_id: str | None = wire(nullable=0, default=None)
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = wire(nullable=0, default=None)


@message(api_key=69, versions="0-1", flexible=0)
class ConsumerGroupDescribeRequest:
    """ConsumerGroupDescribe (key 69), v0-1. v1 member type."""

    group_ids: list[str]
    include_authorized_operations: bool


@part
class DescribedTopicPartitions:
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]


@part
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions]


@part
class DescribedConsumer:
    member_id: str
    instance_id: str | None = wire(nullable=0, default=None)
    rack_id: str | None = wire(nullable=0, default=None)
    member_epoch: Int32
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = wire(nullable=0, default=None)
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Int8 = wire(since=1, default=-1)


@part
class DescribedConsumerGroup:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: str
    members: list[DescribedConsumer]
    authorized_operations: Int32 = NO_OPERATIONS


@message(api_key=69, versions="0-1", flexible=0)
class ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe (key 69), v0-1."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedConsumerGroup]


# Metadata and assignments of consumers in a classic group (protocol type "consumer").
#
# Both begin with an int16 version. A reader uses the fields that it knows and ignores the rest, so a version newer than
# the last one here is read as that one.
CONSUMER = "consumer"  # the protocol type

_VERSION = Struct(">h")
T = TypeVar("T")


@part
class OwnedPartitions:
    topic: str
    partitions: list[Int32]


@message(versions="0-3")
class Subscription:
    """v1 owned partitions (KIP-429); v2 generation; v3 rack (KIP-881)."""

    topics: list[str]
    user_data: bytes | None = wire(nullable=0, default=None)
    owned_partitions: list[OwnedPartitions] = wire(since=1, default_factory=list)
    generation_id: Int32 = wire(since=2, default=-1)
    rack_id: str | None = wire(since=3, nullable=3, default=None)


@message(versions="0-3")
class Assignment:
    assigned_partitions: list[OwnedPartitions]
    user_data: bytes | None = wire(nullable=0, default=None)


def read_versioned(cls: type[T], data: bytes) -> T:
    """Decode a structure with a version. Raises ProtocolError."""
    version = read_version(data)
    known, _ = decode(cls, min(version, layout_of(cls).max_version), memoryview(data), _VERSION.size)
    return known


def read_version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("what a consumer wrote has no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"what a consumer wrote has version {version}")
    return version


def write_versioned(message_: Subscription | Assignment, version: int) -> bytes:
    return _VERSION.pack(version) + encode(message_, version)
