"""Fetch: read record batches from partition leaders, for consumers and followers."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import (
    INT32_MAX,
    INT64_MAX,
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    message,
    part,
    wire,
)


@part
class ReplicaState:
    """The fetching follower (v15; before that the request's replica_id)."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@part
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = wire(since=9, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = wire(since=12, default=-1)
    log_start_offset: Int64 = wire(since=5, default=-1)
    partition_max_bytes: Int32
    replica_directory_id: UUID = wire(since=17, tag=0, default=ZERO_UUID)
    high_watermark: Int64 = wire(since=18, tag=1, default=INT64_MAX)


@part
class FetchTopic:
    topic: str = wire(until=12, default="")
    topic_id: UUID = wire(since=13, default=ZERO_UUID)
    partitions: list[FetchPartition] = wire(default_factory=list)


@part
class ForgottenTopic:
    topic: str = wire(until=12, default="")
    topic_id: UUID = wire(since=13, default=ZERO_UUID)
    partitions: list[Int32] = wire(default_factory=list)


@message(api_key=1, versions="4-18", flexible=12)
class FetchRequest:
    """Fetch (key 1), v4-18. v4 isolation level; v5 follower's log start offset; v7 fetch sessions (KIP-227); v9
    leader epoch (KIP-320); v10 zstd; v11 rack (KIP-392); v12 flexible, last fetched epoch (KIP-595); v13 topic ids
    (KIP-516); v15 replica state (KIP-903); v17 directory ids (KIP-853); v18 follower's high watermark (KIP-1166).
    """

    cluster_id: str | None = wire(since=12, nullable=12, tag=0, default=None)
    replica_id: Int32 = wire(until=14, default=-1)  # -1: a consumer
    replica_state: ReplicaState | None = wire(since=15, tag=1, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = INT32_MAX
    isolation_level: Int8 = 0  # 0 read_uncommitted, 1 read_committed
    session_id: Int32 = wire(since=7, default=0)
    session_epoch: Int32 = wire(since=7, default=-1)  # -1: no session; 0: open one
    topics: list[FetchTopic] = wire(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = wire(since=7, default_factory=list)
    rack_id: str = wire(since=11, default="")


@part
class EpochEndOffset:
    """The offset where the logs of leader and follower diverge."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@part
class LeaderIdAndEpoch:
    """The current leader, for a client that sent its request to another broker."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@part
class SnapshotId:
    """Of the metadata log only: fetch this snapshot instead."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@part
class AbortedTransaction:
    """The aborted transactions whose records a read_committed consumer skips."""

    producer_id: Int64
    first_offset: Int64


@part
class PartitionData:
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = wire(since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = wire(since=12, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = wire(since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = wire(since=12, tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = wire(nullable=0, default=None)
    preferred_read_replica: Int32 = wire(since=11, default=-1)
    records: Records | None = wire(nullable=0, default=None)


@part
class FetchableTopicResponse:
    topic: str = wire(until=12, default="")
    topic_id: UUID = wire(since=13, default=ZERO_UUID)
    partitions: list[PartitionData] = wire(default_factory=list)


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(nullable=0, default=None)


@message(api_key=1, versions="4-18", flexible=12)
class FetchResponse:
    """Fetch (key 1), v4-18. v5 log start offset; v7 top-level error and session (KIP-227); v11 preferred replica
    (KIP-392); v12 flexible, diverging epochs (KIP-595); v13 topic ids (KIP-516); v16 endpoints of new leaders
    (KIP-951).
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = wire(since=7, default=0)
    session_id: Int32 = wire(since=7, default=0)
    responses: list[FetchableTopicResponse] = wire(default_factory=list)
    node_endpoints: list[NodeEndpoint] = wire(since=16, tag=0, default_factory=list)
