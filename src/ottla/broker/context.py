"""What a handler knows about the request it answers: who asks, through which door, in which version."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from ottla.base.security import ANONYMOUS, Operation, ResourceType
from ottla.metrics.requests import RequestMeter
from ottla.network.connection import Connection, PendingReply
from ottla.protocol.codec import Encoded
from ottla.protocol.headers import encode_response_frame

if TYPE_CHECKING:
    from ottla.broker.services import Services


class Context:
    """One request. A handler returns its response, or parks the request and calls answer() later."""

    def __init__(
        self,
        broker: Services,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self._place: PendingReply | None = None
        self._is_alone = False
        self.meter: RequestMeter | None = None  # of a parked request, so that its wait is measured
        self.received_ns = 0
        self.parked_ns = 0

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def client_host(self) -> str:
        return self.connection.peer_host

    @property
    def principal(self) -> str:
        return ANONYMOUS

    @property
    def is_forwarded(self) -> bool:
        """Whether another broker has passed this request on: then it is answered here, and not passed on again."""
        return False

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether this client may do that; everybody may everything while the broker has no authorizer."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows(self.principal, self.client_host, operation, resource_type, name)

    # ---- replies that come later

    def park(self) -> None:
        """Keep this reply's place in the line: answer() fills it."""
        self._place = self.connection.park()

    def park_alone(self) -> None:
        """The same for an API that may not overlap with others on its connection."""
        self.park()
        self.connection.is_exclusive = True
        self._is_alone = True

    @property
    def is_parked(self) -> bool:
        return self._place is not None

    def answer(self, response: Any | None) -> None:
        """Fill the place of a parked reply; None = no reply."""
        assert self._place is not None, "only a parked request is answered later"
        if self._is_alone:
            self.connection.is_exclusive = False
        if self.meter is not None:
            now_ns = monotonic_ns()
            self.meter.answered_later(self.received_ns, self.parked_ns, now_ns)
        self._place.complete(None if response is None else self.encode(response))

    def encode(self, response: Any) -> Encoded:
        """The whole frame of a reply to this request."""
        return encode_response_frame(self.api_key, self.api_version, self.correlation_id, response)

    def __repr__(self) -> str:
        return f"<Context api {self.api_key} v{self.api_version} of {self.client_id!r} from {self.client_host}>"


class ForwardedContext(Context):
    """A request that came inside an envelope: whoever sent it first counts, not the broker that passed it on."""

    def __init__(
        self,
        broker: Services,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        principal: str,
        client_host: str,
    ) -> None:
        super().__init__(broker, connection, api_key, api_version, correlation_id, client_id)
        self._principal = principal
        self._client_host = client_host

    @property
    def principal(self) -> str:
        return self._principal

    @property
    def client_host(self) -> str:
        return self._client_host

    @property
    def is_forwarded(self) -> bool:
        return True
