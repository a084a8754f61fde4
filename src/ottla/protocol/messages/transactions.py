"""Transactions: producer ids, added partitions and offsets, the end, markers; descriptions of transactions and
producers."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, Int64, message, part, wire


@message(api_key=22, versions="0-5", flexible=2)
class InitProducerIdRequest:
    """InitProducerId (key 22), v0-5. v2 flexible; v3 id and epoch to continue with (KIP-360); v4 may return
    PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890).
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
    """DescribeProducers (key 61), v0 (KIP-664): the known producers of a partition."""

    topics: list[DescribeProducersTopicRequest] = wire(default_factory=list)


@part
class ProducerState:
    """The state of one producer in a partition."""

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


# The steps of a transaction: adding partitions and offsets, the end, the markers; and its description.
@part
class AddPartitionsToTxnTopic:
    name: str
    partitions: list[Int32]


@part
class AddPartitionsToTxnTransaction:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


@message(api_key=24, versions="0-5", flexible=3)
class AddPartitionsToTxnRequest:
    """AddPartitionsToTxn (key 24), v0-5. v3 flexible; v4 several transactions, for brokers (KIP-890)."""

    transactions: list[AddPartitionsToTxnTransaction] = wire(since=4, default_factory=list)
    v3_and_below_transactional_id: str = wire(until=3, default="")
    v3_and_below_producer_id: Int64 = wire(until=3, default=0)
    v3_and_below_producer_epoch: Int16 = wire(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(until=3, default_factory=list)


@part
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@part
class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@part
class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(api_key=24, versions="0-5", flexible=3)
class AddPartitionsToTxnResponse:
    """AddPartitionsToTxn (key 24), v0-5. v3 flexible; v4 several transactions."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = wire(since=4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire(since=4, default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(until=3, default_factory=list)


@message(api_key=25, versions="0-4", flexible=3)
class AddOffsetsToTxnRequest:
    """AddOffsetsToTxn (key 25), v0-4. v3 flexible."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message(api_key=25, versions="0-4", flexible=3)
class AddOffsetsToTxnResponse:
    """AddOffsetsToTxn (key 25), v0-4. v3 flexible."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


@message(api_key=26, versions="0-5", flexible=3)
class EndTxnRequest:
    """EndTxn (key 26), v0-5. v3 flexible; v5 transaction version 2 (KIP-890)."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


@message(api_key=26, versions="0-5", flexible=3)
class EndTxnResponse:
    """EndTxn (key 26), v0-5. v5 the id and epoch of the next transaction (KIP-890)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = wire(since=5, default=-1)
    producer_epoch: Int16 = wire(since=5, default=-1)


@part
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: list[Int32]


@part
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = wire(since=2, default=0)


@message(api_key=27, versions="1-2", flexible=1)
class WriteTxnMarkersRequest:
    """WriteTxnMarkers (key 27), v1-2, between brokers. v1 flexible; v2 transaction version."""

    markers: list[WritableTxnMarker]


@part
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@part
class WritableTxnMarkerTopicResult:
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


@part
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message(api_key=27, versions="1-2", flexible=1)
class WriteTxnMarkersResponse:
    """WriteTxnMarkers (key 27), v1-2."""

    markers: list[WritableTxnMarkerResult]


@part
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = wire(since=2, default=-1)
    committed_metadata: str | None = wire(nullable=0)


@part
class TxnOffsetCommitRequestTopic:
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


@message(api_key=28, versions="0-5", flexible=3)
class TxnOffsetCommitRequest:
    """TxnOffsetCommit (key 28), v0-5. v2 leader epoch; v3 flexible, group membership (KIP-447); v5 transaction version
    2 (KIP-890).
    """

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = wire(since=3, default=-1)
    member_id: str = wire(since=3, default="")
    group_instance_id: str | None = wire(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@part
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@part
class TxnOffsetCommitResponseTopic:
    name: str
    partitions: list[TxnOffsetCommitResponsePartition]


@message(api_key=28, versions="0-5", flexible=3)
class TxnOffsetCommitResponse:
    """TxnOffsetCommit (key 28), v0-5. v3 flexible."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


@message(api_key=65, versions="0", flexible=0)
class DescribeTransactionsRequest:
    """DescribeTransactions (key 65), v0 (KIP-664)."""

    transactional_ids: list[str]


@part
class DescribedTransactionTopic:
    topic: str
    partitions: list[Int32]


@part
class DescribedTransaction:
    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[DescribedTransactionTopic]


@message(api_key=65, versions="0", flexible=0)
class DescribeTransactionsResponse:
    """DescribeTransactions (key 65), v0."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction]


@message(api_key=66, versions="0-2", flexible=0)
class ListTransactionsRequest:
    """ListTransactions (key 66), v0-2 (KIP-664). v1 by duration (KIP-994); v2 by an id pattern (KIP-1152)."""

    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = wire(since=1, default=-1)
    transactional_id_pattern: str | None = wire(since=2, nullable=2, default=None)


@part
class ListedTransaction:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@message(api_key=66, versions="0-2", flexible=0)
class ListTransactionsResponse:
    """ListTransactions (key 66), v0-2."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = wire(default_factory=list)
    transaction_states: list[ListedTransaction] = wire(default_factory=list)
