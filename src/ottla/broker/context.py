"""What a handler knows about the request it answers: who asks, through which door, in which version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.security import Operation, ResourceType
from ottla.base.tasks import tell
from ottla.broker.responder import Responder
from ottla.network.client_facts import ClientFacts
from ottla.protocol.apis import ALL_APIS

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
        self.request_bytes = 0  # of the whole request, where quotas count them

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
        """Whether a delegation token stands for this principal."""
        return self.client.is_delegated

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether this client may do that; everybody may everything while the broker has no authorizer.

        A denial is noted: ask only about what was asked for.
        """
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        client = self.client
        if authorizer.is_granted(client.principal, client.host, operation, resource_type, name):
            return True
        api = ALL_APIS[self.api_key].name
        is_refused = authorizer.refuses(client.principal, client.host, operation, resource_type, name, api)
        audit = self.broker.audit
        if audit is not None:
            tell(audit.note_denial, self, operation, resource_type, name, is_refused)
        return not is_refused

    def sees(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """The same about one of many that nobody has named: what is left out of a list is no denial."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.is_permissive or self.is_granted(operation, resource_type, name)

    def is_granted(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """What the rules say, in permissive mode too: for a right that is as good as another one."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.is_granted(
            self.client.principal, self.client.host, operation, resource_type, name
        )

    def is_any_granted(self, operation: Operation, resource_type: ResourceType) -> bool:
        """The same about some resource of a type, whether it exists or not (KIP-679)."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.is_any_granted(
            self.client.principal, self.client.host, operation, resource_type
        )

    def __repr__(self) -> str:
        return f"<Context api {self.api_key} v{self.api_version} of {self.client_id!r} from {self.client_host}>"
