"""ListTransactions (key 66), v0-2: the transactional ids of this broker. v1 by duration; v2 by a pattern."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinators.patterns import PatternError, compile_pattern
from ottla.protocol.messages.transaction_steps import ListTransactionsRequest, ListTransactionsResponse
from ottla.transactions.transaction import SHOWN_STATES


def handle(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in SHOWN_STATES]
    states = {SHOWN_STATES[name] for name in request.state_filters if name in SHOWN_STATES}
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PatternError:
        return ListTransactionsResponse(error_code=Error.INVALID_REGULAR_EXPRESSION)
    transactions = context.broker.coordinators.transactions
    try:
        rows = [
            row
            for shard in transactions.shards()
            for row in shard.machine.list_transactions(
                states, set(request.producer_id_filters), request.duration_filter, transactions.now_ms()
            )
            if (pattern is None or pattern.fullmatch(row.transactional_id) is not None)
            and context.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, row.transactional_id)
        ]
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.error)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
