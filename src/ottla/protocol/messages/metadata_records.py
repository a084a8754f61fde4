"""Values of the records in `__cluster_metadata`, KRaft's own log, as far as a reader needs them.

A value is a frame: unsigned varints for the version of the frame (1), the type of the record and its version, then the
record. Types that are not listed here are skipped.
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import Float64, Int8, Int32, Int64, message, wire

FRAME_VERSION = 1


@message(versions="0", flexible=0)
class TopicRecord:
    name: str
    topic_id: UUID


@message(versions="0-2", flexible=0)
class PartitionRecord:
    """v1 log directories (KIP-858); v2 eligible leader replicas (KIP-966)."""

    partition_id: Int32
    topic_id: UUID
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32
    leader_recovery_state: Int8 = wire(tag=0, default=0)
    leader_epoch: Int32
    partition_epoch: Int32
    directories: list[UUID] = wire(since=1, default_factory=list)
    eligible_leader_replicas: list[Int32] | None = wire(since=2, tag=1, nullable=2, default=None)
    last_known_elr: list[Int32] | None = wire(since=2, tag=2, nullable=2, default=None)


@message(versions="0", flexible=0)
class ConfigRecord:
    """A null value removes the setting. The resource type of a topic is 2."""

    resource_type: Int8
    resource_name: str
    name: str
    value: str | None = wire(nullable=0)


@message(versions="0", flexible=0)
class RemoveTopicRecord:
    topic_id: UUID


@message(versions="0", flexible=0)
class ProducerIdsRecord:
    """All ids below the next one were allocated to brokers."""

    broker_id: Int32
    broker_epoch: Int64
    next_producer_id: Int64


@message(versions="0", flexible=0)
class QuotaEntityPart:
    """A null name is the default of its type."""

    entity_type: str
    entity_name: str | None = wire(nullable=0)


@message(versions="0", flexible=0)
class ClientQuotaRecord:
    """One quota of one entity, or its removal."""

    entity: list[QuotaEntityPart]
    key: str
    value: Float64
    remove: bool


@message(versions="0", flexible=0)
class UserScramCredentialRecord:
    """A stored SCRAM credential. The mechanism is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    name: str
    mechanism: Int8
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: Int32


@message(versions="0", flexible=0)
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: Int8


@message(versions="0", flexible=0)
class AccessControlEntryRecord:
    """One access rule, with the numbers of CreateAcls."""

    id: UUID
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(versions="0", flexible=0)
class RemoveAccessControlEntryRecord:
    id: UUID


@message(versions="0", flexible=0)
class DelegationTokenRecord:
    """The current state of a token; principals include their types."""

    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


@message(versions="0", flexible=0)
class RemoveDelegationTokenRecord:
    token_id: str


METADATA_RECORDS: dict[int, type] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    26: RemoveDelegationTokenRecord,
}
