"""TxnOffsetCommit (key 28), v0-5: how far a group has read, as part of a transaction.

v3 the member that commits, so that one of an older generation is refused (KIP-447); v4 the transaction can be aborted
and tried again (KIP-890); v5 the group's partition need not
have been added before: it is added here (KIP-890).
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
from ottla.broker.context import Context
from ottla.broker.coordinators.waiting_answers import start_answer
from ottla.broker.known_partitions import Refused, refused_partitions
from ottla.broker.slices import PIECE_ROWS, Turn, in_slices, pieces_of
from ottla.protocol.messages.transaction_steps import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.replication.partition import Partition
from ottla.transactions.transaction import Identity

ABORTABLE_SINCE: Final = 4
VERSION_2_SINCE: Final = 5


async def handle(request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_all(request, Error.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return refuse_all(request, Error.INVALID_GROUP_ID)
    turn = Turn()
    refused = await refused_partitions(places_of(request), Operation.READ, context, turn)
    if refused and all([place in refused async for place in in_slices(places_of(request), turn)]):
        return refuse_all(request, Error.NONE, refused)  # nothing is left to ask the coordinator about
    try:
        return await commit(request, refused, context, turn)
    except KafkaError as refusal:
        return refuse_all(request, refusal.error)


def places_of(request: TxnOffsetCommitRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, row.partition_index) for topic in request.topics for row in topic.partitions)


async def commit(
    request: TxnOffsetCommitRequest, refused: Refused, context: Context, turn: Turn
) -> TxnOffsetCommitResponse:
    """The group's partition must belong to the transaction: a late request of an older one is not written.

    Of thousands of partitions some are written at a time; all of them count when the transaction is committed, or none.
    """
    coordinators = context.broker.coordinators
    partition = coordinators.groups.shard(request.group_id).partition
    guard = coordinators.guards.begin(partition, request.producer_id)
    try:
        await take_part(request, partition.name, context)
        written = []
        async for piece in in_slices(pieces(request), turn):
            if guard.has_moved:
                raise KafkaError(Error.NOT_COORDINATOR)
            if is_over(partition, request, guard.is_cancelled and context.api_version < VERSION_2_SINCE):
                raise KafkaError(Error.INVALID_PRODUCER_EPOCH)
            written.append(start_commit(piece, refused, context))
    finally:
        coordinators.guards.end(guard, request.producer_id)
    whole = TxnOffsetCommitResponse(topics=[])
    for each in written:
        join(whole, await each)
    return whole


def pieces(request: TxnOffsetCommitRequest) -> Iterator[TxnOffsetCommitRequest]:
    rows = [(topic.name, row) for topic in request.topics for row in topic.partitions]
    if len(rows) <= PIECE_ROWS:
        yield request
        return
    for some in pieces_of(rows):
        piece = copy(request)
        piece.topics = [
            TxnOffsetCommitRequestTopic(name=name, partitions=[row for _, row in of_topic])
            for name, of_topic in groupby(some, key=itemgetter(0))
        ]
        yield piece


def start_commit(request: TxnOffsetCommitRequest, refused: Refused, context: Context) -> Future[Any]:
    return start_answer(
        context.broker.coordinators.groups,
        request.group_id,
        lambda machine, reply_to, now_ms: machine.commit_in_transaction(request, refused, reply_to, now_ms),
    )


def join(whole: TxnOffsetCommitResponse, piece: TxnOffsetCommitResponse) -> None:
    """A topic may be cut in two between the pieces."""
    for topic in piece.topics:
        if whole.topics and whole.topics[-1].name == topic.name:
            whole.topics[-1].partitions += topic.partitions
        else:
            whole.topics.append(topic)


def is_over(partition: Partition, request: TxnOffsetCommitRequest, has_marker: bool) -> bool:
    """Whether the transaction has ended here meanwhile. With version 2 a marker raises the epoch; one that came may be
    that of the transaction before."""
    known = partition.log.producers.by_id.get(request.producer_id)
    return has_marker or (known is not None and request.producer_epoch < known.epoch)


async def take_part(request: TxnOffsetCommitRequest, place: tuple[str, int], context: Context) -> None:
    """Have the group's partition added to the transaction, or verify that it was."""
    is_verifying = context.api_version < VERSION_2_SINCE
    if is_verifying and not context.broker.settings.transaction_partition_verification_enable:
        return
    who = Identity(request.producer_id, request.producer_epoch)
    verification = context.broker.coordinators.verification
    error = await verification.wait_for(request.transactional_id, who, place, is_verifying)
    if error is not Error.NONE:
        raise KafkaError(told(error, context.api_version))


def told(error: Error, api_version: int) -> Error:
    """What a producer of this age is told."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.NETWORK_EXCEPTION:
        return Error.COORDINATOR_LOAD_IN_PROGRESS  # it is tried again, without asking for another coordinator
    if error is Error.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error


def refuse_all(
    request: TxnOffsetCommitRequest, error: Error, refused: Refused | None = None
) -> TxnOffsetCommitResponse:
    """The error of all partitions, and of those that have one of their own."""
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
