"""Responder: completes one request. Compiled with mypyc where possible.

Rules:
1. The dispatcher creates one responder for each request. It sends one response, ends without one (acks=0), or fails,
   which closes the connection: the client cannot be notified otherwise.
2. A handler returns its response; or a coroutine, which is awaited here; or this responder, after answer() or defer(),
which reserves the position of the response on the connection. Repeated calls have no effect.
3. A responder that is garbage collected without a response closes its connection and logs that, so that no client waits
for a lost request.
4. Only the dispatcher and the responder touch the connection. Waiting requests are cancelled when their client
   disconnects; later responses are discarded.
5. Answering never raises: a response that cannot be encoded closes the client's connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from time import monotonic_ns
from typing import Any, Final

from ottla.base import tasks
from ottla.base.eager_tasks import CompletedTask, run_eagerly
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.requests import RequestMeter
from ottla.network.close_reason import CloseReason
from ottla.network.connection import Cancellable, Connection, PendingReply
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import Encoded, EncodedBody
from ottla.protocol.headers import encode_body_frame, encode_response_frame
from ottla.protocol.schema import fields_of
from ottla.quotas.request_time import ChargedCoroutine, RequestTimeCharge

logger = logging.getLogger(__name__)

NONE: Final = 0


class RequestType:
    """Shared state of the responders of one API."""

    def __init__(self, key: int, name: str, overlaps: bool, meter: RequestMeter, counters: BrokerCounters) -> None:
        self.key = key
        self.name = name
        self.overlaps = overlaps  # may overlap with others on its connection; its handler counts its errors itself
        self.meter = meter
        self.counters = counters
        self.running_tasks: set[asyncio.Task[None]] = set()  # handlers that await something


class Responder:
    """Completes one request. Created by the dispatcher."""

    def __init__(
        self, connection: Connection, api: RequestType, version: int, correlation_id: int, received_ns: int
    ) -> None:
        self._connection = connection
        self._api = api
        self.version = version
        self._correlation_id = correlation_id
        self._received_ns = received_ns
        self._deferred_ns = 0
        self._pending_reply: PendingReply | None = None
        self._running_coroutines = 0  # running coroutines; one may start another
        self.is_done = False
        self.charge: RequestTimeCharge | None = None  # if the time of this request is charged to a quota
        self.throttle_ms = 0  # sent with the response; then the connection is muted for this time

    # ---- deferred responses

    @property
    def is_deferred(self) -> bool:
        """Whether the response comes later."""
        return self._pending_reply is not None

    def defer(self) -> Responder:
        """Reserve the position of the reply, unless it is sent already. Handlers return the result."""
        if self._pending_reply is None and not self.is_done:
            self._deferred_ns = monotonic_ns()
            if self.charge is not None:
                self.charge.pause()
            self._pending_reply = self._connection.reserve_reply(self._api.overlaps)
        return self

    def defer_exclusive(self) -> Responder:
        """Defer, and read no further request from this connection until allow_overlap()."""
        self.defer()
        if self._pending_reply is not None:
            self._pending_reply.make_exclusive()
        return self

    def allow_overlap(self) -> None:
        """Let requests start that may overlap with this one."""
        if self._pending_reply is not None and self._api.overlaps:
            self._pending_reply.release_exclusive()

    def run(self, work: Coroutine[Any, Any, Any]) -> Responder:
        """Respond with the result of this coroutine; meanwhile no further request is read from this connection."""
        self.defer_exclusive()
        return self.run_overlapping(work)

    def run_eagerly(self, work: Coroutine[Any, Any, Any]) -> Responder:
        """Run a coroutine that rarely waits: it starts at once, and needs no task if it finishes."""
        begun = run_eagerly(work)
        if isinstance(begun, CompletedTask):
            self.complete(begun.result)
            return self
        return self.run(begun)

    def run_overlapping(self, work: Coroutine[Any, Any, Any]) -> Responder:
        """Run a coroutine while requests that may overlap with this one continue."""
        self.defer()
        self._running_coroutines += 1
        at_work = self._api.running_tasks
        task = tasks.spawn(self._run(work), self._api.name, self._on_failure)
        at_work.add(task)
        task.add_done_callback(at_work.discard)
        return self

    async def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        answer = await (work if self.charge is None else ChargedCoroutine(work, self.charge))
        self._running_coroutines -= 1
        if self._running_coroutines == 0:
            self.allow_overlap()
        self.complete(answer)

    def _on_failure(self) -> None:
        self.fail(CloseReason.REQUEST_FAILED, f"{self._api.name} failed")

    # ---- the response

    def complete(self, answer: Any) -> None:
        """Process the result of a handler: a response, or this responder, which is completed elsewhere."""
        if answer is not self:
            self.answer(answer)

    def answer(self, response: Any) -> None:
        """Send this response after all replies to earlier requests."""
        assert not self.is_done, f"a request must be answered exactly once: {self!r}"
        self.is_done = True
        if self.charge is not None:
            self._finish_charge(self.charge)
        if self.throttle_ms:
            set_throttle_time(response, self._api.key, self.version, self.throttle_ms)
        if not self._api.overlaps:
            self._api.counters.note_answer(self._api.key, response)
        place = self._pending_reply
        if place is None:
            self._connection.reply(self._encode(response))
        else:
            self._fill(place, response)
        if self.throttle_ms:
            self._connection.throttle(self.throttle_ms / 1000)

    def answer_encoded(self, body: bytes, codes: int) -> None:
        """Send an encoded body that contains `codes` times NONE and no error."""
        api = self._api
        api.counters.note_errors(api.key, NONE, codes)
        place = self._pending_reply
        if place is None or self.charge is not None or self.throttle_ms:
            self.answer(EncodedBody(body))
            return
        assert not self.is_done, f"a request must be answered exactly once: {self!r}"
        self.is_done = True
        api.meter.record_deferred(self._received_ns, self._deferred_ns, monotonic_ns())
        place.complete(encode_body_frame(api.key, self.version, self._correlation_id, body))

    def _finish_charge(self, charge: RequestTimeCharge) -> None:
        self.charge = None  # breaks the reference cycle
        charge.finish()

    def _fill(self, place: PendingReply, response: Any) -> None:
        self._api.meter.record_deferred(self._received_ns, self._deferred_ns, monotonic_ns())
        try:
            output = self._encode(response)
        except Exception:
            logger.exception("the response to %s cannot be encoded", self._api.name)
            self._connection.abandon(CloseReason.REQUEST_FAILED, f"{self._api.name} failed")
        else:
            place.complete(output)

    def answer_and_close(self, response: Any, reason: CloseReason, detail: str) -> None:
        """Send this response and close the connection; bytes that do not fit into the socket buffer are dropped."""
        assert self.is_deferred, "only a kept responder can be answered last"
        if not self._connection.is_closed:
            self.answer(response)
            self._connection.abandon(reason, detail)
        self.is_done = True

    def complete_without_response(self) -> Responder:
        """Complete without a response (acks=0)."""
        assert not self.is_done, f"a request must end exactly once: {self!r}"
        self.is_done = True
        if self.charge is not None:
            self._finish_charge(self.charge)
        if self._pending_reply is not None:
            self._pending_reply.complete(None)
        if self.throttle_ms:
            self._connection.throttle(self.throttle_ms / 1000)
        return self

    def fail(self, reason: CloseReason, detail: str) -> Responder:
        """Close the connection, because the client would not understand a response."""
        self.is_done = True
        self._connection.abandon(reason, detail)
        return self

    def _encode(self, response: Any) -> Encoded:
        """Encode the whole frame of the reply."""
        return encode_response_frame(self._api.key, self.version, self._correlation_id, response)

    # ---- the client

    @property
    def is_disconnected(self) -> bool:
        """Whether the client has disconnected."""
        return self._connection.is_closed

    def cancel_on_disconnect(self, waiting: Cancellable) -> None:
        """Cancel `waiting` when the client disconnects."""
        if self._connection.is_closed:
            waiting.cancel()
        else:
            self._connection.waiting_requests.add(waiting)

    def keep_on_disconnect(self, waiting: Cancellable) -> None:
        self._connection.waiting_requests.discard(waiting)

    def waiting_requests(self) -> Iterable[Cancellable]:
        """Waiting requests of the same client."""
        return list(self._connection.waiting_requests)

    def on_disconnect(self, name: str, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection closes, even long after this response; one callback per name."""
        self._connection.close_listeners[name] = callback

    def make_inner_responder(self, key: int, name: str, version: int, correlation_id: int) -> InnerResponder:
        """Create the responder of a request inside this one (Envelope)."""
        api = RequestType(key, name, False, self._api.meter, self._api.counters)
        return InnerResponder(self._connection, api, version, correlation_id)

    def __del__(self) -> None:
        if self._pending_reply is not None and not self.is_done and not self._connection.is_closed:
            logger.error("a %s request was never answered: closing its connection", self._api.name)
            tasks.counts.failed += 1
            self._connection.abandon(CloseReason.REQUEST_UNANSWERED, f"{self._api.name} was never answered")

    def __repr__(self) -> str:
        state = "done" if self.is_done else "kept" if self._pending_reply is not None else "new"
        return f"<Responder {self._api.name} v{self.version} {state}>"


class TokenResponder(Responder):
    """For a bare SASL token without a request header (SaslHandshake v0): the reply also has none."""

    def answer_and_close(self, response: Any, reason: CloseReason, detail: str) -> None:  # noqa: ARG002 (no caller passes it)
        self.fail(reason, detail)

    def _encode(self, response: Any) -> Encoded:
        token: bytes = response.auth_bytes
        output = Encoded(len(token).to_bytes(4, "big") + token)
        output.holes = []
        return output


class InnerResponder(Responder):
    """For a request inside another one: the outer request gets the response."""

    def __init__(self, connection: Connection, api: RequestType, version: int, correlation_id: int) -> None:
        super().__init__(connection, api, version, correlation_id, 0)
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def defer(self) -> Responder:
        return self

    def defer_exclusive(self) -> Responder:
        return self

    def answer(self, response: Any) -> None:
        assert not self.is_done, f"a request must be answered exactly once: {self!r}"
        self.is_done = True
        self._answer.set_result(response)

    def fail(self, reason: CloseReason, detail: str) -> Responder:  # noqa: ARG002 (the outer request has its own)
        if not self._answer.done():
            self.is_done = True
            self._answer.set_exception(RuntimeError(detail))
        return self

    async def result_of(self, answer: Any) -> Any:
        """Return the final result of the handler."""
        if asyncio.iscoroutine(answer):
            answer = await answer
        return await self._answer if answer is self else answer

    def encode_reply(self, response: Any) -> bytes:
        """Return the reply as the original client gets it, without the frame size."""
        if self.throttle_ms:
            set_throttle_time(response, self._api.key, self.version, self.throttle_ms)
        return bytes(self._encode(response)[4:])


def set_throttle_time(response: Any, key: int, version: int, throttle_ms: int) -> None:
    """Set throttle_time_ms in a response. Most encoded bodies begin with it."""
    if not isinstance(response, EncodedBody):
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return
    name, field = next(iter(fields_of(ALL_APIS[key].response).items()))
    if name == "throttle_time_ms" and version >= field.since:
        response.body = throttle_ms.to_bytes(4, "big") + response.body[4:]
