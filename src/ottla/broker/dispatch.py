"""From a frame to its handler and back: decode, call, answer.

Rules:
1. On one connection only Produce and Fetch may overlap; every other request waits until the earlier ones are
   answered and is answered itself before the next one starts, as with Kafka.
2. What cannot be understood closes the connection with one log line: there is no way to answer it.
3. A bug in a handler closes that connection and nothing else.
4. How a request is answered is responder.py's business, what an API is stands in handlers/table.py.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Any, Final

from ottla.base.uncollected import uncollected
from ottla.broker.audit.noting import noted
from ottla.broker.cluster.forwarding import forwarded
from ottla.broker.context import Context
from ottla.broker.long_messages import encode_and_free, encoded_apart, free, in_worker, is_long
from ottla.broker.parts import BrokerParts
from ottla.broker.responder import Answering, Responder, TokenResponder
from ottla.broker.served_api import ServedApi
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.requests import SendProbe
from ottla.metrics.unsupported_requests import Asked
from ottla.network.connection import Connection
from ottla.network.poller import Poller
from ottla.protocol.apis import ALL_APIS, APIS, Api
from ottla.protocol.codec import Decoder, ProtocolError, decoder_for
from ottla.protocol.headers import RequestHeader, decode_request_header

logger = logging.getLogger(__name__)

PRODUCE: Final = 0
PRODUCE_SINCE: Final = 3  # announced from 0 on, as Kafka does for old librdkafka, and not served: so does Kafka
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
BETWEEN_BROKERS_TOO: Final = frozenset({27})  # WriteTxnMarkers: no client sends them
UNMEASURED: Final = 0
ITEMS_AT_ONCE: Final = 1_000  # array items of a request that is decoded on the loop
ROWS_AT_ONCE: Final = 250  # the same where each of them is a partition to be read from or written to
LARGE_FRAME_BYTES: Final = 64 << 10  # so large a request names thousands of things, unless it brings records


class Served:
    """One API that this broker answers."""

    def __init__(self, row: ServedApi, api: Api, counters: BrokerCounters) -> None:
        self.api = api
        handle = noted(row.key, forwarded(row) if row.is_passed_on else row.handle)
        self.is_async = inspect.iscoroutinefunction(handle)
        self.handle = encoded_apart(handle) if self.is_async else handle  # who awaits may be asked for much
        self.key = api.key
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.lowest_spoken = PRODUCE_SINCE if api.key == PRODUCE else api.min_version
        self.request = api.request
        self.response = api.response
        self.overlaps = row.overlaps
        self.handle_frame = row.handle_frame
        self.handle_long = row.handle_long or self.handle
        self.encodes_apart = row.handle_long is not None
        self.items_at_once = ROWS_AT_ONCE if row.overlaps else ITEMS_AT_ONCE
        self.is_before_login = row.is_before_login
        self.is_eager = row.is_eager
        self.is_exempt = row.is_between_brokers or row.key in BETWEEN_BROKERS_TOO
        self.meter = counters.meter(api.key, api.name, api.max_version)
        self.answering = Answering(api.key, api.name, row.overlaps, self.meter, counters)
        self._decoders: dict[int, Decoder] = {}

    def decoder(self, version: int) -> Decoder:
        found = self._decoders.get(version)
        if found is None:
            found = self._decoders[version] = decoder_for(self.request, version)
        return found

    def decode_now(self, version: int, frame: memoryview, position: int) -> Any | None:
        """The request; None if it is long, or malformed behind its first hundreds of items: a worker looks at it then.

        What follows the message is ignored, as Kafka does: librdkafka sends three bytes more in Metadata v13.
        """
        size = len(frame)
        if size > LARGE_FRAME_BYTES and not self.overlaps:
            return None
        try:
            return self.decoder(version)(frame, position, self.items_at_once)[0]
        except ProtocolError:
            if size <= self.items_at_once:
                raise
            return None


class Dispatcher:
    """Knows the APIs; the connections call it with whole frames."""

    def __init__(
        self,
        parts: BrokerParts,
        rows: Iterable[ServedApi],
        unsupported_answer: Callable[[], Any],
        poller: Poller,
    ) -> None:
        self._parts = parts
        self._poller = poller
        rows = list(rows)
        self._served = {row.key: Served(row, ALL_APIS[row.key], parts.counters) for row in rows}
        self._unsupported_answer = unsupported_answer  # to ApiVersions in a version that we do not know
        self._loop = asyncio.get_running_loop()
        ranges = [(s.key, s.min_version, s.max_version) for s in self._served.values()]
        parts.served_apis = [served for served in ranges if served[0] in APIS]
        parts.broker_apis = [served for served in ranges if served[0] not in APIS]
        parts.apis = {row.key: row for row in rows}

    # ---- FrameHandler

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        if connection.client.sends_tokens:
            return self._on_token(connection, frame)
        try:
            header = decode_request_header(frame)
        except ProtocolError as error:
            return self._refuse(connection, f"unreadable request header: {error}")
        served = self._served.get(header.api_key)
        if served is None:
            return self._refuse_unsupported(connection, header, f"API {header.api_key}", "does not know it")
        if not connection.may_start(served.overlaps):
            return False
        if not connection.client.has_logged_in and not served.is_before_login:
            return self._refuse(connection, f"{served.api.name} before a login")
        version = header.api_version
        if not served.lowest_spoken <= version <= served.max_version:
            return self._on_unsupported_version(served, connection, header)
        started_ns = monotonic_ns() if served.meter.wants_sample else UNMEASURED
        received_ns = self._poller.answered_ns
        responder = Responder(connection, served.answering, version, header.correlation_id, received_ns)
        context = Context(
            self._parts,
            responder,
            connection.client,
            served.key,
            version,
            header.correlation_id,
            header.client_id,
        )
        if self._parts.quotas.is_on and not self._begin_measured(served, connection, context, len(frame)):
            return False
        if served.handle_frame is None or not served.handle_frame(frame, header.body_position, context):
            try:
                request = served.decode_now(version, frame, header.body_position)
            except ProtocolError as error:
                return self._refuse(connection, f"malformed {served.api.name} v{version} request: {error}")
            if request is None:
                responder.run(self._decode_and_handle(served, bytearray(frame), header.body_position, context))
            else:
                self._take(served, served.handle(request, context), responder)
        served.meter.count_request(version)
        if started_ns != UNMEASURED:
            self._sample(served, responder, connection, len(frame), started_ns)
        return not connection.is_closed

    def _begin_measured(self, served: Served, connection: Connection, context: Context, size_bytes: int) -> bool:
        """Some quotas are defined; False: one of them holds this request back, and it is offered again then."""
        if served.is_exempt:
            return True
        context.request_bytes = size_bytes
        seconds = self._parts.quotas.begin(context, is_produce=served.key == PRODUCE)
        if seconds > 0:
            connection.throttle(seconds)
        return seconds == 0

    def _take(self, served: Served, answer: Any, responder: Responder) -> None:
        """What a handler has returned is the answer, or will come to it."""
        if answer is responder:
            assert responder.is_done or responder.is_kept, f"{served.api.name} forgets its request"
        elif type(answer) is served.response:  # as most are: whether something is a coroutine takes time to find out
            responder.answer(answer)
        elif served.is_eager:
            responder.run_eagerly(answer)
        elif served.is_async or (not served.overlaps and asyncio.iscoroutine(answer)):
            responder.run(answer)
        else:
            responder.answer(answer)

    def _on_token(self, connection: Connection, frame: memoryview) -> bool:
        """A frame that is no request, but a token of a login."""
        if not connection.may_start(overlaps=False):
            return False
        served = self._served[SASL_AUTHENTICATE]
        responder = TokenResponder(connection, served.answering, 0, 0, self._poller.answered_ns)
        context = Context(self._parts, responder, connection.client, served.key, 0, 0, None)
        self._take(served, served.handle(served.request(auth_bytes=bytes(frame)), context), responder)
        return not connection.is_closed

    def _sample(
        self, served: Served, responder: Responder, connection: Connection, size_bytes: int, started_ns: int
    ) -> None:
        """A handler has returned: take the times of a request of the sample. Answers that come later measure theirs."""
        meter, now_ns, received_ns = served.meter, monotonic_ns(), self._poller.answered_ns
        meter.sample(size_bytes, received_ns, started_ns, now_ns)
        if responder.is_done and not responder.is_kept:
            meter.answered(received_ns, now_ns, meter.weight)
            if meter.wants_probe:
                connection.follow(SendProbe(meter, now_ns))

    # ---- what is not answered as it was asked

    def _on_unsupported_version(self, served: Served, connection: Connection, header: RequestHeader) -> bool:
        """Only ApiVersions may be asked in a version that we do not know: the answer tells which ones we do."""
        if served.key != API_VERSIONS:
            spoken = f"speaks v{served.lowest_spoken} to v{served.max_version}"
            return self._refuse_unsupported(connection, header, served.api.name, spoken)
        Responder(connection, served.answering, 0, header.correlation_id, 0).answer(self._unsupported_answer())
        return True

    def _refuse_unsupported(self, connection: Connection, header: RequestHeader, request: str, why: str) -> bool:
        """The client sees a connection that ends, as with Kafka: whoever looks for the reason finds it here."""
        client = connection.client
        version, software = header.api_version, (client.software_name, client.software_version)
        asked = Asked.by(header.client_id, *software, request, version)
        untold = self._parts.counters.unsupported.note(client.host, asked, self._parts.clock.monotonic_ms())
        if untold is not None:
            logger.warning(
                "closing the connection from %s, client id %r, software %s %s: it asks for %s v%d, "
                "and this broker %s%s",
                client.host,
                asked.client_id,
                asked.software_name,
                asked.software_version,
                request,
                version,
                why,
                f" ({untold} more such requests of this client since the last line)" if untold else "",
            )
        connection.abandon(f"{request} v{version} is not served")
        return False

    def _refuse(self, connection: Connection, reason: str) -> bool:
        logger.info("closing the connection from %s: %s", connection.client.host, reason)
        connection.abandon(reason)
        return False

    # ---- large requests

    async def _decode_and_handle(self, served: Served, frame: bytearray, position: int, context: Context) -> Any:
        """A request that names a million topics takes half a second to decode: a worker does that."""
        decoder = served.decoder(context.api_version)
        workers = self._parts.workers
        held: list[Any] = []
        uncollected.begin()
        try:
            try:
                held += await self._loop.run_in_executor(workers, decode_apart, decoder, frame, position)
            except ProtocolError as error:
                reason = f"malformed {served.api.name} v{context.api_version} request: {error}"
                logger.info("closing the connection from %s: %s", context.client_host, reason)
                return context.responder.fail(reason)
            answer = served.handle_long(held[0], context)
            if asyncio.iscoroutine(answer):
                answer = await answer
            if served.encodes_apart and is_long(answer):
                answer = await in_worker(workers, encode_and_free, answer, context.api_version)
            return answer
        finally:  # to free a million objects takes its time, too
            freeing = self._loop.run_in_executor(workers, free, held.pop() if held else None)
            freeing.add_done_callback(uncollected.end)

    async def finish(self, seconds_max: float) -> None:
        """Wait for the handlers that are still at work."""
        at_work = {task for served in self._served.values() for task in served.answering.at_work}
        if at_work:
            await asyncio.wait(at_work, timeout=seconds_max)

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self._served)} APIs>"


def decode_apart(decoder: Decoder, frame: bytearray, position: int) -> list[Any]:
    """In a worker: the one request of a large frame, in a list, so that whoever takes it out has the last of it."""
    return [decoder(memoryview(frame), position)[0]]
