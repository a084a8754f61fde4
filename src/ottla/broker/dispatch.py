"""From a frame to its handler and back: decode, call, encode.

Rules:
1. On one connection only Produce and Fetch may overlap; every other request waits until the earlier ones are
   answered and is answered itself before the next one starts, as with Kafka.
2. What cannot be understood closes the connection with one log line: there is no way to answer it.
3. A bug in a handler closes that connection and nothing else.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
from collections.abc import Callable, Coroutine
from time import monotonic_ns
from typing import Any, Final

from ottla.broker.context import Context
from ottla.broker.services import Services
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.requests import SendProbe
from ottla.network.connection import Connection
from ottla.network.poller import Poller
from ottla.protocol.apis import ALL_APIS, APIS, Api
from ottla.protocol.codec import Decoder, ProtocolError, decoder_for
from ottla.protocol.headers import decode_request_header

logger = logging.getLogger(__name__)

PRODUCE: Final = 0
FETCH: Final = 1
API_VERSIONS: Final = 18
UNMEASURED: Final = 0
LARGE_FRAME_BYTES: Final = 64 << 10  # so large a request names thousands of things, unless it brings records

Handler = Callable[[Any, Context], Any]


class Served:
    """One API that this broker answers."""

    def __init__(self, api: Api, handler: Handler, counters: BrokerCounters) -> None:
        self.api = api
        self.handler = handler
        self.key = api.key
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.request = api.request
        self.overlaps = api.key in (PRODUCE, FETCH)
        self.is_async = inspect.iscoroutinefunction(handler)
        self.meter = counters.meter(api.key, api.name, api.max_version)
        self._decoders: dict[int, Decoder] = {}

    def decoder(self, version: int) -> Decoder:
        found = self._decoders.get(version)
        if found is None:
            found = self._decoders[version] = decoder_for(self.request, version)
        return found


class Dispatcher:
    """Knows the handlers; the connections call it with whole frames."""

    def __init__(
        self,
        services: Services,
        handlers: dict[int, Handler],
        unsupported_answer: Callable[[], Any],
        poller: Poller,
    ) -> None:
        self._services = services
        self._poller = poller
        self._counters = services.counters
        self._served = {key: Served(ALL_APIS[key], handler, self._counters) for key, handler in handlers.items()}
        self._unsupported_answer = unsupported_answer  # to ApiVersions in a version that we do not know
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        ranges = [(s.key, s.min_version, s.max_version) for s in self._served.values()]
        services.served_apis = [served for served in ranges if served[0] in APIS]
        services.broker_apis = [served for served in ranges if served[0] not in APIS]
        services.handlers = handlers

    # ---- FrameHandler

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        try:
            header = decode_request_header(frame)
        except ProtocolError as error:
            return self._refuse(connection, f"unreadable request header: {error}")
        served = self._served.get(header.api_key)
        if served is None:
            return self._refuse(connection, f"unknown api key {header.api_key}")
        if connection.pending and (connection.is_exclusive or not served.overlaps):
            return False
        version = header.api_version
        started_ns = monotonic_ns() if served.meter.wants_sample else UNMEASURED
        context = Context(self._services, connection, served.key, version, header.correlation_id, header.client_id)
        if not served.min_version <= version <= served.max_version:
            return self._on_unsupported_version(served, context)
        if len(frame) > LARGE_FRAME_BYTES and not served.overlaps:
            self._run_task(context, self._decode_and_answer(served, bytes(frame), header.body_position, context))
            self._measure(served, context, len(frame), started_ns, is_answered=False)
            return True
        try:
            # What follows the message is ignored, as Kafka does: librdkafka sends three bytes more in Metadata v13.
            request, _ = served.decoder(version)(frame, header.body_position)
        except ProtocolError as error:
            return self._refuse(connection, f"malformed {served.api.name} v{version} request: {error}")
        if served.is_async:
            self._run_task(context, self._answer_later(served, request, context))
            self._measure(served, context, len(frame), started_ns, is_answered=False)
            return True
        response = served.handler(request, context)
        if response is not None:
            if not served.overlaps:
                self._counters.note_answer(served.key, response)
            connection.reply(context.encode(response))
            if started_ns == UNMEASURED:
                served.meter.count_request(version)
                return not connection.is_closed
        self._measure(served, context, len(frame), started_ns, is_answered=response is not None)
        return not connection.is_closed

    def _measure(self, served: Served, context: Context, size_bytes: int, started_ns: int, is_answered: bool) -> None:
        """A handler has returned: take the times of a request of the sample, and of every one that is parked."""
        meter = served.meter
        weight = meter.weight
        meter.count_request(context.api_version)
        now_ns, received_ns = monotonic_ns(), self._poller.answered_ns
        if started_ns != UNMEASURED:
            meter.sample(size_bytes, received_ns, started_ns, now_ns)
        if context.is_parked:
            context.meter, context.received_ns, context.parked_ns = meter, received_ns, now_ns
        elif started_ns != UNMEASURED:
            meter.answered(received_ns, now_ns, weight)
            if is_answered and meter.wants_probe:
                context.connection.follow(SendProbe(meter, now_ns))

    # ---- replies

    def _on_unsupported_version(self, served: Served, context: Context) -> bool:
        """Only ApiVersions may be asked in a version that we do not know: the answer tells which ones we do."""
        if served.key != API_VERSIONS:
            return self._refuse(
                context.connection, f"{served.api.name} v{context.api_version} from {context.client_id!r} is not served"
            )
        context.api_version = 0
        context.connection.reply(context.encode(self._unsupported_answer()))
        return True

    def _refuse(self, connection: Connection, reason: str) -> bool:
        logger.info("closing the connection from %s: %s", connection.peer_host, reason)
        connection.abandon(reason)
        return False

    # ---- handlers that await

    def _run_task(self, context: Context, work: Coroutine[Any, Any, None]) -> None:
        context.park()
        context.connection.is_exclusive = True
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decode_and_answer(self, served: Served, frame: bytes, position: int, context: Context) -> None:
        """A request that names a million topics takes half a second to decode: a worker does that."""
        decoder = served.decoder(context.api_version)
        workers = self._services.workers
        try:
            held = await self._loop.run_in_executor(workers, decode_apart, decoder, frame, position)
        except ProtocolError as error:
            self._refuse(context.connection, f"malformed {served.api.name} v{context.api_version} request: {error}")
            return
        await self._answer_later(served, held[0], context)
        self._loop.run_in_executor(workers, held.clear)  # to free a million objects takes its time, too

    async def _answer_later(self, served: Served, request: Any, context: Context) -> None:
        try:
            response = served.handler(request, context)
            if served.is_async:
                response = await response
        except Exception:  # one of the loops that own a task
            logger.exception("%s failed", served.api.name)
            context.connection.abandon(f"{served.api.name} failed")
            return
        context.connection.is_exclusive = False
        self._counters.note_answer(served.key, response)
        context.answer(response)

    async def finish(self, seconds_max: float) -> None:
        """Wait for the handlers that are still at work."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds_max)

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self._served)} APIs, {len(self._tasks)} at work>"


def decode_apart(decoder: Decoder, frame: bytes, position: int) -> list[Any]:
    """In a worker: the one request of a large frame. No collection may stop everybody to look at what is being made."""
    gc.disable()
    try:
        return [decoder(memoryview(frame), position)[0]]
    finally:
        gc.enable()
