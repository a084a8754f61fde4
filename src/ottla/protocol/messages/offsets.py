"""Offset lookups in a log: by timestamp, and by leader epoch."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, Int64, message, part, wire


@part
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = wire(since=4, default=-1)
    timestamp: Int64


@part
class ListOffsetsTopic:
    name: str
    partitions: list[ListOffsetsPartition] = wire(default_factory=list)


@message(api_key=2, versions="1-11", flexible=6)
class ListOffsetsRequest:
    """ListOffsets (key 2), v1-11. v2 isolation level; v4 leader epoch (KIP-320); v6 flexible; v10 timeout
    (KIP-1075).

    Special timestamps: -1 latest, -2 earliest; v7 -3 largest timestamp (KIP-734); v8 -4 earliest local (KIP-405);
    v9 -5 last tiered (KIP-1005); v11 -6 earliest pending upload (KIP-1023).
    """

    replica_id: Int32  # -1: a consumer
    isolation_level: Int8 = wire(since=2, default=0)  # 0 read_uncommitted, 1 read_committed
    topics: list[ListOffsetsTopic] = wire(default_factory=list)
    timeout_ms: Int32 = wire(since=10, default=0)


@part
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = wire(since=4, default=-1)


@part
class ListOffsetsTopicResponse:
    name: str
    partitions: list[ListOffsetsPartitionResponse] = wire(default_factory=list)


@message(api_key=2, versions="1-11", flexible=6)
class ListOffsetsResponse:
    """ListOffsets (key 2), v1-11. v2 throttle time; v4 leader epoch (KIP-320); v6 flexible."""

    throttle_time_ms: Int32 = wire(since=2, default=0)
    topics: list[ListOffsetsTopicResponse] = wire(default_factory=list)


@part
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@part
class OffsetForLeaderTopic:
    topic: str
    partitions: list[OffsetForLeaderPartition] = wire(default_factory=list)


@message(api_key=23, versions="2-4", flexible=4)
class OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpoch (key 23), v2-4: the end offset of a leader epoch (KIP-101, KIP-320). v3 replica id; v4
    flexible.
    """

    replica_id: Int32 = wire(since=3, default=-2)  # -1: a consumer; -2: unknown, in versions without the field
    topics: list[OffsetForLeaderTopic] = wire(default_factory=list)


@part
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@part
class OffsetForLeaderTopicResult:
    topic: str
    partitions: list[EpochEndOffset] = wire(default_factory=list)


@message(api_key=23, versions="2-4", flexible=4)
class OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch (key 23), v2-4. v4 flexible."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = wire(default_factory=list)
