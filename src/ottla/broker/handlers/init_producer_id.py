"""InitProducerId (key 22), v0-5: an id for an idempotent producer, or id and epoch for a transactional one.

v2 flexible; v3 the producer may name its old id and epoch (KIP-360); v4 PRODUCER_FENCED; v5 transactions version 2.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinators.waiting_answers import answer_of
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.transactions.machine import Initialized
from ottla.transactions.transaction import Identity

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
FENCED_SINCE: Final = 4
CONTROLLER_AWAY: Final = (Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT, Error.STALE_BROKER_EPOCH)


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    try:
        check(request, context)
        producer_id = await next_id(context)
        made = Initialized(Error.NONE, producer_id, 0)
        if request.transactional_id is not None:
            made = await init_transactional(request, request.transactional_id, producer_id, context)
    except KafkaError as refusal:
        made = Initialized(refusal.error)
    error = made.error
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=made.producer_id, producer_epoch=made.epoch)


async def next_id(context: Context) -> int:
    """When no controller gives a new block of ids, that passes: Kafka's word for it is one that every client knows."""
    try:
        return await context.broker.control.producer_ids.next_id()
    except KafkaError as problem:
        if problem.error not in CONTROLLER_AWAY:
            raise
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS) from problem


async def init_transactional(
    request: InitProducerIdRequest, transactional_id: str, fresh_id: int, context: Context
) -> Initialized:
    known = None
    if request.producer_id != NO_PRODUCER_ID:
        known = Identity(request.producer_id, request.producer_epoch)
    transactions = context.broker.coordinators.transactions
    made: Initialized = await answer_of(
        transactions,
        transactional_id,
        lambda machine, reply_to, now_ms: machine.init_producer(
            transactional_id, request.transaction_timeout_ms, known, fresh_id, reply_to, now_ms
        ),
    )
    return made


def check(request: InitProducerIdRequest, context: Context) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.is_any_granted(Operation.WRITE, ResourceType.TOPIC) and not context.may(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(Error.INVALID_REQUEST)  # an old id without its epoch, or the other way round
    if transactional_id == "":
        raise KafkaError(Error.INVALID_REQUEST)
