"""TxnOffsetCommit (key 28), v0-5: commits offsets of a group as part of a transaction.

v3 member id and generation, which fence old members (KIP-447); v4 abortable errors (KIP-890); v5 adds the group's
partition to the transaction (KIP-890).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator
from copy import copy
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.authorization import PartitionErrors, find_unauthorized_or_unknown
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import start_decision
from ottla.broker.offload import CHUNK_ROWS, TimeSlice, chunks, in_slices
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.replication.partition import Partition
from ottla.transactions.transaction import ProducerIdAndEpoch

ABORTABLE_SINCE: Final = 4
VERSION_2_SINCE: Final = 5


async def handle(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_all(request, Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return refuse_all(request, Error.INVALID_GROUP_ID)
    turn = TimeSlice()
    refused = await find_unauthorized_or_unknown(partitions_of(request), Operation.READ, context, turn)
    if refused and all([place in refused async for place in in_slices(partitions_of(request), turn)]):
        return refuse_all(request, Error.NONE, refused)  # there are no offsets for the coordinator
    try:
        return await commit(request, refused, context, turn)
    except KafkaError as refusal:
        return refuse_all(request, refusal.error)


def partitions_of(request: TxnOffsetCommitRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)


async def commit(
    request: TxnOffsetCommitRequest, refused: PartitionErrors, context: Context, turn: TimeSlice
) -> TxnOffsetCommitResponse:
    """Commit the offsets. The group's partition must be part of the transaction, which excludes late requests of older
    ones.

    Thousands of partitions are written in pieces; all of them become effective with the commit of the transaction, or
    none.
    """
    coordinators = context.broker.coordinators
    if coordinators.groups.partition_count == 0:  # as in Kafka, which looks up the partition first
        raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
    partition = coordinators.groups.shard(request.group_id).partition
    guard = coordinators.guards.begin(partition, request.producer_id)
    try:
        await add_or_verify_partition(request, partition.name, context)
        written = []
        async for piece in in_slices(split_request(request), turn):
            if guard.has_moved:
                raise KafkaError(Error.NOT_COORDINATOR)
            if has_transaction_ended(partition, request, guard.is_cancelled and context.api_version < VERSION_2_SINCE):
                raise KafkaError(Error.INVALID_PRODUCER_EPOCH)
            written.append(start_commit(piece, refused, context))
    finally:
        coordinators.guards.end(guard, request.producer_id)
    whole = TxnOffsetCommitResponse(topics=[])
    for each in written:
        merge_response(whole, await each)
    return whole


def split_request(request: TxnOffsetCommitRequest) -> Iterator[TxnOffsetCommitRequest]:
    rows = [(topic.name, row) for topic in request.topics for row in topic.partitions]
    if len(rows) <= CHUNK_ROWS:
        yield request
        return
    for some in chunks(rows):
        piece = copy(request)
        piece.topics = [
            TxnOffsetCommitRequestTopic(name=name, partitions=[row for _, row in of_topic])
            for name, of_topic in groupby(some, key=itemgetter(0))
        ]
        yield piece


def start_commit(request: TxnOffsetCommitRequest, refused: PartitionErrors, context: Context) -> Future[Any]:
    return start_decision(
        context.broker.coordinators.groups,
        request.group_id,
        lambda machine, reply_to, now_ms: machine.offset_manager.commit_transactional(
            request, refused, reply_to, now_ms
        ),
    )


def merge_response(whole: TxnOffsetCommitResponse, piece: TxnOffsetCommitResponse) -> None:
    """Merge a response; a topic may be split between two pieces."""
    for topic in piece.topics:
        if whole.topics and whole.topics[-1].name == topic.name:
            whole.topics[-1].partitions += topic.partitions
        else:
            whole.topics.append(topic)


def has_transaction_ended(partition: Partition, request: TxnOffsetCommitRequest, has_marker: bool) -> bool:
    """Return whether the transaction has ended meanwhile. With V2 a marker raises the epoch, and a late marker may
    belong to the previous transaction.
    """
    known = partition.log.producers.by_id.get(request.producer_id)
    return has_marker or (known is not None and request.producer_epoch < known.epoch)


async def add_or_verify_partition(request: TxnOffsetCommitRequest, place: tuple[str, int], context: Context) -> None:
    """Add the group's partition to the transaction, or verify that it was added."""
    is_verifying = context.api_version < VERSION_2_SINCE
    if is_verifying and not context.broker.settings.transaction_partition_verification_enable:
        return
    who = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    verification = context.broker.coordinators.verification
    error = await verification.request_one(request.transactional_id, who, place, is_verifying)
    if error is not Error.NONE:
        raise KafkaError(error_for_version(error, context.api_version))


def error_for_version(error: Error, api_version: int) -> Error:
    """Return the error for a producer of this version."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.NETWORK_EXCEPTION:
        return Error.COORDINATOR_LOAD_IN_PROGRESS  # retried without another FindCoordinator
    if error is Error.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error


def refuse_all(
    request: TxnOffsetCommitRequest, error: Error, refused: PartitionErrors | None = None
) -> TxnOffsetCommitResponse:
    """Return the common error of all partitions, and the errors of single partitions."""
    errors = refused or {}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=errors.get((topic.name, row.partition_index), error),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
