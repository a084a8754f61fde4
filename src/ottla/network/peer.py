"""One outgoing connection to another broker, on the same event loop: requests out, answers back in their order.

Rules:
1. Several calls may be under way. Answers come in the order of the calls; one that does not fit closes the connection.
2. The connection is made when the first call needs it, and made again after it was lost. Whatever was under way when
   it was lost is told at once, and never sent a second time: the caller knows whether that would do harm.
3. A call whose time is up gives up its answer, not the connection. Only a peer that has been silent since the call was
   sent loses it: after a cut no packet says that the other side is gone.
4. The records of an answer are views of the frame that was received; they may be kept.
5. Who calls faster than the other side reads waits.
6. A login that does not last is not renewed: before it expires another connection takes the place of this one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla import __version__
from ottla.base import tasks
from ottla.base.errors import Error
from ottla.network.calls_under_way import Call, CallsUnderWay
from ottla.network.connecting import open_transport
from ottla.network.link_options import NO_OPTIONS, LinkOptions
from ottla.network.peer_error import REFUSALS, PeerError, Rounds, api_name, unreachable
from ottla.network.peer_state import LEADS_TO, PeerState
from ottla.network.tls_handshake import OutgoingTls
from ottla.network.transport import Transport
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import Encoded, ProtocolError, encode_onto
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import layout_of

__all__ = ["Locate", "LogIn", "Peer", "PeerError", "Rounds"]

logger = logging.getLogger(__name__)

SOFTWARE_NAME: Final = "ottla-broker"
API_VERSIONS_VERSION: Final = 3  # the first in which we can say who we are
CONNECT_MS: Final = 10_000
CONNECT_MS_MAX: Final = 30_000
TIMEOUT_MS: Final = 30_000
UNSENT_BYTES_MAX: Final = 1024 * 1024
UNDER_WAY_MAX: Final = 1_000
LIFETIME_SHARE: Final = 0.85  # of a login's life after which its connection is replaced
LET_GO_SECONDS_MAX: Final = 5.0
RECEIVED_BYTES_PER_TURN: Final = 4 * 1024 * 1024

R = TypeVar("R")
Locate = Callable[[], tuple[str, int]]
LogIn = Callable[["Peer"], Awaitable[int]]
"""Logs a new connection in with `greet`; how long that is good for, in ms, 0 for ever. Raises PeerError."""


class Peer:
    """All calls are made on the event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        poller: Rounds,
        locate: Locate | None = None,
        *,
        log_in: LogIn | None = None,
        connect_ms: int = CONNECT_MS,
        connect_ms_max: int = CONNECT_MS_MAX,
        tls: OutgoingTls | None = None,
        options: LinkOptions = NO_OPTIONS,
    ) -> None:
        """`locate` tells the address anew before each connection, for a broker that may come back elsewhere.

        Making a connection may take `connect_ms`, twice that after it took too long, and so on up to the maximum.
        """
        self.host, self.port = host, port
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}  # what the other side serves, by API key
        self.received_bytes = self.sent_bytes = 0
        self.connections = 0  # how often one was made
        self._state = PeerState.IDLE
        self._poller = poller
        self._rounds: Rounds = poller  # or, over TLS, what stands before it
        self._locate = locate
        self._tls = tls
        self._options = options
        self._log_in = log_in
        self._good_until: float | None = None  # by the loop's clock; None: its login does not expire
        self._loop = asyncio.get_running_loop()
        self._transport: Transport | None = None
        self._descriptor = -1
        self._opening: asyncio.Task[None] | None = None
        self._connect_ms, self._connect_ms_max = connect_ms, connect_ms_max
        self._slow_attempts = 0  # to connect, one after the other
        self._correlation_id = 0
        self._calls = CallsUnderWay(self._loop, self._on_nonsense)
        self._out: deque[bytes | bytearray | memoryview] = deque()
        self._unsent_bytes = 0
        self._is_writing = False
        self._room: asyncio.Event | None = None

    # ---- calling

    async def call(
        self, request: Any, response: type[R], version: int | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> R:
        """Ask and wait for the answer, in the given version or else the highest that both sides know."""
        deadline = self._loop.time() + timeout_ms / 1000
        if not self.is_connected or self._is_login_old():
            await self._become_ready(deadline)
        while self._unsent_bytes > UNSENT_BYTES_MAX or len(self._calls) >= UNDER_WAY_MAX:
            await self._wait_for_room(deadline)
        key = layout_of(type(request)).api_key
        assert key is not None, "parts of messages are not sent"
        if version is None:
            version = self.version_of(key)
        call = self._send(request, response, key, version)
        answer: R = await self._answered(call, deadline)
        return answer

    async def _answered(self, call: Call, deadline: float) -> Any:
        timer = self._loop.call_at(deadline, self._on_late, call)
        try:
            return await call.future
        finally:
            timer.cancel()

    def version_of(self, key: int) -> int:
        """The highest version of an API that both sides know."""
        ours, theirs = ALL_APIS[key], self.versions.get(key)
        if theirs is not None:
            highest = min(ours.max_version, theirs[1])
            if highest >= max(ours.min_version, theirs[0]):
                return highest
        raise PeerError(f"{self.address} does not serve {ours.name}, or only in other versions than ours")

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        return self._state is PeerState.READY

    @property
    def is_closed(self) -> bool:
        """For good."""
        return self._state is PeerState.CLOSED

    @property
    def under_way(self) -> int:
        return len(self._calls)

    def _send(self, request: Any, response: type[Any], key: int, version: int) -> Call:
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = encode_request_header(key, version, self._correlation_id, self.client_id)
        frame = Encoded(b"\0\0\0\0" + header)
        frame.holes = []
        encode_onto(frame, request, version)
        assert not frame.holes, "requests between brokers bring no records of files"
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        call = Call(key, version, self._correlation_id, response, self._loop.create_future())
        call.received_before = self.received_bytes
        self._calls.add(call)
        self._out.append(frame)
        self._unsent_bytes += len(frame)
        if not self._is_writing:
            self._flush_out()
        return call

    def _on_late(self, call: Call) -> None:
        if call.future.done():
            return
        call.future.set_exception(
            PeerError(f"{self.address} did not answer {api_name(call.key)} in time", is_timeout=True, is_sent=True)
        )
        if self.received_bytes == call.received_before and call in self._calls:
            self._lose("it is silent", is_refused=False, is_timeout=True)

    async def _wait_for_room(self, deadline: float) -> None:
        if self._room is None or self._room.is_set():
            self._room = asyncio.Event()
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.wait()
        except TimeoutError:
            raise PeerError(f"{self.address} takes no more requests", is_timeout=True) from None
        if not self.is_connected:
            raise PeerError(f"the connection to {self.address} was lost", is_refused=True)

    def _tell_room(self) -> None:
        if self._room is not None:
            self._room.set()

    # ---- connecting

    async def _become_ready(self, deadline: float) -> None:
        if self.is_closed:
            raise PeerError(f"the connection to {self.address} is closed for good")
        if self._opening is None:
            self._opening = tasks.ask(self._open(), f"connecting to {self.address}")
            self._opening.add_done_callback(self._on_opened)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(self._opening)
        except TimeoutError:
            raise PeerError(f"{self.address} cannot be reached in time", is_timeout=True) from None
        except PeerError as problem:  # one for each who waits, whose own request was not sent
            raise PeerError(str(problem), is_refused=problem.is_refused, is_timeout=problem.is_timeout) from None
        except asyncio.CancelledError:
            if self.is_closed:
                raise PeerError(f"the connection to {self.address} is closed for good") from None
            raise
        if not self.is_connected:
            raise PeerError(f"the connection to {self.address} was lost", is_refused=True)

    def _on_opened(self, _: asyncio.Task[None]) -> None:
        self._opening = None

    def _is_login_old(self) -> bool:
        return self._good_until is not None and self._loop.time() >= self._good_until

    async def _let_go(self) -> None:
        """What is under way is answered first, unless that takes too long."""
        deadline = self._loop.time() + LET_GO_SECONDS_MAX
        with suppress(PeerError):
            while self.is_connected and len(self._calls):
                await self._wait_for_room(deadline)
        self._lose("its login is about to expire", is_refused=False)

    async def _open(self) -> None:
        if self.is_connected:
            await self._let_go()
        if self._locate is not None:
            self.host, self.port = self._locate()
        self._move_to(PeerState.CONNECTING)
        try:
            await self._connect()
        finally:
            if self._state is PeerState.CONNECTING:
                self._move_to(PeerState.IDLE)
            elif self._state is PeerState.GREETING:
                self._lose("it does not tell its versions, or does not let us in", is_refused=False)

    async def _connect(self) -> None:
        limit_ms = min(self._connect_ms << min(self._slow_attempts, 10), self._connect_ms_max)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                opened = await open_transport(self.host, self.port, self._poller, self._tls, self._options)
        except TimeoutError:
            self._slow_attempts += 1
            raise PeerError(f"{self.address} cannot be reached in time", is_timeout=True) from None
        except OSError as problem:
            raise unreachable(self.address, problem) from None
        self._descriptor, self._transport, self._rounds = opened
        self._move_to(PeerState.GREETING)
        self.connections += 1
        self._slow_attempts = 0
        self._rounds.watch(self._descriptor, self)
        await self._ask_versions()
        self._good_until = None
        if self._log_in is not None:
            seconds = await self._log_in(self) / 1000
            self._good_until = self._loop.time() + seconds * LIFETIME_SHARE if seconds > 0 else None
        if self._transport is not opened[1]:
            raise PeerError(f"the connection to {self.address} was lost", is_refused=True)
        self._move_to(PeerState.READY)
        logger.debug("connected to %s as %s", self.address, self.client_id)

    async def _ask_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        answer = await self.greet(request, ApiVersionsResponse, API_VERSIONS_VERSION)
        if answer.error_code != Error.NONE:
            raise PeerError(f"{self.address} answers ApiVersions with error {answer.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    async def greet(self, request: Any, response: type[R], version: int) -> R:
        """Ask while the connection is being made."""
        key = layout_of(type(request)).api_key
        assert key is not None, "parts of messages are not sent"
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
            room = self._calls.room()
            try:
                count = transport.receive_into(room)
            except BlockingIOError:
                return
            except OSError as problem:
                self._lose(problem.strerror or "connection lost", is_refused=problem.errno in REFUSALS)
                return
            if count == 0:
                self._lose("it closed the connection", is_refused=True)
                return
            self.received_bytes += count
            budget -= count
            try:
                if self._calls.took(count):
                    self._tell_room()
            except ProtocolError as problem:
                self._lose(f"it sent an answer that makes no sense: {problem}", is_refused=False)
                return
            if count < len(room):
                return

    def _on_nonsense(self, call: Call, problem: BaseException) -> None:
        reason = f"it sent an answer that makes no sense: {problem}"
        call.future.set_exception(PeerError(f"{self.address}: {reason}", is_sent=True))
        self._lose(reason, is_refused=False)

    # ---- sending

    def on_writable(self) -> None:
        if self._transport is not None:
            self._flush_out()

    def flush(self) -> None:
        """Nothing is held back for the end of a round."""

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
            self._lose(problem.strerror or "connection lost", is_refused=problem.errno in REFUSALS)
            return
        should_write = len(out) > 0
        if should_write != self._is_writing:
            self._is_writing = should_write
            self._rounds.interest(self._descriptor, True, should_write)
        if not should_write:
            self._tell_room()

    # ---- the end

    def abandon(self, reason: str) -> None:
        """Called by the poller: epoll reports an error, or one of our callbacks failed."""
        self._lose(reason, is_refused=reason == "connection lost")

    def _lose(self, reason: str, *, is_refused: bool, is_timeout: bool = False) -> None:
        """The connection is gone; everybody who waits is told. The next call makes a new one."""
        transport = self._transport
        if transport is None:
            return
        if self._state is not PeerState.CLOSED:
            self._move_to(PeerState.IDLE)
        self._transport, self._is_writing = None, False
        self._rounds.unwatch(self._descriptor)
        transport.close()
        self._out.clear()
        self._unsent_bytes = 0
        calls = self._calls.give_up()
        text = f"lost the connection to {self.address}: {reason}"
        if calls:
            logger.debug("%s; %d calls were under way", text, len(calls))
        for call in calls:
            call.future.set_exception(PeerError(text, is_refused=is_refused, is_timeout=is_timeout, is_sent=True))
        self._tell_room()

    def close(self) -> None:
        """For good: calls under way fail, new ones too."""
        self._move_to(PeerState.CLOSED)
        if self._opening is not None:
            self._opening.cancel()
        self._calls.close()
        self._lose("closed", is_refused=False)

    def _move_to(self, state: PeerState) -> None:
        assert state in LEADS_TO[self._state], f"{self} cannot become {state.value}"
        self._state = state

    def __repr__(self) -> str:
        under_way, unsent = len(self._calls), self._unsent_bytes
        return f"<Peer {self.address} {self._state.value}, {under_way} under way, {unsent} bytes unsent>"
