"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import NO_OPERATIONS, ZERO_UUID, Int16, Int32, message, part, wire


@part
class MetadataRequestTopic:
    topic_id: UUID = wire(since=10, default=ZERO_UUID)
    name: str | None = wire(nullable=10)


@message(api_key=3, versions="0-13", flexible=9)
class MetadataRequest:
    """Metadata (key 3), v0-13. v1 null topics; v4 auto-creation; v8 authorized operations (KIP-430); v9 flexible; v10
    topic ids (KIP-516); v11 without cluster operations (KIP-700); v12 topics can be requested by id.

    An empty list requests all topics in v0, and null from v1 on.
    """

    topics: list[MetadataRequestTopic] | None = wire(nullable=1)  # null: all topics; empty: none (in v0 empty: all)
    allow_auto_topic_creation: bool = wire(since=4, default=True)
    include_cluster_authorized_operations: bool = wire(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = wire(since=8, default=False)


@part
class MetadataResponseBroker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire(since=1, nullable=1, default=None)


@part
class MetadataResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = wire(since=7, default=-1)
    replica_nodes: list[Int32] = wire(default_factory=list)
    isr_nodes: list[Int32] = wire(default_factory=list)
    offline_replicas: list[Int32] = wire(since=5, default_factory=list)


@part
class MetadataResponseTopic:
    error_code: Int16 = 0
    name: str | None = wire(nullable=12)
    topic_id: UUID = wire(since=10, default=ZERO_UUID)
    is_internal: bool = wire(since=1, default=False)
    partitions: list[MetadataResponsePartition] = wire(default_factory=list)
    topic_authorized_operations: Int32 = wire(since=8, default=NO_OPERATIONS)


@message(api_key=3, versions="0-13", flexible=9)
class MetadataResponse:
    """Metadata (key 3), v0-13. v1 racks, controller, internal topics; v2 cluster id; v3 throttle time; v5 offline
    replicas; v7 leader epochs (KIP-320); v8 authorized operations (KIP-430); v9 flexible; v10 topic ids (KIP-516); v11
    without cluster operations (KIP-700); v12 null names; v13 top-level error (KIP-1102).
    """

    throttle_time_ms: Int32 = wire(since=3, default=0)
    brokers: list[MetadataResponseBroker] = wire(default_factory=list)
    cluster_id: str | None = wire(since=2, nullable=2, default=None)
    controller_id: Int32 = wire(since=1, default=-1)
    topics: list[MetadataResponseTopic] = wire(default_factory=list)
    cluster_authorized_operations: Int32 = wire(since=8, until=10, default=NO_OPERATIONS)
    error_code: Int16 = wire(since=13, default=0)
