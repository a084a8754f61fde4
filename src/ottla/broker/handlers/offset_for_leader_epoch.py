"""OffsetForLeaderEpoch (key 23), v2-4: the end offset of a leader epoch, for detecting truncation (KIP-320).

v3 replica id; v4 flexible.
"""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    if request.replica_id >= 0:
        context.responder.charge = None  # followers are never charged
    topics = []
    turn = TimeSlice()
    is_broker = context.is_granted(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    async for topic in in_slices(request.topics, turn):
        allowed = is_broker or context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        answers = [_answer(topic.topic, asked, context, allowed) async for asked in in_slices(topic.partitions, turn)]
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(topic: str, asked: OffsetForLeaderPartition, context: Context, allowed: bool) -> EpochEndOffset:
    try:
        if not allowed:
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
        partition = context.broker.replicas.get(topic, asked.partition)
        if partition is None:
            raise context.broker.error_for_missing_partition(topic, asked.partition)
        partition.require_leader(asked.current_leader_epoch)
        if asked.leader_epoch > partition.leader_epoch and partition.replica_count > 1:
            # Another broker leads, and the image is still old: clients must not mistake this for a truncation.
            raise KafkaError(Error.UNKNOWN_LEADER_EPOCH)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.error, leader_epoch=-1, end_offset=-1)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, error_code=Error.NONE, leader_epoch=epoch, end_offset=end_offset)
