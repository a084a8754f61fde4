"""ClusterPoll: how metadata gets from the controller to the other brokers, change by change.

Our own API: Kafka 3.9 pushes whole requests (LeaderAndIsr, UpdateMetadata), Kafka 4 replicates a log. A broker asks and
waits; what it says it has seen acknowledges everything before. A new field gets a new version, or a tag if brokers that
do not know it may pass over it, so that brokers of two releases understand each other during an upgrade.
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, message, part, wire


@part
class OfflineReplicas:
    """Replicas of this broker that lie in failed folders."""

    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = wire(default_factory=list)


@message(api_key=10000, versions="0-1", flexible=0)
class ClusterPollRequest:
    """ClusterPoll (key 10000), v0-1: all changes after `sequence`, which acknowledges those up to it.

    v1 the level of `ottla.version` that the asker supports; brokers of version 0 know of none but the first.
    """

    broker_id: Int32
    broker_epoch: Int64
    controller_epoch: Int32  # of the controller whose sequence this is
    sequence: Int64 = -1  # the last one applied; -1: none, send a snapshot
    max_wait_ms: Int32 = 0
    offline: list[OfflineReplicas] = wire(default_factory=list)  # all of them, each time
    level_max: Int16 = wire(since=1, default=1)
    sync_ms: Int32 = wire(tag=0, default=0)  # that the slowest disk takes for its fastest sync; 0: nobody synced


@part
class DeltaEndpoint:
    name: str  # of the listener
    host: str
    port: Int32
    protocol: str


@part
class DeltaBroker:
    """A broker that is new or has changed."""

    broker_id: Int32
    broker_epoch: Int64
    endpoints: list[DeltaEndpoint] = wire(default_factory=list)
    rack: str | None = wire(nullable=0, default=None)
    jmx_port: Int32 = -1


@part
class DeltaPartition:
    """The whole state of a partition that is new or has changed."""

    partition_index: Int32
    leader: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    leader_recovery_state: Int8 = 0
    isr: list[Int32] = wire(default_factory=list)
    replicas: list[Int32] = wire(default_factory=list)
    adding_replicas: list[Int32] = wire(default_factory=list)
    removing_replicas: list[Int32] = wire(default_factory=list)
    eligible: list[Int32] = wire(default_factory=list)
    last_known_eligible: list[Int32] = wire(default_factory=list)


@part
class DeltaTopic:
    """A topic that is new or has changed partitions; those that are not named stay as they are."""

    topic_id: UUID = ZERO_UUID
    name: str
    partitions: list[DeltaPartition] = wire(default_factory=list)


@part
class DeltaSetting:
    name: str
    value: str


@part
class DeltaConfigs:
    """All settings that one resource has now; none at all if it has lost its last one."""

    resource_type: Int8  # as in DescribeConfigs: 2 topic, 4 broker, 16 client metrics, 32 group; 64 user, 65 quotas
    resource_name: str
    settings: list[DeltaSetting] = wire(default_factory=list)


@part
class DeltaFeature:
    name: str
    level: Int16


@part
class DeltaAclEntry:
    principal: str
    host: str
    operation: Int8
    permission: Int8


@part
class DeltaAcls:
    """All access rules that one resource has now; none at all if it has lost its last one."""

    resource_type: Int8
    name: str
    pattern_type: Int8
    entries: list[DeltaAclEntry] = wire(default_factory=list)


@part
class DeltaToken:
    """A delegation token that is new or has changed; its password is never told."""

    token_id: str
    owner: str
    requester: str
    renewers: list[str] = wire(default_factory=list)
    issue_ms: Int64
    max_ms: Int64
    expiry_ms: Int64


@part
class MetadataDelta:
    """What changed with one sequence number; a snapshot holds everything and replaces whatever was there before."""

    sequence: Int64
    is_snapshot: bool = False
    cluster_id: str = ""
    controller_id: Int32 = -1
    controller_epoch: Int32 = 0
    brokers: list[DeltaBroker] = wire(default_factory=list)
    removed_brokers: list[Int32] = wire(default_factory=list)
    topics: list[DeltaTopic] = wire(default_factory=list)
    removed_topics: list[UUID] = wire(default_factory=list)
    configs: list[DeltaConfigs] = wire(default_factory=list)
    features: list[DeltaFeature] | None = wire(nullable=0, default=None)  # null: as before
    features_epoch: Int32 = 0
    damaged: list[str] | None = wire(tag=0, nullable=0, default=None)  # nodes that cannot be read; null: as before
    acls: list[DeltaAcls] = wire(tag=1, default_factory=list)  # a broker that does not know them checks no rights
    tokens: list[DeltaToken] = wire(tag=4, default_factory=list)
    removed_tokens: list[str] = wire(tag=5, default_factory=list)


@message(api_key=10000, versions="0-1", flexible=0)
class ClusterPollResponse:
    """ClusterPoll (key 10000), v0-1. v1 a sentence that goes with an error.

    Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION (of a broker).
    """

    error_code: Int16 = 0
    error_message: str | None = wire(since=1, nullable=1, default=None)
    controller_epoch: Int32 = 0
    deltas: list[MetadataDelta] = wire(default_factory=list)  # in the order of their sequence numbers
