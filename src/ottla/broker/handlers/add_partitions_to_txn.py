"""AddPartitionsToTxn (key 24), v0-5: partitions take part in a transaction.

v4 several transactions at once, and only asking whether a partition takes part (KIP-890): that is for brokers, which
have checked their clients' rights and may name internal topics.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinators.transaction_verification import answer_to
from ottla.broker.coordinators.waiting_answers import answer_of
from ottla.broker.known_partitions import refused_partitions
from ottla.broker.slices import Turn, in_slices, pieces_of
from ottla.protocol.messages.transaction_steps import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.transactions.transaction import Identity

FENCED_SINCE: Final = 2
BATCHED_SINCE: Final = 4
VERSION_2_SINCE: Final = 5
TRANSACTIONS_AT_ONCE: Final = 20

Partitions = list[tuple[str, int]]
Errors = dict[tuple[str, int], Error]


async def handle(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    if context.api_version < BATCHED_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=by_topic(await add(single(request), context)))
    if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    results = []
    async for some in in_slices(pieces_of(request.transactions, TRANSACTIONS_AT_ONCE)):
        errors = await asyncio.gather(*(add(transaction, context) for transaction in some))
        results += [
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=by_topic(found))
            for transaction, found in zip(some, errors, strict=True)
        ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def single(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def add(transaction: AddPartitionsToTxnTransaction, context: Context) -> Errors:
    wanted = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    is_client = context.api_version < BATCHED_SINCE
    if is_client and not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        return dict.fromkeys(wanted, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = await refused_partitions(wanted, Operation.WRITE, context, Turn())
    if is_client:
        refused |= {each: Error.TOPIC_AUTHORIZATION_FAILED for each in wanted if each[0] in INTERNAL_TOPICS}
    if refused:  # all or nothing
        return {each: refused.get(each, Error.OPERATION_NOT_ATTEMPTED) for each in wanted}
    error, errors = await ask(transaction, wanted, context)
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(wanted, error) | errors


async def ask(transaction: AddPartitionsToTxnTransaction, wanted: Partitions, context: Context) -> tuple[Error, Errors]:
    transactions = context.broker.coordinators.transactions
    verification = context.broker.coordinators.verification
    transactional_id = transaction.transactional_id
    who = Identity(transaction.producer_id, transaction.producer_epoch)
    if not transactional_id:
        return Error.INVALID_REQUEST, {}
    try:
        if transaction.verify_only:
            return transactions.shard(transactional_id).machine.verify_partitions(transactional_id, who, wanted)
        if context.api_version >= VERSION_2_SINCE:
            return Error.NONE, await answer_to(
                lambda answered: verification.add(transactional_id, who, wanted, answered)
            )
        error = await answer_of(
            transactions,
            transactional_id,
            lambda machine, reply_to, now_ms: machine.add_partitions(
                transactional_id, who, wanted, 0, reply_to, now_ms
            ),
        )
    except KafkaError as refusal:
        return refusal.error, {}
    return error, {}


def by_topic(errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), error in errors.items():
        row = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        topics.setdefault(topic, []).append(row)
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows) for name, rows in topics.items()]
