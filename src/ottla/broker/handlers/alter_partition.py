"""AlterPartition (key 56), v2-3: leaders propose ISR changes (KIP-497). v3 broker epochs (KIP-903)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.controller.decisions.isr_changes import ANY_BROKER_EPOCH, IsrChange, IsrChangeResult
from ottla.protocol.messages.inter_broker import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: AlterPartitionRequest, context: Context) -> AlterPartitionResponse:
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AlterPartitionResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.membership
    assert cluster is not None, "served in a cluster only"
    changes = [to_change(topic.topic_id, row) for topic in request.topics for row in topic.partitions]
    try:
        answers = await cluster.controller.alter_partitions(request.broker_id, request.broker_epoch, changes)
    except KafkaError as refusal:
        return AlterPartitionResponse(error_code=refusal.error)
    topics: dict[UUID, AlteredTopic] = {}
    for answer in answers:
        topic_id = answer.change.topic_id
        topics.setdefault(topic_id, AlteredTopic(topic_id=topic_id)).partitions.append(to_row(answer))
    return AlterPartitionResponse(topics=list(topics.values()))


def to_change(topic_id: UUID, row: AlterPartitionPartition) -> IsrChange:
    isr = [(state.broker_id, state.broker_epoch) for state in row.new_isr_with_epochs]
    isr += [(broker, ANY_BROKER_EPOCH) for broker in row.new_isr]  # the field of the other version is empty
    return IsrChange(
        topic_id, row.partition_index, row.leader_epoch, row.partition_epoch, tuple(isr), row.leader_recovery_state
    )


def to_row(answer: IsrChangeResult) -> AlteredPartition:
    now = answer.partition
    if now is None:
        return AlteredPartition(
            partition_index=answer.change.partition,
            error_code=answer.error,
            leader_id=-1,
            leader_epoch=-1,
            partition_epoch=-1,
        )
    return AlteredPartition(
        partition_index=answer.change.partition,
        error_code=answer.error,
        leader_id=now.leader,
        leader_epoch=now.leader_epoch,
        isr=list(now.isr),
        leader_recovery_state=now.leader_recovery_state,
        partition_epoch=now.partition_epoch,
    )
