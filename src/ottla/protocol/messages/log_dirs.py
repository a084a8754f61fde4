"""Log directories: where partitions lie and how large they are."""

from __future__ import annotations

from ottla.protocol.schema import Int16, Int32, Int64, message, part, wire


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
    """AlterReplicaLogDirs (key 34), v1-2 (KIP-113): put replicas into other folders of this broker. v2 flexible."""

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
    offset_lag: Int64  # how far a copy under way is behind
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
    """DescribeLogDirs (key 35), v1-5. v2 flexible; v3 error of the whole answer; v4 room on disk (KIP-827); v5
    cordoned directories (KIP-1066).
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = wire(since=3, default=0)
    results: list[DescribeLogDirsResult] = wire(default_factory=list)
