"""What a handler knows about the request it answers: who asks, through which door, in which version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.security import Operation, ResourceType
from ottla.broker.responder import Responder
from ottla.network.connection import ClientFacts

if TYPE_CHECKING:
    from ottla.broker.parts import BrokerParts


class Context:
    """One request."""

    def __init__(
        self,
        broker: BrokerParts,
        responder: Responder,
        client: ClientFacts,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        is_forwarded: bool = False,
    ) -> None:
        """`is_forwarded`: another broker has passed this request on. Then it is answered here, and not passed on."""
        self.broker = broker
        self.responder = responder
        self.client = client
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.is_forwarded = is_forwarded

    @property
    def listener_name(self) -> str:
        return self.client.listener_name

    @property
    def client_host(self) -> str:
        return self.client.host

    @property
    def principal(self) -> str:
        return self.client.principal

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether this client may do that; everybody may everything while the broker has no authorizer."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows(self.principal, self.client_host, operation, resource_type, name)

    def __repr__(self) -> str:
        return f"<Context api {self.api_key} v{self.api_version} of {self.client_id!r} from {self.client_host}>"
