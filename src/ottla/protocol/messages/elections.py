"""ElectLeaders: have partitions led by their preferred replica, or by any that lives."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, message, part, wire


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
    """ElectLeaders (key 43), v0-2. v1 an error of the whole; v2 flexible.

    Of a partition: UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ELECTION_NOT_NEEDED, NOT_CONTROLLER, REQUEST_TIMED_OUT. All partitions: those that need no election are left out.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = wire(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = wire(default_factory=list)
