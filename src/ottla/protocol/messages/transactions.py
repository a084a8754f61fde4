"""Producer ids and what producers are doing."""

from __future__ import annotations

from ottla.protocol.schema import Int16, Int32, Int64, message, part, wire


@message(api_key=22, versions="0-5", flexible=2)
class InitProducerIdRequest:
    """InitProducerId (key 22), v0-5. v2 flexible; v3 id and epoch to continue with (KIP-360); v4 PRODUCER_FENCED
    and v5 TRANSACTION_ABORTABLE (KIP-890) may be answered.
    """

    transactional_id: str | None = wire(nullable=0, default=None)
    transaction_timeout_ms: Int32
    producer_id: Int64 = wire(since=3, default=-1)
    producer_epoch: Int16 = wire(since=3, default=-1)


@message(api_key=22, versions="0-5", flexible=2)
class InitProducerIdResponse:
    """InitProducerId (key 22), v0-5. v2 flexible."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16


@part
class DescribeProducersTopicRequest:
    name: str
    partition_indexes: list[Int32] = wire(default_factory=list)


@message(api_key=61, versions="0", flexible=0)
class DescribeProducersRequest:
    """DescribeProducers (key 61), v0 (KIP-664): the producers that a partition remembers."""

    topics: list[DescribeProducersTopicRequest] = wire(default_factory=list)


@part
class ProducerState:
    """What a partition remembers of one producer."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@part
class DescribeProducersPartitionResponse:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    active_producers: list[ProducerState] = wire(default_factory=list)


@part
class DescribeProducersTopicResponse:
    name: str
    partitions: list[DescribeProducersPartitionResponse] = wire(default_factory=list)


@message(api_key=61, versions="0", flexible=0)
class DescribeProducersResponse:
    """DescribeProducers (key 61), v0 (KIP-664)."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResponse] = wire(default_factory=list)
