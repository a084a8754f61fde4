"""Forwarding of requests to the controller (KIP-590), on a broker that is not the controller.

The request is sent inside an Envelope with the principal and address of the client; the controller responds as if it
had received the request itself. Clients may therefore send admin requests to any broker.

Rules:
1. Only APIs whose row in the table of APIs is marked as forwarded are accepted inside an Envelope.
2. Without a controller, or without its response in time, the client gets a response with REQUEST_TIMED_OUT or
   NOT_CONTROLLER in every row.
3. A request that must not take effect twice is not sent again once a controller may have received it.
4. Loggers belong to the broker that received the request: see configs/config_admin.py.
"""

from __future__ import annotations

import ipaddress
from asyncio import iscoroutine
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.offload import is_long, run_in_worker
from ottla.protocol.apis import APIS
from ottla.protocol.codec import EncodedBody, ProtocolError, decode_whole, encode
from ottla.protocol.headers import encode_request_header, response_header_bytes
from ottla.protocol.messages.inter_broker import EnvelopeRequest, EnvelopeResponse, PrincipalData
from ottla.protocol.schema import layout_of

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.served_api import Handler, ServedApi

UNREPEATABLE_APIS: Final = frozenset({38})  # CreateDelegationToken: each repetition would create another token
MUTATING_APIS: Final = frozenset({19, 20, 37})  # CreateTopics, DeleteTopics, CreatePartitions
TIMEOUT_MS_MIN: Final = 1_000  # minimum for forwarding, even for clients that do not wait
PRINCIPAL_VERSION: Final = 0
ROW_FIELDS: Final = (  # field names in responses
    *("topics", "responses", "results", "replica_election_results", "partitions", "partition_result", "filter_results"),
    "entries",
)
MESSAGES: Final = {
    Error.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    Error.REQUEST_TIMED_OUT: "The request timed out.",
    Error.UNSUPPORTED_VERSION: "The version of API is not supported.",
}


class ForwardingManager:
    """Forwards requests to the controller."""

    def __init__(self, link: ControllerChannel, timeout_ms_max: int) -> None:
        self._link = link
        self._timeout_ms_max = timeout_ms_max

    async def forward(self, request: Any, context: Context, row: ServedApi) -> Any:
        """Return the controller's response, still encoded; or the response of the local handler if this broker has
        become the controller.
        """
        if is_long(request):
            envelope = await run_in_worker(context.broker.workers, build_envelope, request, context)
        else:
            envelope = build_envelope(request, context)
        try:
            answer = await self._link.send(
                envelope,
                EnvelopeResponse,
                timeout_ms=self._timeout_ms(request),
                is_not_controller=lambda sealed: sealed.error_code == Error.NOT_CONTROLLER,
                is_repeatable=context.api_key not in UNREPEATABLE_APIS,
            )
            if answer is not None:
                inner = open_envelope_response(answer, context)
                context.responder.throttle_ms = read_throttle_time(inner, context)
                return inner
        except KafkaError as refusal:
            return error_response(row, request, refusal, context.api_version)
        return await call_handler(row.handle, request, context)

    def _timeout_ms(self, request: Any) -> int:
        """Return the client's timeout, limited by the inter-broker request timeout."""
        asked: int = getattr(request, "timeout_ms", self._timeout_ms_max)
        return max(TIMEOUT_MS_MIN, min(asked, self._timeout_ms_max))

    def __repr__(self) -> str:
        return f"<ForwardingManager {self._link!r}>"


def forwarded(row: ServedApi) -> Callable[[Any, Context], Coroutine[Any, Any, Any]]:
    """Wrap a handler of the controller: other brokers of a cluster forward the request."""

    async def handle(request: Any, context: Context) -> Any:
        forwarding = context.broker.forwarding
        if forwarding is None or is_handled_here(context):
            return await call_handler(row.handle, request, context)
        return await forwarding.forward(request, context, row)

    return handle


async def forward_if_remote(request: Any, context: Context) -> Any | None:
    """Return the controller's response to a request whose handler checks something first; None if this broker is the
    controller.
    """
    forwarding = context.broker.forwarding
    if forwarding is None or is_handled_here(context):
        return None
    return await forwarding.forward(request, context, context.broker.apis[context.api_key])


def error_response(row: ServedApi, request: Any, refusal: KafkaError, version: int) -> Any:
    assert row.make_error_response is not None, "forwarded APIs need an error response"
    return row.make_error_response(request, refusal.error, refusal.message or MESSAGES.get(refusal.error), version)


def is_handled_here(context: Context) -> bool:
    """Return whether this broker handles the request itself: standalone, controller, or addressed as the controller."""
    cluster = context.broker.membership
    return cluster is None or cluster.is_controller or context.is_forwarded


async def call_handler(handle: Handler, request: Any, context: Context) -> Any:
    """The response of a handler, which may be a coroutine."""
    answer = handle(request, context)
    return await answer if iscoroutine(answer) else answer


# ---- envelopes


def build_envelope(request: Any, context: Context) -> EnvelopeRequest:
    key = layout_of(type(request)).api_key
    assert key == context.api_key, "the response belongs to this request"
    header = encode_request_header(key, context.api_version, context.correlation_id, context.client_id)
    return EnvelopeRequest(
        request_data=header + encode(request, context.api_version),
        request_principal=encode_principal(context.principal, is_delegated=context.is_delegated),
        client_host_address=encode_host(context.client_host),
    )


def open_envelope_response(envelope: EnvelopeResponse, context: Context) -> EncodedBody:
    """Return the inner response, still encoded. Raises KafkaError if the controller did not process the request."""
    if envelope.error_code == Error.UNSUPPORTED_VERSION:  # from brokers of another release
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if envelope.error_code != Error.NONE or envelope.response_data is None:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    return EncodedBody(envelope.response_data[response_header_bytes(context.api_key, context.api_version) :])


def read_throttle_time(answer: EncodedBody, context: Context) -> int:
    """Return the throttle time set by the controller: responses to topic changes begin with it."""
    return int.from_bytes(answer.body[:4], "big") if context.api_key in MUTATING_APIS else 0


def decode_if_encoded(answer: Any, context: Context) -> Any:
    """Return a result of forward() as a decoded message."""
    if not isinstance(answer, EncodedBody):
        return answer
    try:
        return decode_whole(APIS[context.api_key].response, context.api_version, memoryview(answer.body))
    except ProtocolError:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from None


def is_not_controller(answer: Any) -> bool:
    """Return whether the sender is no longer the controller: one that is deposed meanwhile reports it per row."""
    if getattr(answer, "error_code", Error.NONE) == Error.NOT_CONTROLLER:
        return True
    for name in ROW_FIELDS:
        rows = getattr(answer, name, None)
        if rows and any(is_not_controller(row) for row in rows):
            return True
    return False


def encode_principal(principal: str, *, is_delegated: bool = False) -> bytes:
    kind, _, name = principal.partition(":")
    data = PrincipalData(type=kind, name=name, token_authenticated=is_delegated)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + bytes(encode(data, PRINCIPAL_VERSION))


def decode_principal(data: bytes) -> tuple[str, bool]:
    """Return the principal, as in "User:alice", and whether it logged in with a delegation token.

    Raises ProtocolError.
    """
    if int.from_bytes(data[:2], "big") != PRINCIPAL_VERSION:
        raise ProtocolError("a principal of an unknown version")
    found = decode_whole(PrincipalData, PRINCIPAL_VERSION, memoryview(data), 2)
    return f"{found.type}:{found.name}", found.token_authenticated


def encode_host(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b""  # a local socket without an address


def decode_host(data: bytes) -> str:
    """Return an address as text. Raises ProtocolError."""
    if not data:
        return ""
    try:
        return str(ipaddress.ip_address(data))
    except ValueError:
        raise ProtocolError("an address of a wrong length") from None
