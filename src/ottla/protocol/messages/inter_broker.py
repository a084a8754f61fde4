"""Requests of brokers to the controller, and forwarded requests: never sent by ordinary clients."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, message, part, wire


@part
class RemainingPartition:
    topic_name: str
    partition_index: Int32


@message(api_key=7, versions="1-3", flexible=3)
class ControlledShutdownRequest:
    """ControlledShutdown (key 7), v1-3: transfers the leadership of a stopping broker. v2 broker epoch (KIP-380); v3
    flexible.
    """

    broker_id: Int32
    broker_epoch: Int64 = wire(since=2, default=-1)


@message(api_key=7, versions="1-3", flexible=3)
class ControlledShutdownResponse:
    """ControlledShutdown (key 7), v1-3. The remaining partitions have no other replica that could lead."""

    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition] = wire(default_factory=list)


@part
class BrokerState:
    """A replica in the ISR with its broker epoch, so that a restarted broker is not mistaken for it."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@part
class AlterPartitionPartition:
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = wire(until=2, default_factory=list)
    new_isr_with_epochs: list[BrokerState] = wire(since=3, default_factory=list)
    leader_recovery_state: Int8 = 0  # 1: still recovering from an unclean election
    partition_epoch: Int32


@part
class AlterPartitionTopic:
    topic_id: UUID = ZERO_UUID
    partitions: list[AlterPartitionPartition] = wire(default_factory=list)


@message(api_key=56, versions="2-3", flexible=0)
class AlterPartitionRequest:
    """AlterPartition (key 56), v2-3: a leader proposes an ISR (KIP-497). v2 topic ids (KIP-841); v3 broker epochs in
    the ISR (KIP-903).
    """

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionTopic] = wire(default_factory=list)


@part
class AlteredPartition:
    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32] = wire(default_factory=list)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


@part
class AlteredTopic:
    topic_id: UUID = ZERO_UUID
    partitions: list[AlteredPartition] = wire(default_factory=list)


@message(api_key=56, versions="2-3", flexible=0)
class AlterPartitionResponse:
    """AlterPartition (key 56), v2-3.

    Top-level errors: STALE_BROKER_EPOCH, NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED. Errors of a partition:
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, INVALID_UPDATE_VERSION, FENCED_LEADER_EPOCH, NOT_CONTROLLER,
    INVALID_REQUEST, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED, OPERATION_NOT_ATTEMPTED.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlteredTopic] = wire(default_factory=list)


@message(api_key=58, versions="0", flexible=0)
class EnvelopeRequest:
    """Envelope (key 58), v0: a client's request that a broker forwards to the controller (KIP-590)."""

    request_data: bytes  # header and body, as the client sent them
    request_principal: bytes | None = wire(nullable=0, default=None)  # a PrincipalData after a two-byte version
    client_host_address: bytes  # 4 or 16 bytes


@message(api_key=58, versions="0", flexible=0)
class EnvelopeResponse:
    """Envelope (key 58), v0 (KIP-590). With an error here the request inside was not processed:
    CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST, UNSUPPORTED_VERSION,
    PRINCIPAL_DESERIALIZATION_FAILURE.
    """

    response_data: bytes | None = wire(nullable=0, default=None)  # header and body, as the client receives them
    error_code: Int16 = 0


@message(versions="0", flexible=0)
class PrincipalData:
    """The principal of a forwarded request."""

    type: str
    name: str
    token_authenticated: bool = False


@message(api_key=67, versions="0", flexible=0)
class AllocateProducerIdsRequest:
    """AllocateProducerIds (key 67), v0 (KIP-730): a block of producer ids for one broker."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@message(api_key=67, versions="0", flexible=0)
class AllocateProducerIdsResponse:
    """AllocateProducerIds (key 67), v0 (KIP-730). Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH,
    CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64
    producer_id_len: Int32


@message(api_key=10001, versions="0", flexible=0)
class WriteAuditRequest:
    """WriteAudit (key 10001), v0, our own: events of the audit trail for a partition that another broker leads."""

    partition_index: Int32
    records: bytes


@message(api_key=10001, versions="0", flexible=0)
class WriteAuditResponse:
    """WriteAudit (key 10001), v0. Sent when all in-sync replicas have the events."""

    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


# ClusterPoll: incremental metadata updates from the controller to the brokers, an API of ottla. Kafka 3.9 pushes whole
# requests (LeaderAndIsr, UpdateMetadata), Kafka 4 replicates a log. A broker long-polls; the sequence in its request
# acknowledges all changes up to it. A new field gets a new version, or a tag if other brokers may ignore it: brokers of
# two releases must work together during an upgrade.
@part
class OfflineReplicas:
    """Replicas of this broker in failed log directories."""

    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = wire(default_factory=list)


@message(api_key=10000, versions="0-1", flexible=0)
class ClusterPollRequest:
    """ClusterPoll (key 10000), v0-1: all changes after `sequence`, which acknowledges those up to it.

    v1 the supported level of `ottla.version`; brokers of version 0 support the first level only.
    """

    broker_id: Int32
    broker_epoch: Int64
    controller_epoch: Int32  # of the controller that `sequence` belongs to
    sequence: Int64 = -1  # the last one applied; -1: none, send a snapshot
    max_wait_ms: Int32 = 0
    offline: list[OfflineReplicas] = wire(default_factory=list)  # the complete list in every request
    level_max: Int16 = wire(since=1, default=1)
    sync_ms: Int32 = wire(tag=0, default=0)  # the fastest sync of the slowest disk; 0: no sync was measured


@part
class DeltaEndpoint:
    name: str  # the listener's name
    host: str
    port: Int32
    protocol: str


@part
class DeltaBroker:
    """A new or changed broker."""

    broker_id: Int32
    broker_epoch: Int64
    endpoints: list[DeltaEndpoint] = wire(default_factory=list)
    rack: str | None = wire(nullable=0, default=None)
    jmx_port: Int32 = -1


@part
class DeltaPartition:
    """The complete state of a new or changed partition."""

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
    """A new topic or one with changed partitions; partitions that are not listed are unchanged."""

    topic_id: UUID = ZERO_UUID
    name: str
    partitions: list[DeltaPartition] = wire(default_factory=list)


@part
class DeltaSetting:
    name: str
    value: str


@part
class DeltaConfigs:
    """All settings of one resource; empty if its last one was removed."""

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
    """All access rules of one resource; empty if its last one was removed."""

    resource_type: Int8
    name: str
    pattern_type: Int8
    entries: list[DeltaAclEntry] = wire(default_factory=list)


@part
class DeltaToken:
    """A new or changed delegation token; its password is never sent."""

    token_id: str
    owner: str
    requester: str
    renewers: list[str] = wire(default_factory=list)
    issue_ms: Int64
    max_ms: Int64
    expiry_ms: Int64


@part
class MetadataDelta:
    """The changes of one sequence number; a snapshot contains the complete state and replaces the previous one."""

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
    features: list[DeltaFeature] | None = wire(nullable=0, default=None)  # null: unchanged
    features_epoch: Int32 = 0
    # ZooKeeper nodes that cannot be parsed; null: unchanged.
    damaged: list[str] | None = wire(tag=0, nullable=0, default=None)
    acls: list[DeltaAcls] = wire(tag=1, default_factory=list)  # a broker without this tag enforces no access rules
    tokens: list[DeltaToken] = wire(tag=4, default_factory=list)
    removed_tokens: list[str] = wire(tag=5, default_factory=list)


@message(api_key=10000, versions="0-1", flexible=0)
class ClusterPollResponse:
    """ClusterPoll (key 10000), v0-1. v1 a message for the error.

    Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION (of a broker).
    """

    error_code: Int16 = 0
    error_message: str | None = wire(since=1, nullable=1, default=None)
    controller_epoch: Int32 = 0
    deltas: list[MetadataDelta] = wire(default_factory=list)  # ordered by sequence number
