"""InitProducerId (key 22), v0-5: an id for an idempotent producer, or id and epoch for a transactional one.

v2 flexible; v3 the producer may send its old id and epoch (KIP-360); v4 PRODUCER_FENCED; v5 transactions V2.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import run_decision
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import InitProducerIdResult

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
FENCED_SINCE: Final = 4
CONTROLLER_AWAY: Final = (Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT, Error.STALE_BROKER_EPOCH)


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    try:
        check(request, context)
        producer_id = await next_id(context)
        made = InitProducerIdResult(Error.NONE, producer_id, 0)
        if request.transactional_id is not None:
            made = await init_transactional(request, request.transactional_id, producer_id, context)
    except KafkaError as refusal:
        made = InitProducerIdResult(refusal.error)
    error = made.error
    if error is Error.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = Error.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=made.producer_id, producer_epoch=made.epoch)


async def next_id(context: Context) -> int:
    """Return the next producer id.

    Without a controller, raises a retriable error that every client supports, as Kafka does.
    """
    try:
        return await context.broker.controller_requests.producer_ids.next_id()
    except KafkaError as problem:
        if problem.error not in CONTROLLER_AWAY:
            raise
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS) from problem


async def init_transactional(
    request: InitProducerIdRequest, transactional_id: str, fresh_id: int, context: Context
) -> InitProducerIdResult:
    known = None
    if request.producer_id != NO_PRODUCER_ID:
        known = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    transactions = context.broker.coordinators.transactions
    made: InitProducerIdResult = await run_decision(
        transactions,
        transactional_id,
        lambda machine, reply_to, now_ms: machine.init_producer_id(
            transactional_id, request.transaction_timeout_ms, known, fresh_id, reply_to, now_ms
        ),
    )
    return made


def check(request: InitProducerIdRequest, context: Context) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.is_granted_by_resource_type(Operation.WRITE, ResourceType.TOPIC) and not context.is_authorized(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(Error.INVALID_REQUEST)  # an id without an epoch, or the reverse
    if transactional_id == "":
        raise KafkaError(Error.INVALID_REQUEST)
