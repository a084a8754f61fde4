"""What brokers ask their controller, and requests that they pass on: never sent by ordinary clients."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, message, part, wire


@part
class RemainingPartition:
    topic_name: str
    partition_index: Int32


@message(api_key=7, versions="1-3", flexible=3)
class ControlledShutdownRequest:
    """ControlledShutdown (key 7), v1-3: a broker that wants to stop hands its leaderships over. v2 broker epoch
    (KIP-380); v3 flexible.
    """

    broker_id: Int32
    broker_epoch: Int64 = wire(since=2, default=-1)


@message(api_key=7, versions="1-3", flexible=3)
class ControlledShutdownResponse:
    """ControlledShutdown (key 7), v1-3. The remaining partitions have nobody else who could lead them."""

    error_code: Int16 = 0
    remaining_partitions: list[RemainingPartition] = wire(default_factory=list)


@part
class BrokerState:
    """A replica in sync and the epoch of the broker that is meant, so that its successor is not."""

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
    """AlterPartition (key 56), v2-3: a leader proposes who is in sync (KIP-497). v2 topic ids (KIP-841); v3 the epochs
    of the brokers in sync (KIP-903).
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

    Errors of the whole: STALE_BROKER_EPOCH, NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED. Of a partition:
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, INVALID_UPDATE_VERSION, FENCED_LEADER_EPOCH, NOT_CONTROLLER,
    INVALID_REQUEST, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED, OPERATION_NOT_ATTEMPTED.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlteredTopic] = wire(default_factory=list)


@message(api_key=58, versions="0", flexible=0)
class EnvelopeRequest:
    """Envelope (key 58), v0: a client's request that another broker passes on to the controller (KIP-590)."""

    request_data: bytes  # header and body, as the client sent them
    request_principal: bytes | None = wire(nullable=0, default=None)  # a PrincipalData, after two bytes of version
    client_host_address: bytes  # 4 or 16 bytes


@message(api_key=58, versions="0", flexible=0)
class EnvelopeResponse:
    """Envelope (key 58), v0 (KIP-590). An error here means that the request inside was not looked at:
    CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST, UNSUPPORTED_VERSION,
    PRINCIPAL_DESERIALIZATION_FAILURE.
    """

    response_data: bytes | None = wire(nullable=0, default=None)  # header and body, as the client shall get them
    error_code: Int16 = 0


@message(versions="0", flexible=0)
class PrincipalData:
    """Who sent a request that is passed on."""

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
    """WriteAudit (key 10001), v0. Answered when all replicas in sync have them."""

    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
