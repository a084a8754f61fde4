"""Partition reassignments (KIP-455) and leader elections."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, message, part, wire


@part
class ReassignablePartition:
    partition_index: Int32
    replicas: list[Int32] | None = wire(nullable=0, default=None)  # null cancels


@part
class ReassignableTopic:
    name: str
    partitions: list[ReassignablePartition] = wire(default_factory=list)


@message(api_key=45, versions="0-1", flexible=0)
class AlterPartitionReassignmentsRequest:
    """AlterPartitionReassignments (key 45), v0-1 (KIP-455). v1 may fix the replication factor (KIP-860)."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = wire(since=1, default=True)
    topics: list[ReassignableTopic] = wire(default_factory=list)


@part
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@part
class ReassignableTopicResponse:
    name: str
    partitions: list[ReassignablePartitionResponse] = wire(default_factory=list)


@message(api_key=45, versions="0-1", flexible=0)
class AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments (key 45), v0-1.

    Errors of a partition: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION,
    INVALID_REPLICATION_FACTOR, NOT_CONTROLLER.
    """

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = wire(since=1, default=True)
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    responses: list[ReassignableTopicResponse] = wire(default_factory=list)


@part
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: list[Int32] = wire(default_factory=list)


@message(api_key=46, versions="0", flexible=0)
class ListPartitionReassignmentsRequest:
    """ListPartitionReassignments (key 46), v0 (KIP-455). Null means all topics."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = wire(nullable=0, default=None)


@part
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32] = wire(default_factory=list)
    adding_replicas: list[Int32] = wire(default_factory=list)
    removing_replicas: list[Int32] = wire(default_factory=list)


@part
class OngoingTopicReassignment:
    name: str
    partitions: list[OngoingPartitionReassignment] = wire(default_factory=list)


@message(api_key=46, versions="0", flexible=0)
class ListPartitionReassignmentsResponse:
    """ListPartitionReassignments (key 46), v0 (KIP-455)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    topics: list[OngoingTopicReassignment] = wire(default_factory=list)


# ElectLeaders: elect the preferred replicas as leaders, or any replicas that are alive.
@part
class TopicPartitions:
    topic: str
    partitions: list[Int32] = wire(default_factory=list)


@message(api_key=43, versions="0-2", flexible=2)
class ElectLeadersRequest:
    """ElectLeaders (key 43), v0-2 (KIP-183). v1 unclean elections (KIP-460); v2 flexible. Null means all partitions."""

    election_type: Int8 = wire(since=1, default=0)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = wire(nullable=0, default=None)
    timeout_ms: Int32 = 60000


@part
class ElectionPartitionResult:
    partition_id: Int32
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@part
class ReplicaElectionResult:
    topic: str
    partition_result: list[ElectionPartitionResult] = wire(default_factory=list)


@message(api_key=43, versions="0-2", flexible=2)
class ElectLeadersResponse:
    """ElectLeaders (key 43), v0-2. v1 a top-level error; v2 flexible.

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ELECTION_NOT_NEEDED, NOT_CONTROLLER, REQUEST_TIMED_OUT. If all partitions were requested, those that need no
    election are omitted.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = wire(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = wire(default_factory=list)
