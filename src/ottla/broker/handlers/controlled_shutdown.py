"""ControlledShutdown (key 7), v1-3: transfers the leadership of a stopping broker. v2 broker epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.protocol.messages.inter_broker import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: ControlledShutdownRequest, context: Context) -> ControlledShutdownResponse:
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return ControlledShutdownResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.membership
    assert cluster is not None, "served in a cluster only"
    try:
        remaining = await cluster.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as refusal:
        return ControlledShutdownResponse(error_code=refusal.error)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining]
    )
