"""UnregisterBroker (key 64), v0: forget a broker that will not come back (KIP-500).

Registrations end with the session of their broker, so only brokers that are alive are registered, and one of those is
not forgotten behind its back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.protocol.messages.registration import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


def handle(request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    if not context.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return UnregisterBrokerResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    if request.broker_id not in context.broker.image.brokers:
        return UnregisterBrokerResponse(
            error_code=Error.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {request.broker_id} is not currently registered",
        )
    return UnregisterBrokerResponse(
        error_code=Error.INVALID_REQUEST,
        error_message=f"Broker {request.broker_id} is alive: stop it, and it is no longer registered.",
    )


def refuse(_request: UnregisterBrokerRequest, error: Error, message: str | None, _: int) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error, error_message=message)
