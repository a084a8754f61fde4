"""AddOffsetsToTxn (key 25), v0-4: adds the offsets partition of a group to a transaction.

It is the partition of `__consumer_offsets` that the group belongs to.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.partitioning import partition_for
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import run_decision
from ottla.protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.transactions.transaction import ProducerIdAndEpoch

FENCED_SINCE: Final = 2


async def handle(request: AddOffsetsToTxnRequest, context: Context) -> AddOffsetsToTxnResponse:
    error = await add(request, context)
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)


async def add(request: AddOffsetsToTxnRequest, context: Context) -> Error:
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return Error.GROUP_AUTHORIZATION_FAILED
    if not request.transactional_id:
        return Error.INVALID_REQUEST
    coordinators = context.broker.coordinators
    try:
        coordinators.transactions.shard(request.transactional_id)  # a rejected request creates nothing
        topic = await coordinators.ensure_topic(coordinators.internal_topics.offsets())
        partition = (topic.name, partition_for(request.group_id, len(topic.partitions)))
        who = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        error: Error = await run_decision(
            coordinators.transactions,
            request.transactional_id,
            lambda machine, reply_to, now_ms: machine.add_partitions(
                request.transactional_id, who, [partition], 0, reply_to, now_ms
            ),
        )
    except KafkaError as refusal:
        return refusal.error
    return error
