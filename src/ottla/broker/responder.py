"""One request's way to its answer. Compiled with mypyc where possible.

Rules:
1. Dispatch makes one responder for each request. It answers once, ends without an answer (acks=0), or fails, which
   closes the connection: there is no other way to tell the client.
2. A handler returns its response; or a coroutine, which is run and awaited here; or this responder, after it has been
   answered or while somebody keeps it to answer later. Keeping it keeps the reply's place in the line of replies; to
   keep it twice is to keep it once.
3. A responder that nobody holds any more can never be answered: its connection is closed, and that is logged. So no
   client waits for ever, whatever a handler forgets.
4. Nobody but dispatch and the responder touches the connection. Whoever waits for something hears that his client is
   gone; what is answered afterwards goes nowhere.
5. Answering never harms whoever answers: a response that cannot be encoded closes the client's connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from time import monotonic_ns
from typing import Any, Final

from ottla.base import tasks
from ottla.base.eager import Ended, begin
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.requests import RequestMeter
from ottla.network.client_facts import Cancellable
from ottla.network.connection import Connection, PendingReply
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import Encoded, EncodedBody
from ottla.protocol.headers import encode_body_frame, encode_response_frame
from ottla.protocol.schema import fields_of
from ottla.quotas.charging import Charge, Charged

logger = logging.getLogger(__name__)

NONE: Final = 0


class Answering:
    """What the responders of one API have in common."""

    def __init__(self, key: int, name: str, overlaps: bool, meter: RequestMeter, counters: BrokerCounters) -> None:
        self.key = key
        self.name = name
        self.overlaps = overlaps  # with others on its connection; its handler counts its errors itself
        self.meter = meter
        self.counters = counters
        self.at_work: set[asyncio.Task[None]] = set()  # handlers that await something


class Responder:
    """Made by dispatch."""

    def __init__(
        self, connection: Connection, api: Answering, version: int, correlation_id: int, received_ns: int
    ) -> None:
        self._connection = connection
        self._api = api
        self.version = version
        self._correlation_id = correlation_id
        self._received_ns = received_ns
        self._kept_ns = 0
        self._place: PendingReply | None = None
        self._works = 0  # that are under way: one may begin another
        self.is_done = False
        self.charge: Charge | None = None  # if the time that it takes counts for somebody
        self.throttle_ms = 0  # told with the answer; then nothing is taken from this connection for so long

    # ---- answering later

    @property
    def is_kept(self) -> bool:
        """Whether the answer comes later."""
        return self._place is not None

    def keep(self) -> Responder:
        """Keep the reply's place in the line, unless it is answered already; what a handler returns then."""
        if self._place is None and not self.is_done:
            self._kept_ns = monotonic_ns()
            if self.charge is not None:
                self.charge.pause()
            self._place = self._connection.park(self._api.overlaps)
        return self

    def keep_alone(self) -> Responder:
        """The same, and until let_others_start() nothing more is taken from this connection."""
        self.keep()
        if self._place is not None:
            self._place.stand_alone()
        return self

    def let_others_start(self) -> None:
        """Requests that may overlap with this one need not wait any longer."""
        if self._place is not None and self._api.overlaps:
            self._place.let_others_start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Responder:
        """Answer with what this work comes to; meanwhile nothing more is taken from this connection."""
        self.keep_alone()
        return self.run_beside(work)

    def run_eagerly(self, work: Coroutine[Any, Any, Any]) -> Responder:
        """The same for work that mostly need not wait: it is begun at once, and needs no task if it does not."""
        begun = begin(work)
        if isinstance(begun, Ended):
            self.settle(begun.result)
            return self
        return self.run(begun)

    def run_beside(self, work: Coroutine[Any, Any, Any]) -> Responder:
        """The same, while requests that may overlap with this one go on."""
        self.keep()
        self._works += 1
        at_work = self._api.at_work
        task = tasks.start(self._run(work), self._api.name, self._on_failure)
        at_work.add(task)
        task.add_done_callback(at_work.discard)
        return self

    async def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        answer = await (work if self.charge is None else Charged(work, self.charge))
        self._works -= 1
        if self._works == 0:
            self.let_others_start()
        self.settle(answer)

    def _on_failure(self) -> None:
        self.fail(f"{self._api.name} failed")

    # ---- the answer

    def settle(self, answer: Any) -> None:
        """Take what a handler has come to: a response, or this responder, which somebody answers."""
        if answer is not self:
            self.answer(answer)

    def answer(self, response: Any) -> None:
        """Send this response, behind all replies to earlier requests."""
        assert not self.is_done, f"a request is answered once: {self!r}"
        self.is_done = True
        if self.charge is not None:
            self._settle_charge(self.charge)
        if self.throttle_ms:
            tell_throttle(response, self._api.key, self.version, self.throttle_ms)
        if not self._api.overlaps:
            self._api.counters.note_answer(self._api.key, response)
        place = self._place
        if place is None:
            self._connection.reply(self._encode(response))
        else:
            self._fill(place, response)
        if self.throttle_ms:
            self._connection.throttle(self.throttle_ms / 1000)

    def answer_well(self, body: bytes, codes: int) -> None:
        """The same with a body that is encoded already; nothing but success stands in it, so many times."""
        api = self._api
        api.counters.note_errors(api.key, NONE, codes)
        place = self._place
        if place is None or self.charge is not None or self.throttle_ms:
            self.answer(EncodedBody(body))
            return
        assert not self.is_done, f"a request is answered once: {self!r}"
        self.is_done = True
        api.meter.answered_later(self._received_ns, self._kept_ns, monotonic_ns())
        place.complete(encode_body_frame(api.key, self.version, self._correlation_id, body))

    def _settle_charge(self, charge: Charge) -> None:
        self.charge = None  # it knows us, too
        charge.settle()

    def _fill(self, place: PendingReply, response: Any) -> None:
        self._api.meter.answered_later(self._received_ns, self._kept_ns, monotonic_ns())
        try:
            output = self._encode(response)
        except Exception:
            logger.exception("the answer to %s cannot be encoded", self._api.name)
            self._connection.abandon(f"{self._api.name} failed")
        else:
            place.complete(output)

    def answer_last(self, response: Any, reason: str) -> None:
        """Send this response and close the connection; what does not fit into the socket at once is not waited for."""
        assert self.is_kept, "whatever is answered now is sent later, when this would be gone"
        if not self._connection.is_closed:
            self.answer(response)
            self._connection.abandon(reason)
        self.is_done = True

    def end(self) -> Responder:
        """The client wants no answer (acks=0)."""
        assert not self.is_done, f"a request ends once: {self!r}"
        self.is_done = True
        if self.charge is not None:
            self._settle_charge(self.charge)
        if self._place is not None:
            self._place.complete(None)
        if self.throttle_ms:
            self._connection.throttle(self.throttle_ms / 1000)
        return self

    def fail(self, reason: str) -> Responder:
        """Close the connection: there is no answer that the client would understand."""
        self.is_done = True
        self._connection.abandon(reason)
        return self

    def _encode(self, response: Any) -> Encoded:
        """The whole frame of the reply."""
        return encode_response_frame(self._api.key, self.version, self._correlation_id, response)

    # ---- the client

    @property
    def is_gone(self) -> bool:
        """Whether nobody is there any more to take the answer."""
        return self._connection.is_closed

    def wait(self, waiting: Cancellable) -> None:
        """Have `waiting` cancelled when the client goes."""
        if self._connection.is_closed:
            waiting.cancel()
        else:
            self._connection.waiting.add(waiting)

    def stop_waiting(self, waiting: Cancellable) -> None:
        self._connection.waiting.discard(waiting)

    def waiting_beside(self) -> Iterable[Cancellable]:
        """Requests of the same client that wait for something."""
        return list(self._connection.waiting)

    def watch(self, name: str, tell: Callable[[], None]) -> None:
        """Have somebody told when the connection ends, also long after this answer; one for each name."""
        self._connection.watchers[name] = tell

    def inner(self, key: int, name: str, version: int, correlation_id: int) -> InnerResponder:
        """For a request that came inside this one."""
        api = Answering(key, name, False, self._api.meter, self._api.counters)
        return InnerResponder(self._connection, api, version, correlation_id)

    def __del__(self) -> None:
        if self._place is not None and not self.is_done and not self._connection.is_closed:
            logger.error("a %s request was forgotten: closing its connection", self._api.name)
            tasks.counts.failed += 1
            self._connection.abandon(f"{self._api.name} was forgotten")

    def __repr__(self) -> str:
        state = "done" if self.is_done else "kept" if self._place is not None else "new"
        return f"<Responder {self._api.name} v{self.version} {state}>"


class TokenResponder(Responder):
    """For a token of a login that came without a request around it (SaslHandshake v0): so goes the answer."""

    def answer_last(self, response: Any, reason: str) -> None:  # noqa: ARG002 - there is no way to tell it
        self.fail(reason)

    def _encode(self, response: Any) -> Encoded:
        token: bytes = response.auth_bytes
        output = Encoded(len(token).to_bytes(4, "big") + token)
        output.holes = []
        return output


class InnerResponder(Responder):
    """For a request inside another one: whoever opened that gets the answer."""

    def __init__(self, connection: Connection, api: Answering, version: int, correlation_id: int) -> None:
        super().__init__(connection, api, version, correlation_id, 0)
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def keep(self) -> Responder:
        return self

    def keep_alone(self) -> Responder:
        return self

    def answer(self, response: Any) -> None:
        assert not self.is_done, f"a request is answered once: {self!r}"
        self.is_done = True
        self._answer.set_result(response)

    def fail(self, reason: str) -> Responder:
        if not self._answer.done():
            self.is_done = True
            self._answer.set_exception(RuntimeError(reason))
        return self

    async def answer_to(self, answer: Any) -> Any:
        """What the handler's answer comes to in the end."""
        if asyncio.iscoroutine(answer):
            answer = await answer
        return await self._answer if answer is self else answer

    def encoded(self, response: Any) -> bytes:
        """The reply as its sender would get it, without the size of the frame."""
        if self.throttle_ms:
            tell_throttle(response, self._api.key, self.version, self.throttle_ms)
        return bytes(self._encode(response)[4:])


def tell_throttle(response: Any, key: int, version: int, throttle_ms: int) -> None:
    """Say in an answer how long its client is held up. Most of those that are encoded already begin with it."""
    if not isinstance(response, EncodedBody):
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return
    name, field = next(iter(fields_of(ALL_APIS[key].response).items()))
    if name == "throttle_time_ms" and version >= field.since:
        response.body = throttle_ms.to_bytes(4, "big") + response.body[4:]
