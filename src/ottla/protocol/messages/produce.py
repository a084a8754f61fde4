"""Produce: append record batches to partition leaders."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int16, Int32, Int64, ReceivedRecords, message, part, wire


@part
class PartitionProduceData:
    index: Int32
    records: ReceivedRecords | None = wire(nullable=0, default=None)


@part
class TopicProduceData:
    name: str = wire(until=12, default="")
    topic_id: UUID = wire(since=13, default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = wire(default_factory=list)


@message(api_key=0, versions="3-13", flexible=9)
class ProduceRequest:
    """Produce (key 0), v3-13. v3 transactional id, batches of magic 2; v7 zstd (KIP-110); v9 flexible; v11, v12
    transactions v2 (KIP-890); v13 topic ids instead of names (KIP-516). v4-v6, v8 and v10 changed only the response.
    """

    transactional_id: str | None = wire(nullable=0, default=None)
    acks: Int16  # 0 none, 1 the leader, -1 all in-sync replicas
    timeout_ms: Int32
    topic_data: list[TopicProduceData] = wire(default_factory=list)


@part
class BatchIndexAndErrorMessage:
    """One record that caused the rejection of its batch."""

    batch_index: Int32
    batch_index_error_message: str | None = wire(nullable=0, default=None)


@part
class LeaderIdAndEpoch:
    """The current leader, for a client that sent its request to another broker."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@part
class PartitionProduceResponse:
    index: Int32
    error_code: Int16 = 0
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = wire(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = wire(since=8, default_factory=list)
    error_message: str | None = wire(since=8, nullable=8, default=None)
    current_leader: LeaderIdAndEpoch | None = wire(since=10, tag=0, default=None)


@part
class TopicProduceResponse:
    name: str = wire(until=12, default="")
    topic_id: UUID = wire(since=13, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = wire(default_factory=list)


@part
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(nullable=0, default=None)


@message(api_key=0, versions="3-13", flexible=9)
class ProduceResponse:
    """Produce (key 0), v3-13. v5 log start offset; v8 errors of single records (KIP-467); v9 flexible; v10 the current
    leader if it is another broker (KIP-951); v13 topic ids instead of names (KIP-516). A request with acks=0 gets no
    response.
    """

    responses: list[TopicProduceResponse] = wire(default_factory=list)
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = wire(since=10, tag=0, default_factory=list)
