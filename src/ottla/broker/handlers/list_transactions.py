"""ListTransactions (key 66), v0-2: the transactional ids of this broker. v1 by duration; v2 by a pattern."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinators.patterns import PatternError, compile_pattern
from ottla.broker.slices import Turn, in_slices
from ottla.protocol.messages.transaction_steps import ListTransactionsRequest, ListTransactionsResponse
from ottla.transactions.transaction import SHOWN_STATES


async def handle(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in SHOWN_STATES]
    states = {SHOWN_STATES[name] for name in request.state_filters if name in SHOWN_STATES}
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PatternError:
        return ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
    transactions = context.broker.coordinators.transactions
    turn = Turn()
    producers, now_ms = set(request.producer_id_filters), transactions.now_ms()
    try:
        rows = [
            row
            async for shard in in_slices(list(transactions.shards()), turn)
            async for row in in_slices(
                list(shard.machine.list_transactions(states, producers, request.duration_filter, now_ms)), turn
            )
            if (pattern is None or pattern.fullmatch(row.transactional_id) is not None)
            and context.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, row.transactional_id)
        ]
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.error)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
