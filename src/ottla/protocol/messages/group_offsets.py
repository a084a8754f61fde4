"""Committed offsets of consumer groups."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int16, Int32, Int64, message, part, wire


@part
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(since=6, default=-1)
    committed_metadata: str | None = wire(nullable=0, default=None)


@part
class OffsetCommitRequestTopic:
    name: str = wire(until=9, default="")
    topic_id: UUID = wire(since=10, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = wire(default_factory=list)


@message(api_key=8, versions="2-10", flexible=8)
class OffsetCommitRequest:
    """OffsetCommit (key 8), v2-10. v5 without retention time (KIP-211); v6 leader epoch (KIP-320); v7 static membership
    (KIP-345); v8 flexible; v9 members of the new protocol (KIP-848); v10 topic ids instead of names.
    """

    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str
    group_instance_id: str | None = wire(since=7, nullable=7, default=None)
    retention_time_ms: Int64 = wire(until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = wire(default_factory=list)


@part
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16 = 0


@part
class OffsetCommitResponseTopic:
    name: str = wire(until=9, default="")
    topic_id: UUID = wire(since=10, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = wire(default_factory=list)


@message(api_key=8, versions="2-10", flexible=8)
class OffsetCommitResponse:
    """OffsetCommit (key 8), v2-10. v3 throttle time; v8 flexible; v10 topic ids instead of names."""

    throttle_time_ms: Int32 = wire(since=3, default=0)
    topics: list[OffsetCommitResponseTopic] = wire(default_factory=list)


@part
class OffsetFetchRequestTopic:
    name: str
    partition_indexes: list[Int32] = wire(default_factory=list)


@part
class OffsetFetchRequestTopics:
    name: str = wire(until=9, default="")
    topic_id: UUID = wire(since=10, default=ZERO_UUID)
    partition_indexes: list[Int32] = wire(default_factory=list)


@part
class OffsetFetchRequestGroup:
    group_id: str
    member_id: str | None = wire(since=9, nullable=9, default=None)
    member_epoch: Int32 = wire(since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = wire(nullable=0, default=None)


@message(api_key=9, versions="1-10", flexible=6)
class OffsetFetchRequest:
    """OffsetFetch (key 9), v1-10. v2 null topics mean all; v6 flexible; v7 require stable offsets (KIP-447); v8 several
    groups (KIP-709); v9 members of the new protocol (KIP-848); v10 topic ids instead of names.
    """

    group_id: str = wire(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = wire(until=7, nullable=2, default_factory=list)
    groups: list[OffsetFetchRequestGroup] = wire(since=8, default_factory=list)
    require_stable: bool = wire(since=7, default=False)


@part
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(since=5, default=-1)
    metadata: str | None = wire(nullable=0, default=None)
    error_code: Int16 = 0


@part
class OffsetFetchResponseTopic:
    name: str
    partitions: list[OffsetFetchResponsePartition] = wire(default_factory=list)


@part
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: str | None = wire(nullable=0, default=None)
    error_code: Int16 = 0


@part
class OffsetFetchResponseTopics:
    name: str = wire(until=9, default="")
    topic_id: UUID = wire(since=10, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = wire(default_factory=list)


@part
class OffsetFetchResponseGroup:
    group_id: str
    topics: list[OffsetFetchResponseTopics] = wire(default_factory=list)
    error_code: Int16 = 0


@message(api_key=9, versions="1-10", flexible=6)
class OffsetFetchResponse:
    """OffsetFetch (key 9), v1-10. v2 error of the group; v3 throttle time; v5 leader epoch (KIP-320); v6 flexible; v8
    several groups (KIP-709); v10 topic ids instead of names.
    """

    throttle_time_ms: Int32 = wire(since=3, default=0)
    topics: list[OffsetFetchResponseTopic] = wire(until=7, default_factory=list)
    error_code: Int16 = wire(since=2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = wire(since=8, default_factory=list)


@part
class OffsetDeleteRequestPartition:
    partition_index: Int32


@part
class OffsetDeleteRequestTopic:
    name: str
    partitions: list[OffsetDeleteRequestPartition] = wire(default_factory=list)


@message(api_key=47, versions="0")
class OffsetDeleteRequest:
    """OffsetDelete (key 47), v0 (KIP-496)."""

    group_id: str
    topics: list[OffsetDeleteRequestTopic] = wire(default_factory=list)


@part
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16 = 0


@part
class OffsetDeleteResponseTopic:
    name: str
    partitions: list[OffsetDeleteResponsePartition] = wire(default_factory=list)


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    """OffsetDelete (key 47), v0 (KIP-496)."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = wire(default_factory=list)
