"""DescribeTransactions (key 65), v0: state of transactions."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.protocol.messages.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.transactions.description import unknown_transaction


async def handle(request: DescribeTransactionsRequest, context: Context) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            describe(transactional_id, context) async for transactional_id in in_slices(request.transactional_ids)
        ]
    )


def describe(transactional_id: str, context: Context) -> DescribedTransaction:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return unknown_transaction(transactional_id, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return unknown_transaction(transactional_id, Error.INVALID_REQUEST)
    try:
        shard = context.broker.coordinators.transactions.shard(transactional_id)
    except KafkaError as error:
        return unknown_transaction(transactional_id, error.error)
    row = shard.machine.describe(transactional_id)
    row.topics = [
        topic for topic in row.topics if context.is_visible(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
    ]
    return row
