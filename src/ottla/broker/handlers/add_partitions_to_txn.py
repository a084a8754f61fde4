"""AddPartitionsToTxn (key 24), v0-5: adds partitions to a transaction.

v4 several transactions, and verification only (KIP-890): for brokers, which have authorized their clients and may name
internal topics.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.authorization import find_unauthorized_or_unknown
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import run_decision
from ottla.broker.coordinator_service.transaction_verification import await_result
from ottla.broker.offload import TimeSlice, chunks, in_slices
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.transactions.transaction import ProducerIdAndEpoch

FENCED_SINCE: Final = 2
BATCHED_SINCE: Final = 4
VERSION_2_SINCE: Final = 5
TRANSACTIONS_AT_ONCE: Final = 20

PartitionName = tuple[str, int]
Partitions = dict[PartitionName, None]  # without duplicates
Errors = dict[PartitionName, Error]


async def handle(request: AddPartitionsToTxnRequest, context: Context) -> AddPartitionsToTxnResponse:
    turn = TimeSlice()
    if context.api_version < BATCHED_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await add(single(request), context, turn))
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    results = []
    async for some in in_slices(chunks(request.transactions, TRANSACTIONS_AT_ONCE), turn):
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
    transaction: AddPartitionsToTxnTransaction, context: Context, turn: TimeSlice
) -> list[AddPartitionsToTxnTopicResult]:
    """Add the existing partitions with one decision; request and response are processed in slices."""
    places = ((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    wanted = {place: None async for place in in_slices(places, turn)}
    error, errors = await add_or_verify(transaction, wanted, context, turn)
    return await group_by_topic(wanted, error, errors, turn)


async def add_or_verify(
    transaction: AddPartitionsToTxnTransaction, wanted: Partitions, context: Context, turn: TimeSlice
) -> tuple[Error, Errors]:
    """Return the common error of all partitions, and the errors of single partitions."""
    is_client = context.api_version < BATCHED_SINCE
    if is_client and not context.is_authorized(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
    ):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {}
    refused = await find_unauthorized_or_unknown(wanted, Operation.WRITE if is_client else None, context, turn)
    if is_client:
        async for place in in_slices(wanted, turn):
            if place[0] in INTERNAL_TOPICS:
                refused[place] = Error.TOPIC_AUTHORIZATION_FAILED
    if refused:  # all or nothing
        return Error.OPERATION_NOT_ATTEMPTED, refused
    error, errors = await request_coordinator(transaction, list(wanted), context)
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return error, errors


async def request_coordinator(
    transaction: AddPartitionsToTxnTransaction, wanted: list[PartitionName], context: Context
) -> tuple[Error, Errors]:
    transactions = context.broker.coordinators.transactions
    verification = context.broker.coordinators.verification
    transactional_id = transaction.transactional_id
    who = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if not transactional_id:
        return Error.INVALID_REQUEST, {}
    try:
        if transaction.verify_only:
            return transactions.shard(transactional_id).machine.verify_partitions(transactional_id, who, wanted)
        if context.api_version >= VERSION_2_SINCE:
            return Error.NONE, await await_result(
                lambda answered: verification.add(transactional_id, who, wanted, answered)
            )
        error = await run_decision(
            transactions,
            transactional_id,
            lambda machine, reply_to, now_ms: machine.add_partitions(
                transactional_id, who, wanted, 0, reply_to, now_ms
            ),
        )
    except KafkaError as refusal:
        return refusal.error, {}
    return error, {}


async def group_by_topic(
    wanted: Partitions, error: Error, errors: Errors, turn: TimeSlice
) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    async for place in in_slices(wanted, turn):
        name, index = place
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopicResult(name=name, results_by_partition=[])
        row = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors.get(place, error))
        topic.results_by_partition.append(row)
    return list(topics.values())
