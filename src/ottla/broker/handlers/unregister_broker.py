"""UnregisterBroker (key 64), v0: removes the registration of a broker (KIP-500).

A registration ends with the broker's session: only live brokers are registered, and those are not removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return UnregisterBrokerResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    if request.broker_id not in context.broker.image.brokers:
        return UnregisterBrokerResponse(
            error_code=Error.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {request.broker_id} is not currently registered",
        )
    return UnregisterBrokerResponse(
        error_code=Error.INVALID_REQUEST,
        error_message=f"Broker {request.broker_id} is alive: stop it to end its registration.",
    )


def refuse(_request: UnregisterBrokerRequest, error: Error, message: str | None, _: int) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error, error_message=message)
