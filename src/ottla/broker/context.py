"""Context of a request: client, listener, principal and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.security import Operation, ResourceType
from ottla.base.tasks import notify_safely
from ottla.broker.responder import Responder
from ottla.network.connection import ConnectedClient
from ottla.protocol.apis import ALL_APIS

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices


class Context:
    """One request, as handlers see it."""

    def __init__(
        self,
        broker: BrokerServices,
        responder: Responder,
        client: ConnectedClient,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        is_forwarded: bool = False,
    ) -> None:
        """`is_forwarded`: another broker forwarded this request. It is handled here and never forwarded again."""
        self.broker = broker
        self.responder = responder
        self.client = client
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.is_forwarded = is_forwarded
        self.request_bytes = 0  # size of the whole request, if quotas count it

    @property
    def listener_name(self) -> str:
        return self.client.listener_name

    @property
    def client_host(self) -> str:
        return self.client.host

    @property
    def principal(self) -> str:
        return self.client.principal

    @property
    def is_delegated(self) -> bool:
        """Whether the principal logged in with a delegation token."""
        return self.client.is_delegated

    def is_authorized(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether this client may perform the operation; always true without an authorizer.

        A denial is logged and audited: check only operations that the client requested.
        """
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        client = self.client
        if authorizer.is_granted(client.principal, client.host, operation, resource_type, name):
            return True
        api = ALL_APIS[self.api_key].name
        is_refused = authorizer.record_denial(client.principal, client.host, operation, resource_type, name, api)
        audit = self.broker.audit
        if audit is not None:
            notify_safely(audit.record_denial, self, operation, resource_type, name, is_refused)
        return not is_refused

    def is_visible(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may see a resource that the request did not name: omitting it from a list is not a
        denial.
        """
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.is_permissive or self.is_granted(operation, resource_type, name)

    def is_granted(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the rules grant the operation, even in permissive mode.

        For rights that replace another right.
        """
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.is_granted(
            self.client.principal, self.client.host, operation, resource_type, name
        )

    def is_granted_by_resource_type(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is granted on any resource of this type, existing or not (KIP-679)."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.is_any_granted(
            self.client.principal, self.client.host, operation, resource_type
        )

    def __repr__(self) -> str:
        return f"<Context api {self.api_key} v{self.api_version} of {self.client_id!r} from {self.client_host}>"
