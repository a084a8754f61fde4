"""Dispatcher of requests: decodes a frame, calls the handler, and sends the response.

Rules:
1. On one connection only Produce and Fetch may overlap. Every other request starts after the responses to all earlier
requests, and gets its response before the next one starts, as in Kafka.
2. A malformed request closes the connection with one log line: no response is possible.
3. A handler that raises closes its connection and nothing else.
4. responder.py implements responding; handlers/table.py lists the APIs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Any, Final

from ottla.base.gc_pause import collector_pause
from ottla.broker.audit.request_auditor import audited
from ottla.broker.cluster.forwarding import forwarded
from ottla.broker.context import Context
from ottla.broker.offload import encode_and_free, free_rows, is_long, offload_encoding, run_in_worker
from ottla.broker.responder import RequestType, Responder, TokenResponder
from ottla.broker.served_api import ServedApi
from ottla.broker.services import BrokerServices
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.requests import SendProbe
from ottla.metrics.unsupported_requests import UnsupportedRequest
from ottla.network.close_reason import CloseReason
from ottla.network.connection import Connection
from ottla.network.poller import Poller
from ottla.protocol.apis import ALL_APIS, APIS, Api
from ottla.protocol.codec import Decoder, ProtocolError, decoder_for
from ottla.protocol.headers import RequestHeader, decode_request_header

logger = logging.getLogger(__name__)

MALFORMED: Final = CloseReason.MALFORMED_REQUEST
PRODUCE: Final = 0
PRODUCE_SINCE: Final = 3  # advertised from 0 for old librdkafka but not served, as in Kafka
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
INTER_BROKER_API_KEYS: Final = frozenset({27})  # WriteTxnMarkers: clients never send it
NOT_SAMPLED: Final = 0
ITEMS_ON_LOOP_MAX: Final = 1_000  # array items of a request that is decoded on the loop
PARTITIONS_ON_LOOP_MAX: Final = 250  # the same for items that are partitions to read or write
LARGE_FRAME_BYTES: Final = 64 << 10  # a request of this size contains thousands of items, unless it contains records


class ApiEntry:
    """One API that this broker serves."""

    def __init__(self, row: ServedApi, api: Api, counters: BrokerCounters) -> None:
        self.api = api
        handle = audited(row.key, forwarded(row) if row.is_forwarded else row.handle)
        self.is_async = inspect.iscoroutinefunction(handle)
        # coroutine handlers may produce large responses
        self.handle = offload_encoding(handle) if self.is_async else handle
        self.key = api.key
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.min_served_version = PRODUCE_SINCE if api.key == PRODUCE else api.min_version
        self.request = api.request
        self.response = api.response
        self.overlaps = row.overlaps
        self.handle_frame = row.handle_undecoded
        self.handle_long = row.handle_long or self.handle
        self.offloads_encoding = row.handle_long is not None
        self.items_on_loop_max = PARTITIONS_ON_LOOP_MAX if row.overlaps else ITEMS_ON_LOOP_MAX
        self.is_allowed_before_login = row.is_allowed_before_login
        self.starts_eagerly = row.starts_eagerly
        self.is_exempt = row.is_inter_broker or row.key in INTER_BROKER_API_KEYS
        self.meter = counters.meter(api.key, api.name, api.max_version)
        self.request_type = RequestType(api.key, api.name, row.overlaps, self.meter, counters)
        self._decoders: dict[int, Decoder] = {}

    def decoder(self, version: int) -> Decoder:
        found = self._decoders.get(version)
        if found is None:
            found = self._decoders[version] = decoder_for(self.request, version)
        return found

    def decode_on_loop(self, version: int, frame: memoryview, position: int) -> Any | None:
        """Return the decoded request; None if it is long or malformed after its first hundreds of items. A worker
        decodes it then.

        Trailing bytes are ignored as in Kafka: librdkafka appends three bytes to Metadata v13.
        """
        size = len(frame)
        if size > LARGE_FRAME_BYTES and not self.overlaps:
            return None
        try:
            return self.decoder(version)(frame, position, self.items_on_loop_max)[0]
        except ProtocolError:
            if size <= self.items_on_loop_max:
                raise
            return None


class Dispatcher:
    """Handles the frames of all connections."""

    def __init__(
        self,
        services: BrokerServices,
        rows: Iterable[ServedApi],
        unsupported_version_response: Callable[[Context], Any],
        poller: Poller,
    ) -> None:
        self._services = services
        self._poller = poller
        rows = list(rows)
        self._served = {row.key: ApiEntry(row, ALL_APIS[row.key], services.counters) for row in rows}
        self._unsupported_version_response = unsupported_version_response  # to ApiVersions in an unknown version
        self._loop = asyncio.get_running_loop()
        ranges = [(s.key, s.min_version, s.max_version) for s in self._served.values()]
        services.served_apis = [served for served in ranges if served[0] in APIS]
        services.broker_apis = [served for served in ranges if served[0] not in APIS]
        services.apis = {row.key: row for row in rows}

    # ---- FrameHandler

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        if connection.client.sends_bare_sasl_tokens:
            return self._on_sasl_token(connection, frame)
        try:
            header = decode_request_header(frame)
        except ProtocolError as error:
            return self._refuse(connection, MALFORMED, f"unreadable request header: {error}")
        served = self._served.get(header.api_key)
        if served is None:
            return self._refuse_unsupported(connection, header, f"API {header.api_key}", "does not know it")
        if not connection.may_start(served.overlaps):
            return False
        if not connection.client.is_authenticated and not served.is_allowed_before_login:
            return self._refuse(connection, CloseReason.NO_LOGIN, f"{served.api.name} before a login")
        version = header.api_version
        if not served.min_served_version <= version <= served.max_version:
            return self._on_unsupported_version(served, connection, header)
        started_ns = monotonic_ns() if served.meter.wants_sample else NOT_SAMPLED
        received_ns = self._poller.round_start_ns
        responder = Responder(connection, served.request_type, version, header.correlation_id, received_ns)
        context = Context(
            self._services,
            responder,
            connection.client,
            served.key,
            version,
            header.correlation_id,
            header.client_id,
        )
        if self._services.quotas.is_on and not self._begin_with_quotas(served, connection, context, len(frame)):
            return False
        if served.handle_frame is None or not served.handle_frame(frame, header.body_position, context):
            try:
                request = served.decode_on_loop(version, frame, header.body_position)
            except ProtocolError as error:
                return self._refuse(connection, MALFORMED, f"malformed {served.api.name} v{version} request: {error}")
            if request is None:
                responder.run(self._decode_and_handle(served, bytearray(frame), header.body_position, context))
            else:
                self._process_result(served, served.handle(request, context), responder)
        served.meter.count_request(version)
        if started_ns != NOT_SAMPLED:
            self._record_sample(served, responder, connection, len(frame), started_ns)
        return not connection.is_closed

    def _begin_with_quotas(self, served: ApiEntry, connection: Connection, context: Context, size_bytes: int) -> bool:
        """Begin a request under quotas. False: a quota delays the request, and the connection offers it again later."""
        if served.is_exempt:
            return True
        context.request_bytes = size_bytes
        seconds = self._services.quotas.begin_request(context, is_produce=served.key == PRODUCE)
        if seconds > 0:
            connection.throttle(seconds)
        return seconds == 0

    def _process_result(self, served: ApiEntry, answer: Any, responder: Responder) -> None:
        """Process what a handler returned: a response, a coroutine, or the responder."""
        if answer is responder:
            assert responder.is_done or responder.is_deferred, f"{served.api.name} left its request unanswered"
        elif type(answer) is served.response:  # the usual case; the coroutine check is slower
            responder.answer(answer)
        elif served.starts_eagerly:
            responder.run_eagerly(answer)
        elif served.is_async or (not served.overlaps and asyncio.iscoroutine(answer)):
            responder.run(answer)
        else:
            responder.answer(answer)

    def _on_sasl_token(self, connection: Connection, frame: memoryview) -> bool:
        """Handle a frame that is a bare SASL token without a request header."""
        if not connection.may_start(overlaps=False):
            return False
        served = self._served[SASL_AUTHENTICATE]
        responder = TokenResponder(connection, served.request_type, 0, 0, self._poller.round_start_ns)
        context = Context(self._services, responder, connection.client, served.key, 0, 0, None)
        self._process_result(served, served.handle(served.request(auth_bytes=bytes(frame)), context), responder)
        return not connection.is_closed

    def _record_sample(
        self, served: ApiEntry, responder: Responder, connection: Connection, size_bytes: int, started_ns: int
    ) -> None:
        """Record the times of a sampled request when its handler has returned. Late responses record their own."""
        meter, now_ns, received_ns = served.meter, monotonic_ns(), self._poller.round_start_ns
        meter.sample(size_bytes, received_ns, started_ns, now_ns)
        if responder.is_done and not responder.is_deferred:
            meter.record(received_ns, now_ns, meter.weight)
            if meter.wants_probe:
                connection.notify_when_sent(SendProbe(meter, now_ns))

    # ---- rejections

    def _on_unsupported_version(self, served: ApiEntry, connection: Connection, header: RequestHeader) -> bool:
        """Close the connection, except for ApiVersions: its response lists the supported versions (KIP-511)."""
        if served.key != API_VERSIONS:
            spoken = f"supports v{served.min_served_version} to v{served.max_version}"
            return self._refuse_unsupported(connection, header, served.api.name, spoken)
        responder = Responder(connection, served.request_type, 0, header.correlation_id, 0)
        context = Context(
            self._services, responder, connection.client, served.key, 0, header.correlation_id, header.client_id
        )
        self._process_result(served, self._unsupported_version_response(context), responder)
        return not connection.is_closed

    def _refuse_unsupported(self, connection: Connection, header: RequestHeader, request: str, why: str) -> bool:
        """Close the connection as Kafka does, and log the reason."""
        client = connection.client
        version, software = header.api_version, (client.software_name, client.software_version)
        asked = UnsupportedRequest.by(header.client_id, *software, request, version)
        untold = self._services.counters.unsupported.record(client.host, asked, self._services.clock.monotonic_ms())
        if untold is not None:
            logger.warning(
                "closing the connection from %s, client id %r, software %s %s: it requests %s v%d, "
                "and this broker %s%s",
                client.host,
                asked.client_id,
                asked.software_name,
                asked.software_version,
                request,
                version,
                why,
                f" ({untold} more such requests of this client since the last message)" if untold else "",
            )
        connection.abandon(CloseReason.UNSUPPORTED_REQUEST, f"{request} v{version} is not served")
        return False

    def _refuse(self, connection: Connection, reason: CloseReason, detail: str) -> bool:
        connection.abandon(reason, detail)
        return False

    # ---- large requests

    async def _decode_and_handle(self, served: ApiEntry, frame: bytearray, position: int, context: Context) -> Any:
        """Decode a request with up to millions of items in a worker thread, then handle it."""
        decoder = served.decoder(context.api_version)
        workers = self._services.workers
        held: list[Any] = []
        collector_pause.begin()
        try:
            try:
                held += await self._loop.run_in_executor(workers, decode_offloaded, decoder, frame, position)
            except ProtocolError as error:
                detail = f"malformed {served.api.name} v{context.api_version} request: {error}"
                return context.responder.fail(MALFORMED, detail)
            answer = served.handle_long(held[0], context)
            if asyncio.iscoroutine(answer):
                answer = await answer
            if served.offloads_encoding and is_long(answer):
                answer = await run_in_worker(workers, encode_and_free, answer, context.api_version)
            return answer
        finally:  # freeing a million objects also takes time
            freeing = self._loop.run_in_executor(workers, free_rows, held.pop() if held else None)
            freeing.add_done_callback(collector_pause.end)

    async def wait_for_handlers(self, seconds_max: float) -> None:
        """Wait for running handlers."""
        at_work = {task for served in self._served.values() for task in served.request_type.running_tasks}
        if at_work:
            await asyncio.wait(at_work, timeout=seconds_max)

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self._served)} APIs>"


def decode_offloaded(decoder: Decoder, frame: bytearray, position: int) -> list[Any]:
    """Decode one request in a worker thread. The list lets the caller release the last reference."""
    return [decoder(memoryview(frame), position)[0]]
