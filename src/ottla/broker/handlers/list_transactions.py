"""ListTransactions (key 66), v0-2: the transactional ids of this coordinator. v1 by duration; v2 by a pattern."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.regular_expressions import PatternError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.transactions.transaction import STATES_BY_NAME


async def handle(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in STATES_BY_NAME]
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    pattern = request.transactional_id_pattern
    transactions = context.broker.coordinators.transactions
    turn = TimeSlice()
    producers, now_ms = set(request.producer_id_filters), transactions.now_ms()
    try:
        rows = [
            row
            async for shard in in_slices(list(transactions.shards()), turn)
            async for row in in_slices(
                list(shard.machine.list_transactions(states, producers, request.duration_filter, now_ms)), turn
            )
            if context.is_visible(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, row.transactional_id)
        ]
        if pattern:
            names = [row.transactional_id for row in rows]
            found = await context.broker.coordinators.topic_patterns.match_texts(pattern, names)
            rows = [row for row in rows if row.transactional_id in found]
    except PatternError:
        return ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.error)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
