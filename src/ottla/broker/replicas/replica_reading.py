"""What a follower's fetch is told about one partition, and who may fetch. Compiled with mypyc where possible."""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.fetch_sessions import FetchPartition
from ottla.replication.partition import Partition
from ottla.replication.replica import ReplicaRead

CONSUMER: Final = -1  # in the place where a follower gives its broker id


class FetchingReplica:
    """The follower behind one Fetch request."""

    __slots__ = ("broker_epoch", "broker_id", "context", "has_told", "is_allowed", "is_stale", "now_ms", "throttled_ms")

    def __init__(self, context: Context, broker_id: int, broker_epoch: int) -> None:
        self.context = context
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.has_told = False  # how far it is; reading again after a wait tells nothing new
        self.throttled_ms = 0  # until it may have more of what it was denied
        self.is_allowed = may_replicate(context)
        known = context.broker.image.brokers.get(broker_id)
        # Of an earlier life of that broker, or of no broker at all: those of the cluster know their epoch.
        self.is_stale = broker_epoch < (known.epoch if known is not None else 0)
        self.now_ms = context.broker.clock.monotonic_ms()

    def read(self, partition: Partition, asked: FetchPartition, max_bytes: int, minimum_one: bool) -> ReplicaRead:
        if self.is_stale:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"Broker {self.broker_id} has another epoch")
        quota = self.context.broker.leader_quota
        is_behind = quota is not None and self.broker_id not in partition.in_sync
        throttled_ms = quota.wait_ms(partition, is_behind) if quota is not None else 0
        if throttled_ms:
            max_bytes, minimum_one = 0, False
            self.throttled_ms = throttled_ms
        read = partition.read_for_replica(
            self.broker_id,
            self.broker_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.leader_epoch,
            max_bytes,
            minimum_one,
            self.now_ms,
            asked.log_start_offset,
            not self.has_told,
        )
        if quota is not None and read.file_range is not None:
            quota.note(partition, read.file_range.length, is_behind)
        return read

    def __repr__(self) -> str:
        return f"<FetchingReplica {self.broker_id} of epoch {self.broker_epoch}>"


def may_replicate(context: Context) -> bool:
    return context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def may_fetch(
    context: Context, replica: FetchingReplica | None, asked: FetchPartition, before: FetchPartition | None
) -> bool:
    """Asked before anybody looks for the partition: who may not read it does not learn whether it is there.

    What was granted holds until rules change, for the next fetch of a session, and for the next partition of the topic
    (`before` is the one that was read last). Not in a rehearsal, where every denial is to be noted.
    """
    authorizer = context.broker.authorizer
    if authorizer is None:
        return True
    if replica is not None:
        return replica.is_allowed
    client, generation = context.client, authorizer.generation
    if asked.granted_by == generation and asked.granted_to is client:
        return True
    is_same_topic = before is not None and before.topic is asked.topic and before.topic_id is asked.topic_id
    if before is None or not is_same_topic or before.granted_by != generation or before.granted_to is not client:
        topic = asked.topic
        if not topic:
            known = context.broker.image.topics_by_id.get(asked.topic_id)
            if known is None:
                return True  # and learn that there is no such id
            topic = known.name
        if not context.may(Operation.READ, ResourceType.TOPIC, topic):
            return False
    if not authorizer.is_permissive:
        asked.granted_to, asked.granted_by = client, generation
    return True
