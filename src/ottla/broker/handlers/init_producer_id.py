"""InitProducerId (key 22), v0-5: an id for an idempotent producer.

v2 flexible; v3 the producer may name its old id and epoch (KIP-360); v4 PRODUCER_FENCED; v5 transactions version 2.
Transactional ids are refused with UNSUPPORTED_VERSION, which producers take as final: see find_coordinator.py.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1


async def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    try:
        check(request, context)
        producer_id = await context.broker.controller.producer_ids.next_id()
    except KafkaError as refusal:
        return InitProducerIdResponse(error_code=refusal.error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def check(request: InitProducerIdRequest, context: Context) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(Error.INVALID_REQUEST)  # an old id without its epoch, or the other way round
    if transactional_id == "":
        raise KafkaError(Error.INVALID_REQUEST)
    if transactional_id is not None:
        raise KafkaError(Error.UNSUPPORTED_VERSION)
