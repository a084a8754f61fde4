"""Fetches of followers: replica state and authorization of a Fetch request. Compiled with mypyc where possible."""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.fetch_sessions import CachedPartition
from ottla.replication.partition import Partition, ReplicaRead

CONSUMER: Final = -1  # replica id of consumers


class FetchingFollower:
    """The follower of one Fetch request."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "context",
        "has_reported",
        "is_allowed",
        "is_stale",
        "now_ms",
        "throttled_ms",
    )

    def __init__(self, context: Context, broker_id: int, broker_epoch: int) -> None:
        self.context = context
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.has_reported = False  # its position was reported; reading again after a wait has nothing new
        self.throttled_ms = 0  # until the throttle allows more
        self.is_allowed = is_authorized_follower(context)
        known = context.broker.image.brokers.get(broker_id)
        # A registered broker with a newer epoch, or an unknown broker: this request is stale.
        self.is_stale = broker_epoch < (known.epoch if known is not None else 0)
        self.now_ms = context.broker.clock.monotonic_ms()

    def read(self, partition: Partition, asked: CachedPartition, max_bytes: int, minimum_one: bool) -> ReplicaRead:
        if self.is_stale:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"Broker {self.broker_id} has another epoch")
        quota = self.context.broker.leader_quota
        is_behind = quota is not None and self.broker_id not in partition.isr
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
            not self.has_reported,
        )
        if quota is not None and read.file_range is not None:
            quota.record(partition, read.file_range.length, is_behind)
        return read

    def __repr__(self) -> str:
        return f"<FetchingFollower {self.broker_id} of epoch {self.broker_epoch}>"


def is_authorized_follower(context: Context) -> bool:
    return context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def is_fetch_authorized(
    context: Context, replica: FetchingFollower | None, asked: CachedPartition, before: CachedPartition | None
) -> bool:
    """Return whether the fetch is authorized. Checked before the lookup of the partition, whose existence must not be
    revealed.

    A granted right is cached until ACLs change, for the next fetch of a session and for the next partition of the topic
    (`before` is the partition read last). Not in permissive mode, where every denial is logged.
    """
    authorizer = context.broker.authorizer
    if authorizer is None:
        return True
    if replica is not None:
        return replica.is_allowed
    client, generation = context.client, authorizer.generation
    if asked.authorized_generation == generation and asked.authorized_client is client:
        return True
    is_same_topic = before is not None and before.topic is asked.topic and before.topic_id is asked.topic_id
    if (
        before is None
        or not is_same_topic
        or before.authorized_generation != generation
        or before.authorized_client is not client
    ):
        topic = asked.topic
        if not topic:
            known = context.broker.image.topics_by_id.get(asked.topic_id)
            if known is None:
                return True  # the response is UNKNOWN_TOPIC_ID
            topic = known.name
        if not context.is_authorized(Operation.READ, ResourceType.TOPIC, topic):
            return False
    if not authorizer.is_permissive:
        asked.authorized_client, asked.authorized_generation = client, generation
    return True
