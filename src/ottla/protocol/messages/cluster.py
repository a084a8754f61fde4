"""The cluster as a whole: API versions, brokers, the metadata quorum, features, UnregisterBroker."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import (
    NO_OPERATIONS,
    OWN_TAG,
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt16,
    message,
    part,
    wire,
)


@message(api_key=18, versions="0-4", flexible=3)
class ApiVersionsRequest:
    """ApiVersions (key 18), v0-4: the first request of most clients. v3 flexible, name and version of the client
    (KIP-511).

    A broker that does not support the version responds in v0, with UNSUPPORTED_VERSION and its own range.
    """

    client_software_name: str = wire(since=3, default="")
    client_software_version: str = wire(since=3, default="")


@part
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@part
class SupportedFeatureKey:
    """A feature and the levels that this broker supports."""

    name: str
    min_version: Int16
    max_version: Int16


@part
class FinalizedFeatureKey:
    """A feature and its finalized levels in the cluster."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


@message(api_key=18, versions="0-4", flexible=3)
class ApiVersionsResponse:
    """ApiVersions (key 18), v0-4. v1 throttle time; v3 flexible, features; v4 supported features may start at 0.

    Java clients of v3 reject a supported feature whose min_version is 0: omit those before v4, as Kafka does.
    """

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = wire(default_factory=list)
    throttle_time_ms: Int32 = wire(since=1, default=0)
    supported_features: list[SupportedFeatureKey] = wire(since=3, tag=0, default_factory=list)
    finalized_features_epoch: Int64 = wire(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = wire(since=3, tag=2, default_factory=list)
    zk_migration_ready: bool = wire(since=3, tag=3, default=False)


@message(api_key=60, versions="0-2", flexible=0)
class DescribeClusterRequest:
    """DescribeCluster (key 60), v0-2 (KIP-700). v1 brokers or controllers (KIP-919); v2 fenced brokers (KIP-1073)."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: Int8 = wire(since=1, default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: bool = wire(since=2, default=False)


@part
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(nullable=0, default=None)
    is_fenced: bool = wire(since=2, default=False)
    # Ours: the broker's current epoch; other clients skip the tag.
    broker_epoch: Int64 = wire(tag=OWN_TAG, default=-1)


@message(api_key=60, versions="0-2", flexible=0)
class DescribeClusterResponse:
    """DescribeCluster (key 60), v0-2 (KIP-700). v1 endpoint type (KIP-919); v2 which brokers are fenced (KIP-1073)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    endpoint_type: Int8 = wire(since=1, default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = wire(default_factory=list)
    cluster_authorized_operations: Int32 = NO_OPERATIONS


@part
class DescribeQuorumPartition:
    partition_index: Int32


@part
class DescribeQuorumTopic:
    topic_name: str
    partitions: list[DescribeQuorumPartition] = wire(default_factory=list)


@message(api_key=55, versions="0-2", flexible=0)
class DescribeQuorumRequest:
    """DescribeQuorum (key 55), v0-2: the voters and observers of the metadata log (KIP-595)."""

    topics: list[DescribeQuorumTopic] = wire(default_factory=list)


@part
class QuorumReplica:
    replica_id: Int32
    replica_directory_id: UUID = wire(since=2, default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = wire(since=1, default=-1)
    last_caught_up_timestamp: Int64 = wire(since=1, default=-1)


@part
class DescribedQuorumPartition:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = wire(since=2, nullable=2, default=None)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[QuorumReplica] = wire(default_factory=list)
    observers: list[QuorumReplica] = wire(default_factory=list)


@part
class DescribedQuorumTopic:
    topic_name: str
    partitions: list[DescribedQuorumPartition] = wire(default_factory=list)


@part
class QuorumListener:
    name: str
    host: str
    port: UInt16


@part
class QuorumNode:
    node_id: Int32
    listeners: list[QuorumListener] = wire(default_factory=list)


@message(api_key=55, versions="0-2", flexible=0)
class DescribeQuorumResponse:
    """DescribeQuorum (key 55), v0-2 (KIP-595). v1 last fetch time of replicas (KIP-836); v2 directories, nodes,
    messages (KIP-853).
    """

    error_code: Int16 = 0
    error_message: str | None = wire(since=2, nullable=2, default=None)
    topics: list[DescribedQuorumTopic] = wire(default_factory=list)
    nodes: list[QuorumNode] = wire(since=2, default_factory=list)


# Finalized features of the cluster: change their levels.
@part
class FeatureUpdateKey:
    """One feature: upgrade type 1 upgrades, 2 downgrades if no data is lost (safe), 3 downgrades anyway (unsafe)."""

    feature: str
    max_version_level: Int16  # 0 disables the feature
    allow_downgrade: bool = wire(until=0, default=False)
    upgrade_type: Int8 = wire(since=1, default=1)


@message(api_key=57, versions="0-2", flexible=0)
class UpdateFeaturesRequest:
    """UpdateFeatures (key 57), v0-2 (KIP-584). v1 upgrade types and dry runs (KIP-778)."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = wire(default_factory=list)
    validate_only: bool = wire(since=1, default=False)


@part
class UpdatableFeatureResult:
    feature: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=57, versions="0-2", flexible=0)
class UpdateFeaturesResponse:
    """UpdateFeatures (key 57), v0-2. v2 all or nothing, without results of single features (KIP-1022)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    results: list[UpdatableFeatureResult] = wire(until=1, default_factory=list)


# UnregisterBroker: remove a broker that will not return from the cluster.
@message(api_key=64, versions="0", flexible=0)
class UnregisterBrokerRequest:
    """UnregisterBroker (key 64), v0 (KIP-500)."""

    broker_id: Int32


@message(api_key=64, versions="0", flexible=0)
class UnregisterBrokerResponse:
    """UnregisterBroker (key 64), v0. BROKER_ID_NOT_REGISTERED if the broker is unknown."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
