"""Topics: create, delete, add partitions, describe partitions, delete records; log directories of partitions."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import NO_OPERATIONS, ZERO_UUID, Int8, Int16, Int32, Int64, message, part, wire


@part
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32] = wire(default_factory=list)


@part
class CreatableTopicConfig:
    name: str
    value: str | None = wire(nullable=0, default=None)


@part
class CreatableTopic:
    name: str
    num_partitions: Int32  # -1: the broker's default
    replication_factor: Int16  # -1: the broker's default
    assignments: list[CreatableReplicaAssignment] = wire(default_factory=list)
    configs: list[CreatableTopicConfig] = wire(default_factory=list)


@message(api_key=19, versions="2-7", flexible=5)
class CreateTopicsRequest:
    """CreateTopics (key 19), v2-7. v4 -1 means the broker's default of partitions and replicas (KIP-464); v5 flexible;
    v6 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    topics: list[CreatableTopic] = wire(default_factory=list)
    timeout_ms: Int32 = 60000
    validate_only: bool = False  # only check


@part
class CreatableTopicConfigs:
    """A config of the created topic."""

    name: str
    value: str | None = wire(nullable=0, default=None)
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


@part
class CreatableTopicResult:
    name: str
    topic_id: UUID = wire(since=7, default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    topic_config_error_code: Int16 = wire(since=5, tag=0, default=0)
    num_partitions: Int32 = wire(since=5, default=-1)
    replication_factor: Int16 = wire(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = wire(since=5, nullable=5, default=None)


@message(api_key=19, versions="2-7", flexible=5)
class CreateTopicsResponse:
    """CreateTopics (key 19), v2-7. v5 flexible, partitions, replicas and configs (KIP-525); v7 topic ids (KIP-516)."""

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = wire(default_factory=list)


@part
class DeleteTopicState:
    """Either the name or the id is given."""

    name: str | None = wire(nullable=0, default=None)
    topic_id: UUID = ZERO_UUID


@message(api_key=20, versions="1-6", flexible=4)
class DeleteTopicsRequest:
    """DeleteTopics (key 20), v1-6. v4 flexible; v6 topics by id instead of by name (KIP-516)."""

    topics: list[DeleteTopicState] = wire(since=6, default_factory=list)
    topic_names: list[str] = wire(until=5, default_factory=list)
    timeout_ms: Int32


@part
class DeletableTopicResult:
    name: str | None = wire(nullable=6)
    topic_id: UUID = wire(since=6, default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: str | None = wire(since=5, nullable=5, default=None)


@message(api_key=20, versions="1-6", flexible=4)
class DeleteTopicsResponse:
    """DeleteTopics (key 20), v1-6. v3 TOPIC_DELETION_DISABLED; v4 flexible; v5 error messages; v6 topic ids
    (KIP-516).
    """

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = wire(default_factory=list)


@part
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = wire(default_factory=list)


@part
class CreatePartitionsTopic:
    name: str
    count: Int32  # the new total, not the increment
    assignments: list[CreatePartitionsAssignment] | None = wire(nullable=0, default=None)


@message(api_key=37, versions="0-3", flexible=2)
class CreatePartitionsRequest:
    """CreatePartitions (key 37), v0-3. v2 flexible; v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

    topics: list[CreatePartitionsTopic] = wire(default_factory=list)
    timeout_ms: Int32
    validate_only: bool = False  # only check


@part
class CreatePartitionsTopicResult:
    name: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=37, versions="0-3", flexible=2)
class CreatePartitionsResponse:
    """CreatePartitions (key 37), v0-3. v2 flexible."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = wire(default_factory=list)


@part
class DescribeTopicPartitionsTopic:
    name: str


@part
class Cursor:
    """The first partition of the next page."""

    topic_name: str
    partition_index: Int32


@message(api_key=75, versions="0", flexible=0)
class DescribeTopicPartitionsRequest:
    """DescribeTopicPartitions (key 75), v0 (KIP-966): topics page by page, with eligible leader replicas."""

    topics: list[DescribeTopicPartitionsTopic] = wire(default_factory=list)
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = wire(nullable=0, default=None)


@part
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = wire(default_factory=list)
    isr_nodes: list[Int32] = wire(default_factory=list)
    eligible_leader_replicas: list[Int32] | None = wire(nullable=0, default=None)
    last_known_elr: list[Int32] | None = wire(nullable=0, default=None)
    offline_replicas: list[Int32] = wire(default_factory=list)


@part
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = 0
    name: str | None = wire(nullable=0, default=None)
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(default_factory=list)
    topic_authorized_operations: Int32 = NO_OPERATIONS


@message(api_key=75, versions="0", flexible=0)
class DescribeTopicPartitionsResponse:
    """DescribeTopicPartitions (key 75), v0 (KIP-966). next_cursor is null on the last page."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(default_factory=list)
    next_cursor: Cursor | None = wire(nullable=0, default=None)


@part
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64


@part
class DeleteRecordsTopic:
    name: str
    partitions: list[DeleteRecordsPartition] = wire(default_factory=list)


@message(api_key=21, versions="0-2", flexible=2)
class DeleteRecordsRequest:
    """DeleteRecords (key 21), v0-2: delete records below an offset; -1 means the high watermark. v2 flexible."""

    topics: list[DeleteRecordsTopic] = wire(default_factory=list)
    timeout_ms: Int32


@part
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16 = 0


@part
class DeleteRecordsTopicResult:
    name: str
    partitions: list[DeleteRecordsPartitionResult] = wire(default_factory=list)


@message(api_key=21, versions="0-2", flexible=2)
class DeleteRecordsResponse:
    """DeleteRecords (key 21), v0-2. v2 flexible."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = wire(default_factory=list)


# Log directories: the location and size of partitions.
@part
class AlterReplicaLogDirTopic:
    name: str
    partitions: list[Int32] = wire(default_factory=list)


@part
class AlterReplicaLogDir:
    path: str
    topics: list[AlterReplicaLogDirTopic] = wire(default_factory=list)


@message(api_key=34, versions="1-2", flexible=2)
class AlterReplicaLogDirsRequest:
    """AlterReplicaLogDirs (key 34), v1-2 (KIP-113): move replicas to other directories of this broker. v2 flexible."""

    dirs: list[AlterReplicaLogDir] = wire(default_factory=list)


@part
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16 = 0


@part
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult] = wire(default_factory=list)


@message(api_key=34, versions="1-2", flexible=2)
class AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs (key 34), v1-2. v2 flexible."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = wire(default_factory=list)


@part
class DescribableLogDirTopic:
    topic: str
    partitions: list[Int32] = wire(default_factory=list)


@message(api_key=35, versions="1-5", flexible=2)
class DescribeLogDirsRequest:
    """DescribeLogDirs (key 35), v1-5 (KIP-113). v2 flexible. Null topics mean all of them."""

    topics: list[DescribableLogDirTopic] | None = wire(nullable=0, default=None)  # null: all


@part
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64  # the lag of a replica that is being moved
    is_future_key: bool = False


@part
class DescribeLogDirsTopic:
    name: str
    partitions: list[DescribeLogDirsPartition] = wire(default_factory=list)


@part
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: str
    topics: list[DescribeLogDirsTopic] = wire(default_factory=list)
    total_bytes: Int64 = wire(since=4, default=-1)
    usable_bytes: Int64 = wire(since=4, default=-1)
    is_cordoned: bool = wire(since=5, default=False)


@message(api_key=35, versions="1-5", flexible=2)
class DescribeLogDirsResponse:
    """DescribeLogDirs (key 35), v1-5. v2 flexible; v3 top-level error; v4 disk space (KIP-827); v5 cordoned directories
    (KIP-1066).
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = wire(since=3, default=0)
    results: list[DescribeLogDirsResult] = wire(default_factory=list)
