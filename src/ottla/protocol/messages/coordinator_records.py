"""Keys and values of the records in `__consumer_offsets`, as Apache Kafka 4.3 writes them.

A record's key begins with an int16 for its type (`GROUP_RECORDS` below: 0 and 1 are offsets, 2 a classic group, 3-8 and
16 groups of the new protocol), its value with an int16 for the version of that type. A null value is a tombstone.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, message, part, wire


@message(versions="0")
class OffsetCommitKey:
    group: str
    topic: str
    partition: Int32


@message(versions="0-4", flexible=4)
class OffsetCommitValue:
    """v1 expiry; v3 leader epoch, without expiry; v4 flexible, topic id."""

    offset: Int64
    leader_epoch: Int32 = wire(since=3, default=-1)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = wire(since=1, until=1, default=-1)
    topic_id: UUID = wire(since=4, tag=0, default=ZERO_UUID)


@message(versions="0")
class GroupMetadataKey:
    group: str


@part
class MemberMetadata:
    member_id: str
    group_instance_id: str | None = wire(since=3, nullable=3, default=None)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = wire(since=1, default=-1)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


@message(versions="0-4", flexible=4)
class GroupMetadataValue:
    """v1 rebalance timeout; v2 timestamp of the state; v3 static members; v4 flexible."""

    protocol_type: str
    generation: Int32
    protocol: str | None = wire(nullable=0)
    leader: str | None = wire(nullable=0)
    current_state_timestamp: Int64 = wire(since=2, default=-1)
    members: list[MemberMetadata]


@message(versions="0")
class ConsumerGroupMetadataKey:
    group_id: str


@message(versions="0", flexible=0)
class ConsumerGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64 = wire(tag=0, default=0)


@message(versions="0")
class ConsumerGroupPartitionMetadataKey:
    group_id: str


@part
class PartitionRacks:
    partition: Int32
    racks: list[str]


@part
class TopicPartitionMetadata:
    topic_id: UUID
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[PartitionRacks]


@message(versions="0", flexible=0)
class ConsumerGroupPartitionMetadataValue:
    """Written before Kafka 4.1 only; a group that has one must still be loaded."""

    topics: list[TopicPartitionMetadata]


@message(versions="0")
class ConsumerGroupMemberMetadataKey:
    group_id: str
    member_id: str


@part
class ClassicProtocol:
    name: str
    metadata: bytes


@part
class ClassicMemberMetadata:
    """The metadata of a member that still uses the classic protocol."""

    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message(versions="0", flexible=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = wire(nullable=0)
    rack_id: str | None = wire(nullable=0)
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None = wire(nullable=0)
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = wire(nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = wire(nullable=0, tag=0, default=None)


@message(versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str


@message(versions="0", flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = wire(tag=0, default=0)


@message(versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str


@part
class TargetPartitions:
    topic_id: UUID
    partitions: list[Int32]


@message(versions="0", flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetPartitions]


@message(versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str


@part
class CurrentPartitions:
    topic_id: UUID
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = wire(nullable=0, tag=0, default=None)


@message(versions="0", flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[CurrentPartitions]
    partitions_pending_revocation: list[CurrentPartitions]


@message(versions="0")
class ConsumerGroupRegularExpressionKey:
    group_id: str
    regular_expression: str


@message(versions="0", flexible=0)
class ConsumerGroupRegularExpressionValue:
    topics: list[str]
    version: Int64
    timestamp: Int64


class RecordKind(NamedTuple):
    """One type of record: its key and value; the newest version of the value is written."""

    name: str
    key: type
    value: type


GROUP_RECORDS = {
    0: RecordKind("LegacyOffsetCommit", OffsetCommitKey, OffsetCommitValue),
    1: RecordKind("OffsetCommit", OffsetCommitKey, OffsetCommitValue),
    2: RecordKind("GroupMetadata", GroupMetadataKey, GroupMetadataValue),
    3: RecordKind("ConsumerGroupMetadata", ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: RecordKind(
        "ConsumerGroupPartitionMetadata", ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue
    ),
    5: RecordKind("ConsumerGroupMemberMetadata", ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: RecordKind(
        "ConsumerGroupTargetAssignmentMetadata",
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: RecordKind(
        "ConsumerGroupTargetAssignmentMember",
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: RecordKind(
        "ConsumerGroupCurrentMemberAssignment",
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: RecordKind(
        "ConsumerGroupRegularExpression", ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue
    ),
}


# Key and value of the records in `__transaction_state`, as Apache Kafka 4.3 writes them.
#
# Both begin with an int16: the type of the key (always 0) and the version of the value. A null value means that the
# transactional id has expired.
@message(versions="0")
class TransactionLogKey:
    transactional_id: str


@part
class TransactionPartitions:
    topic: str
    partition_ids: list[Int32]


@message(versions="0-1", flexible=1)
class TransactionLogValue:
    """v1 flexible, with the tagged fields of transaction version 2 (KIP-890)."""

    producer_id: Int64
    previous_producer_id: Int64 = wire(since=1, tag=0, default=-1)
    next_producer_id: Int64 = wire(since=1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = wire(since=1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionPartitions] | None = wire(nullable=0)
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = wire(since=1, tag=2, default=0)
