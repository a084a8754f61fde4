"""EndTxn (key 26), v0-5: commits or aborts a transaction. v5 transactions V2: returns the epoch of the next one."""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import run_decision
from ottla.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import EndTransactionResult

FENCED_SINCE: Final = 2
VERSION_2_SINCE: Final = 5
NO_PRODUCER_ID: Final = -1


async def handle(request: EndTxnRequest, context: Context) -> EndTxnResponse:
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return EndTxnResponse(error_code=Error.INVALID_REQUEST)
    try:
        ended = await end(request, context)
    except KafkaError as refusal:
        ended = EndTransactionResult(refusal.error)
    error = ended.error
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error, producer_id=ended.producer_id, producer_epoch=ended.epoch)


async def end(request: EndTxnRequest, context: Context) -> EndTransactionResult:
    transactions = context.broker.coordinators.transactions
    transactional_id = request.transactional_id
    fresh_id = NO_PRODUCER_ID
    if transactions.shard(transactional_id).machine.needs_producer_id(transactional_id):
        fresh_id = await context.broker.controller_requests.producer_ids.next_id()
    who = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    version = 2 if context.api_version >= VERSION_2_SINCE else 0
    ended: EndTransactionResult = await run_decision(
        transactions,
        transactional_id,
        lambda machine, reply_to, now_ms: machine.end_transaction(
            transactional_id, who, request.committed, version, fresh_id, reply_to, now_ms
        ),
    )
    return ended
