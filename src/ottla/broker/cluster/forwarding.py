"""Requests that only the controller can answer, on a broker that is not the controller (KIP-590).

The request goes to the controller inside an Envelope, with the name and the address of the client who sent it; the
controller answers as if he had asked there, and the answer goes back. So a client may ask any broker.

Rules:
1. What is passed on says so in its row of the table of APIs; nothing else is accepted out of an Envelope.
2. Without a controller, or without its answer in time, the client gets an answer of its own API with REQUEST_TIMED_OUT
   or NOT_CONTROLLER in every row, never silence.
3. Loggers belong to the broker that was asked: see configs/alterations.py.
"""

from __future__ import annotations

import ipaddress
from asyncio import iscoroutine
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.controller_link import ControllerLink
from ottla.broker.long_messages import in_worker, is_long
from ottla.protocol.apis import APIS
from ottla.protocol.codec import EncodedBody, ProtocolError, decode_whole, encode
from ottla.protocol.headers import encode_request_header, response_header_bytes
from ottla.protocol.messages.inter_broker import EnvelopeRequest, EnvelopeResponse, PrincipalData
from ottla.protocol.schema import layout_of

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.served_api import ServedApi

MUTATING_APIS: Final = frozenset({19, 20, 37})  # CreateTopics, DeleteTopics, CreatePartitions
TIMEOUT_MS_MIN: Final = 1_000  # a client that will not wait at all still gets its request passed on
PRINCIPAL_VERSION: Final = 0
ROWS: Final = (  # what answers call them
    *("topics", "responses", "results", "replica_election_results", "partitions", "partition_result", "filter_results"),
    "entries",
)
MESSAGES: Final = {
    Error.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    Error.REQUEST_TIMED_OUT: "The request timed out.",
    Error.UNSUPPORTED_VERSION: "The version of API is not supported.",
}


class Forwarding:
    """Passes requests on."""

    def __init__(self, link: ControllerLink, timeout_ms_max: int) -> None:
        self._link = link
        self._timeout_ms_max = timeout_ms_max

    async def forward(self, request: Any, context: Context, row: ServedApi) -> Any:
        """The controller's answer, as it is: nobody here has to look inside. Or that of our own handler, if this broker
        has become the controller meanwhile.
        """
        if is_long(request):
            envelope = await in_worker(context.broker.workers, seal, request, context)
        else:
            envelope = seal(request, context)
        try:
            answer = await self._link.ask(
                envelope,
                EnvelopeResponse,
                timeout_ms=self._timeout_ms(request),
                is_elsewhere=lambda sealed: sealed.error_code == Error.NOT_CONTROLLER,
            )
            if answer is not None:
                inner = unseal(answer, context)
                context.responder.throttle_ms = told_throttle_ms(inner, context)
                return inner
        except KafkaError as refusal:
            return refuse(row, request, refusal, context.api_version)
        return await answer_here(row, request, context)

    def _timeout_ms(self, request: Any) -> int:
        """What the client allows, within what a broker waits for another one."""
        asked: int = getattr(request, "timeout_ms", self._timeout_ms_max)
        return max(TIMEOUT_MS_MIN, min(asked, self._timeout_ms_max))

    def __repr__(self) -> str:
        return f"<Forwarding {self._link!r}>"


def forwarded(row: ServedApi) -> Callable[[Any, Context], Coroutine[Any, Any, Any]]:
    """Its handler, but asked only on the controller; other brokers of a cluster pass the request on."""

    async def handle(request: Any, context: Context) -> Any:
        forwarding = context.broker.forwarding
        if forwarding is None or is_here(context):
            return await answer_here(row, request, context)
        return await forwarding.forward(request, context, row)

    return handle


async def passed_on(request: Any, context: Context) -> Any | None:
    """The controller's answer to a request whose handler has something to check first; None if this broker is it."""
    forwarding = context.broker.forwarding
    if forwarding is None or is_here(context):
        return None
    return await forwarding.forward(request, context, context.broker.apis[context.api_key])


def refuse(row: ServedApi, request: Any, refusal: KafkaError, version: int) -> Any:
    assert row.refuse is not None, "only what can be refused is passed on"
    return row.refuse(request, refusal.error, refusal.message or MESSAGES.get(refusal.error), version)


def is_here(context: Context) -> bool:
    """Whether this broker has to answer itself: it is alone, or the controller, or was asked as such."""
    cluster = context.broker.cluster
    return cluster is None or cluster.is_controller or context.is_forwarded


async def answer_here(row: ServedApi, request: Any, context: Context) -> Any:
    answer = row.handle(request, context)
    return await answer if iscoroutine(answer) else answer


# ---- envelopes


def seal(request: Any, context: Context) -> EnvelopeRequest:
    key = layout_of(type(request)).api_key
    assert key == context.api_key, "the answer goes to whoever asked that"
    header = encode_request_header(key, context.api_version, context.correlation_id, context.client_id)
    return EnvelopeRequest(
        request_data=header + encode(request, context.api_version),
        request_principal=encode_principal(context.principal, is_delegated=context.is_delegated),
        client_host_address=encode_host(context.client_host),
    )


def unseal(envelope: EnvelopeResponse, context: Context) -> EncodedBody:
    """What is inside, still encoded; KafkaError if the controller did not look at the request."""
    if envelope.error_code == Error.UNSUPPORTED_VERSION:  # of brokers that are not of the same release
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if envelope.error_code != Error.NONE or envelope.response_data is None:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    return EncodedBody(envelope.response_data[response_header_bytes(context.api_key, context.api_version) :])


def told_throttle_ms(answer: EncodedBody, context: Context) -> int:
    """How long the controller wants the client held up: answers to changes of topics begin with that."""
    return int.from_bytes(answer.body[:4], "big") if context.api_key in MUTATING_APIS else 0


def opened(answer: Any, context: Context) -> Any:
    """An answer of forward() as a message, for those who have to look inside."""
    if not isinstance(answer, EncodedBody):
        return answer
    try:
        return decode_whole(APIS[context.api_key].response, context.api_version, memoryview(answer.body))
    except ProtocolError:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from None


def says_not_controller(answer: Any) -> bool:
    """Whether its sender is no controller any more: one that is deposed in the middle tells so in the rows."""
    if getattr(answer, "error_code", Error.NONE) == Error.NOT_CONTROLLER:
        return True
    for name in ROWS:
        rows = getattr(answer, name, None)
        if rows and any(says_not_controller(row) for row in rows):
            return True
    return False


def encode_principal(principal: str, *, is_delegated: bool = False) -> bytes:
    kind, _, name = principal.partition(":")
    data = PrincipalData(type=kind, name=name, token_authenticated=is_delegated)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + bytes(encode(data, PRINCIPAL_VERSION))


def decode_principal(data: bytes) -> tuple[str, bool]:
    """Type and name, as in "User:alice", and whether a delegation token stands for him; ProtocolError if it is none."""
    if int.from_bytes(data[:2], "big") != PRINCIPAL_VERSION:
        raise ProtocolError("a principal of an unknown version")
    found = decode_whole(PrincipalData, PRINCIPAL_VERSION, memoryview(data), 2)
    return f"{found.type}:{found.name}", found.token_authenticated


def encode_host(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b""  # a socket of this machine has no address


def decode_host(data: bytes) -> str:
    """An address as text; ProtocolError if it is none."""
    if not data:
        return ""
    try:
        return str(ipaddress.ip_address(data))
    except ValueError:
        raise ProtocolError("an address of a wrong length") from None
