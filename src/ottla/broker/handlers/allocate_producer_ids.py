"""AllocateProducerIds (key 67), v0: a block of producer ids for another broker (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.controller.decisions.isr_changes import check_broker_epoch
from ottla.protocol.messages.inter_broker import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: AllocateProducerIdsRequest, context: Context) -> AllocateProducerIdsResponse:
    try:
        ids = await allocate(request, context)
    except KafkaError as refusal:
        return AllocateProducerIdsResponse(error_code=refusal.error, producer_id_start=0, producer_id_len=0)
    return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))


async def allocate(request: AllocateProducerIdsRequest, context: Context) -> range:
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED)
    controller = context.broker.controller
    if not controller.is_active:  # before the epoch check: only the controller knows current epochs
        raise KafkaError(Error.NOT_CONTROLLER)
    check_broker_epoch(controller.image, request.broker_id, request.broker_epoch)
    return await controller.allocate_producer_ids(request.broker_id)
