"""One outgoing connection to another broker, on the same event loop: pipelined requests, responses in their order.

Rules:
1. Several requests may be in flight. Responses arrive in the order of the requests; a mismatch closes the connection.
2. The connection is opened by the first request, and reopened after a loss. A loss fails all requests in flight at
   once; they are never sent again, because only the caller knows whether that is safe.
3. A timeout fails the request, not the connection. The connection is closed only if nothing was received since the
   request was sent: a network partition sends no packet.
4. The records of a response are views of the received frame; they may be kept.
5. Callers wait while the peer reads more slowly than they send.
6. A login that expires is not renewed: before it expires a new connection replaces this one.
Compiled with mypyc where possible.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, TypeVar

from ottla import __version__
from ottla.base import tasks
from ottla.base.errors import Error
from ottla.network.close_reason import CloseReason
from ottla.network.in_flight_requests import InFlightRequest, InFlightRequests
from ottla.network.peer_transport import PeerPoller, open_transport
from ottla.network.socket_options import NO_OPTIONS, SocketOptions
from ottla.network.tls_handshake import OutgoingTls
from ottla.network.transport import Transport
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import Encoded, ProtocolError, encode_into
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import layout_of

CONNECTION_REFUSED_ERRORS: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


class PeerError(Exception):
    """A request without a response.

    is_refused: the peer refused, reset or closed the connection: most likely no broker runs there.
    is_timeout: no response in time; the request may still be executed.
    is_sent: the request may have reached the peer.
    """

    def __init__(
        self, reason: str, *, is_refused: bool = False, is_timeout: bool = False, is_sent: bool = False
    ) -> None:
        super().__init__(reason)
        self.is_refused = is_refused
        self.is_timeout = is_timeout
        self.is_sent = is_sent


def connect_error(address: str, problem: OSError) -> PeerError:
    """Return the error if no connection could be opened."""
    reason = problem.strerror or problem
    return PeerError(f"cannot connect to {address}: {reason}", is_refused=problem.errno in CONNECTION_REFUSED_ERRORS)


def api_name(key: int) -> str:
    return ALL_APIS[key].name if key in ALL_APIS else f"API {key}"


class PeerState(Enum):
    IDLE = "not connected"
    CONNECTING = "connecting"
    NEGOTIATING = "asking for versions"
    READY = "ready"
    CLOSED = "closed"


TRANSITIONS = {
    PeerState.IDLE: {PeerState.CONNECTING, PeerState.CLOSED},
    PeerState.CONNECTING: {PeerState.NEGOTIATING, PeerState.IDLE, PeerState.CLOSED},
    PeerState.NEGOTIATING: {PeerState.READY, PeerState.IDLE, PeerState.CLOSED},
    PeerState.READY: {PeerState.IDLE, PeerState.CLOSED},
    PeerState.CLOSED: {PeerState.CLOSED},
}


__all__ = ["Authenticate", "BrokerConnection", "PeerError", "PeerPoller", "ResolveAddress"]

logger = logging.getLogger(__name__)

SOFTWARE_NAME: Final = "ottla-broker"
API_VERSIONS_VERSION: Final = 3  # the first version with the client's software name
CONNECT_MS: Final = 10_000
CONNECT_MS_MAX: Final = 30_000
TIMEOUT_MS: Final = 30_000
UNSENT_BYTES_MAX: Final = 1024 * 1024
IN_FLIGHT_MAX: Final = 1_000
LOGIN_RENEWAL_SHARE: Final = 0.85  # share of a login's lifetime after which the connection is replaced
DRAIN_SECONDS_MAX: Final = 5.0
RECEIVED_BYTES_PER_TURN: Final = 4 * 1024 * 1024

R = TypeVar("R")
ResolveAddress = Callable[[], tuple[str, int]]
Authenticate = Callable[["BrokerConnection"], Awaitable[int]]
"""Authenticates a new connection with `call_during_setup`; returns its lifetime in ms, 0 for unlimited.

Raises PeerError.
"""


class BrokerConnection:
    """A connection to another broker. All calls are made on the event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        poller: PeerPoller,
        locate: ResolveAddress | None = None,
        *,
        log_in: Authenticate | None = None,
        connect_ms: int = CONNECT_MS,
        connect_ms_max: int = CONNECT_MS_MAX,
        tls: OutgoingTls | None = None,
        options: SocketOptions = NO_OPTIONS,
    ) -> None:
        """`locate` returns the address before each connection, for a broker that may return with another one.

        Opening a connection may take `connect_ms`; the limit doubles after each timeout, up to the maximum.
        """
        self.host, self.port = host, port
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}  # versions that the peer supports, by API key
        self.received_bytes = self.sent_bytes = 0
        self.connections = 0  # number of connections opened
        self._state = PeerState.IDLE
        self._poller = poller
        self._rounds: PeerPoller = poller  # or, with TLS, the layer above it
        self._locate = locate
        self._tls = tls
        self._options = options
        self._log_in = log_in
        self._login_expires_at: float | None = None  # by the clock of the event loop; None: the login does not expire
        self._loop = asyncio.get_running_loop()
        self._transport: Transport | None = None
        self._descriptor = -1
        self._connect_task: asyncio.Task[None] | None = None
        self._connect_ms, self._connect_ms_max = connect_ms, connect_ms_max
        self._slow_attempts = 0  # consecutive connection timeouts
        self._correlation_id = 0
        self._calls = InFlightRequests(self._loop, self._on_malformed_response)
        self._out: deque[bytes | bytearray | memoryview] = deque()
        self._unsent_bytes = 0
        self._is_writing = False
        self._capacity_event: asyncio.Event | None = None

    # ---- calling

    async def call(
        self, request: Any, response: type[R], version: int | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> R:
        """Send a request and wait for the response, in the given version or the highest common one."""
        deadline = self._loop.time() + timeout_ms / 1000
        if not self.is_connected or self._is_login_old():
            await self._ensure_connected(deadline)
        while self._unsent_bytes > UNSENT_BYTES_MAX or len(self._calls) >= IN_FLIGHT_MAX:
            await self._wait_for_capacity(deadline)
        key = layout_of(type(request)).api_key
        assert key is not None, "only whole messages are sent"
        if version is None:
            version = self.version_of(key)
        call = self._send(request, response, key, version)
        answer: R = await self._answered(call, deadline)
        return answer

    async def _answered(self, call: InFlightRequest, deadline: float) -> Any:
        timer = self._loop.call_at(deadline, self._on_timeout, call)
        try:
            return await call.future
        finally:
            timer.cancel()

    def version_of(self, key: int) -> int:
        """Return the highest common version of an API."""
        ours, theirs = ALL_APIS[key], self.versions.get(key)
        if theirs is not None:
            highest = min(ours.max_version, theirs[1])
            if highest >= max(ours.min_version, theirs[0]):
                return highest
        raise PeerError(f"{self.address} does not support {ours.name}, or only in other versions")

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        return self._state is PeerState.READY

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed permanently."""
        return self._state is PeerState.CLOSED

    @property
    def in_flight_count(self) -> int:
        return len(self._calls)

    def _send(self, request: Any, response: type[Any], key: int, version: int) -> InFlightRequest:
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = encode_request_header(key, version, self._correlation_id, self.client_id)
        frame = Encoded(b"\0\0\0\0" + header)
        frame.holes = []
        encode_into(frame, request, version)
        assert not frame.holes, "requests between brokers have no file ranges"
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        call = InFlightRequest(key, version, self._correlation_id, response, self._loop.create_future())
        call.received_bytes_when_sent = self.received_bytes
        self._calls.add(call)
        self._out.append(frame)
        self._unsent_bytes += len(frame)
        if not self._is_writing:
            self._flush_out()
        return call

    def _on_timeout(self, call: InFlightRequest) -> None:
        if call.future.done():
            return
        call.future.set_exception(
            PeerError(f"{self.address} did not answer {api_name(call.key)} in time", is_timeout=True, is_sent=True)
        )
        if self.received_bytes == call.received_bytes_when_sent and call in self._calls:
            self._disconnect("it does not respond", is_refused=False, is_timeout=True)

    async def _wait_for_capacity(self, deadline: float) -> None:
        if self._capacity_event is None or self._capacity_event.is_set():
            self._capacity_event = asyncio.Event()
        try:
            async with asyncio.timeout_at(deadline):
                await self._capacity_event.wait()
        except TimeoutError:
            raise PeerError(f"{self.address} accepts no more requests", is_timeout=True) from None
        if not self.is_connected:
            raise PeerError(f"the connection to {self.address} was lost", is_refused=True)

    def _notify_capacity(self) -> None:
        if self._capacity_event is not None:
            self._capacity_event.set()

    # ---- connecting

    async def _ensure_connected(self, deadline: float) -> None:
        if self.is_closed:
            raise PeerError(f"the connection to {self.address} is closed permanently")
        if self._connect_task is None:
            self._connect_task = tasks.spawn_awaited(self._open(), f"connecting to {self.address}")
            self._connect_task.add_done_callback(self._on_opened)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(self._connect_task)
        except TimeoutError:
            raise PeerError(f"{self.address} cannot be reached in time", is_timeout=True) from None
        except PeerError as problem:  # one error for each waiting caller, whose own request was not sent
            raise PeerError(str(problem), is_refused=problem.is_refused, is_timeout=problem.is_timeout) from None
        except asyncio.CancelledError:
            if self.is_closed:
                raise PeerError(f"the connection to {self.address} is closed permanently") from None
            raise
        if not self.is_connected:
            raise PeerError(f"the connection to {self.address} was lost", is_refused=True)

    def _on_opened(self, _: asyncio.Task[None]) -> None:
        self._connect_task = None

    def _is_login_old(self) -> bool:
        return self._login_expires_at is not None and self._loop.time() >= self._login_expires_at

    async def _drain_before_relogin(self) -> None:
        """Complete requests in flight before the connection is replaced, unless that takes too long."""
        deadline = self._loop.time() + DRAIN_SECONDS_MAX
        with suppress(PeerError):
            while self.is_connected and len(self._calls):
                await self._wait_for_capacity(deadline)
        self._disconnect("its login is about to expire", is_refused=False)

    async def _open(self) -> None:
        if self.is_connected:
            await self._drain_before_relogin()
        if self._locate is not None:
            self.host, self.port = self._locate()
        self._change_state(PeerState.CONNECTING)
        try:
            await self._connect()
        finally:
            if self._state is PeerState.CONNECTING:
                self._change_state(PeerState.IDLE)
            elif self._state is PeerState.NEGOTIATING:
                self._disconnect("it did not report its versions, or refused the login", is_refused=False)

    async def _connect(self) -> None:
        limit_ms = min(self._connect_ms << min(self._slow_attempts, 10), self._connect_ms_max)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                opened = await open_transport(self.host, self.port, self._poller, self._tls, self._options)
        except TimeoutError:
            self._slow_attempts += 1
            raise PeerError(f"{self.address} cannot be reached in time", is_timeout=True) from None
        except OSError as problem:
            raise connect_error(self.address, problem) from None
        self._descriptor, self._transport, self._rounds = opened
        self._change_state(PeerState.NEGOTIATING)
        self.connections += 1
        self._slow_attempts = 0
        self._rounds.watch(self._descriptor, self)
        await self._fetch_api_versions()
        self._login_expires_at = None
        if self._log_in is not None:
            seconds = await self._log_in(self) / 1000
            self._login_expires_at = self._loop.time() + seconds * LOGIN_RENEWAL_SHARE if seconds > 0 else None
        if self._transport is not opened[1]:
            raise PeerError(f"the connection to {self.address} was lost", is_refused=True)
        self._change_state(PeerState.READY)
        logger.debug("connected to %s as %s", self.address, self.client_id)

    async def _fetch_api_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        answer = await self.call_during_setup(request, ApiVersionsResponse, API_VERSIONS_VERSION)
        if answer.error_code != Error.NONE:
            raise PeerError(f"{self.address} answers ApiVersions with error {answer.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def call_during_setup(self, request: Any, response: type[R], version: int) -> R:
        """Send a request while the connection is being set up."""
        key = layout_of(type(request)).api_key
        assert key is not None, "only whole messages are sent"
        call = self._send(request, response, key, version)
        answer: R = await self._answered(call, self._loop.time() + self._connect_ms / 1000)
        return answer

    # ---- receiving: called by the poller

    def on_readable(self) -> None:
        budget = RECEIVED_BYTES_PER_TURN
        while budget > 0:
            transport = self._transport
            if transport is None:
                return
            room = self._calls.receive_buffer()
            try:
                count = transport.receive_into(room)
            except BlockingIOError:
                return
            except OSError as problem:
                self._disconnect(
                    problem.strerror or "connection lost", is_refused=problem.errno in CONNECTION_REFUSED_ERRORS
                )
                return
            if count == 0:
                self._disconnect("it closed the connection", is_refused=True)
                return
            self.received_bytes += count
            budget -= count
            try:
                if self._calls.add_received(count):
                    self._notify_capacity()
            except ProtocolError as problem:
                self._disconnect(f"it sent an invalid response: {problem}", is_refused=False)
                return
            if count < len(room):
                return

    def _on_malformed_response(self, call: InFlightRequest, problem: BaseException) -> None:
        reason = f"it sent an invalid response: {problem}"
        call.future.set_exception(PeerError(f"{self.address}: {reason}", is_sent=True))
        self._disconnect(reason, is_refused=False)

    # ---- sending

    def on_writable(self) -> None:
        if self._transport is not None:
            self._flush_out()

    def flush(self) -> None:
        """Do nothing: no data is buffered until the end of a round."""

    def _flush_out(self) -> None:
        transport, out = self._transport, self._out
        if transport is None:
            return
        try:
            while out:
                chunk = out[0]
                sent = transport.send(chunk, False)
                self._unsent_bytes -= sent
                self.sent_bytes += sent
                if sent == len(chunk):
                    out.popleft()
                else:
                    out[0] = memoryview(chunk)[sent:]
        except BlockingIOError:
            pass
        except OSError as problem:
            self._disconnect(
                problem.strerror or "connection lost", is_refused=problem.errno in CONNECTION_REFUSED_ERRORS
            )
            return
        should_write = len(out) > 0
        if should_write != self._is_writing:
            self._is_writing = should_write
            self._rounds.interest(self._descriptor, True, should_write)
        if not should_write:
            self._notify_capacity()

    # ---- the end; the poller abandons when epoll reports an error, or one of our callbacks failed

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        self._disconnect(detail or "connection lost", is_refused=reason is CloseReason.CONNECTION_LOST)

    def _disconnect(self, reason: str, *, is_refused: bool, is_timeout: bool = False) -> None:
        """Close the connection and fail all requests in flight. The next request opens a new one."""
        transport = self._transport
        if transport is None:
            return
        if self._state is not PeerState.CLOSED:
            self._change_state(PeerState.IDLE)
        self._transport, self._is_writing = None, False
        self._rounds.unwatch(self._descriptor)
        transport.close()
        self._out.clear()
        self._unsent_bytes = 0
        calls = self._calls.clear_all()
        text = f"lost the connection to {self.address}: {reason}"
        if calls:
            logger.debug("%s; %d requests were in flight", text, len(calls))
        for call in calls:
            call.future.set_exception(PeerError(text, is_refused=is_refused, is_timeout=is_timeout, is_sent=True))
        self._notify_capacity()

    def close(self) -> None:
        """Close permanently: requests in flight and new ones fail."""
        self._change_state(PeerState.CLOSED)
        if self._connect_task is not None:
            self._connect_task.cancel()
        self._calls.close()
        self._disconnect("closed", is_refused=False)

    def _change_state(self, state: PeerState) -> None:
        assert state in TRANSITIONS[self._state], f"{self} cannot become {state.value}"
        self._state = state

    def __repr__(self) -> str:
        under_way, unsent = len(self._calls), self._unsent_bytes
        return f"<BrokerConnection {self.address} {self._state.value}, {under_way} in flight, {unsent} bytes unsent>"
