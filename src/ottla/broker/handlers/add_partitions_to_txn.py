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

Place = tuple[str, int]
Partitions = dict[Place, None]  # each of them once
Errors = dict[Place, Error]


async def handle(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    turn = Turn()
    if context.api_version < BATCHED_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await add(single(request), context, turn))
    if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    results = []
    async for some in in_slices(pieces_of(request.transactions, TRANSACTIONS_AT_ONCE), turn):
        rows = await asyncio.gather(*(add(transaction, context, turn) for transaction in some))
        results += [
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)
            for transaction, topics in zip(some, rows, strict=True)
        ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def single(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def add(
    transaction: AddPartitionsToTxnTransaction, context: Context, turn: Turn
) -> list[AddPartitionsToTxnTopicResult]:
    """What is asked for and what is answered may be long; what is decided about is not more than there is."""
    places = ((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    wanted = {place: None async for place in in_slices(places, turn)}
    error, errors = await outcome(transaction, wanted, context, turn)
    return await by_topic(wanted, error, errors, turn)


async def outcome(
    transaction: AddPartitionsToTxnTransaction, wanted: Partitions, context: Context, turn: Turn
) -> tuple[Error, Errors]:
    """The error of all partitions, and of those that have one of their own."""
    is_client = context.api_version < BATCHED_SINCE
    if is_client and not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {}
    refused = await refused_partitions(wanted, Operation.WRITE if is_client else None, context, turn)
    if is_client:
        async for place in in_slices(wanted, turn):
            if place[0] in INTERNAL_TOPICS:
                refused[place] = Error.TOPIC_AUTHORIZATION_FAILED
    if refused:  # all or nothing
        return Error.OPERATION_NOT_ATTEMPTED, refused
    error, errors = await ask(transaction, list(wanted), context)
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return error, errors


async def ask(
    transaction: AddPartitionsToTxnTransaction, wanted: list[Place], context: Context
) -> tuple[Error, Errors]:
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


async def by_topic(wanted: Partitions, error: Error, errors: Errors, turn: Turn) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    async for place in in_slices(wanted, turn):
        name, index = place
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopicResult(name=name, results_by_partition=[])
        row = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors.get(place, error))
        topic.results_by_partition.append(row)
    return list(topics.values())
