"""TxnOffsetCommit (key 28), v0-5: how far a group has read, as part of a transaction.

v3 the member that commits, so that one of an older generation is refused (KIP-447); v4 the transaction can be aborted
and tried again (KIP-890); v5 the group's partition need not
have been added before: it is added here (KIP-890).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.known_partitions import refused_partitions
from ottla.broker.waiting_answers import answer_of
from ottla.coordination.partitioning import partition_for
from ottla.protocol.messages.transaction_steps import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.transactions.machine import Identity

ABORTABLE_SINCE: Final = 4
VERSION_2_SINCE: Final = 5


async def handle(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_all(request, Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return refuse_all(request, Error.INVALID_GROUP_ID)
    places = ((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)
    refused = refused_partitions(places, Operation.READ, context)
    try:
        await take_part(request, context)
        response: Any = await answer_of(
            context.broker.coordinators.groups,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.commit_in_transaction(request, refused, reply_to, now_ms),
        )
    except KafkaError as refusal:
        return refuse_all(request, refusal.error)
    answer: TxnOffsetCommitResponse = response
    return answer


async def take_part(request: TxnOffsetCommitRequest, context: Context) -> None:
    """The group's partition must belong to the transaction: a late request of an older one is not written."""
    coordinators = context.broker.coordinators
    topic = context.broker.image.topics.get(coordinators.groups.topic)
    if topic is None:
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
    partition = (topic.name, partition_for(request.group_id, len(topic.partitions)))
    who = Identity(request.producer_id, request.producer_epoch)
    if context.api_version >= VERSION_2_SINCE:
        error = await answer_of(
            coordinators.transactions,
            request.transactional_id,
            lambda machine, reply_to, now_ms: machine.add_partitions(
                request.transactional_id, who, [partition], 2, reply_to, now_ms
            ),
        )
    elif not context.broker.settings.transaction_partition_verification_enable:
        return
    else:
        machine = coordinators.transactions.shard(request.transactional_id).machine
        error, errors = machine.verify_partitions(request.transactional_id, who, [partition])
        error = errors.get(partition, error)
    if error is not Error.NONE:
        raise KafkaError(told(error, context.api_version))


def told(error: Error, api_version: int) -> Error:
    """What a producer of this age is told."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error


def refuse_all(request: TxnOffsetCommitRequest, error: Error) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
