"""TLS handshakes: the event loop moves the bytes, worker threads compute.

Rules:
1. A signature takes milliseconds, so a worker runs each step of a handshake. Meanwhile no other code uses the TLS
   object or its buffers, and the socket is not read.
2. A handshake fails after HANDSHAKE_SECONDS_MAX, or after HANDSHAKE_BYTES_MAX received bytes. Before the first record
   there is no TLS object: a connection that sends nothing, or five bytes, costs little.
3. There are at most HALF_OPEN_MAX handshakes at a time; one more closes the oldest.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol

from ottla.base.tls_problems import describe_tls_error
from ottla.network.close_reason import CloseReason
from ottla.network.tls_transport import TlsScratch, TlsTransport

HANDSHAKE_SECONDS_MAX: Final = 10.0
HANDSHAKE_BYTES_MAX: Final = 512 * 1024
HALF_OPEN_MAX: Final = 2_000
THREADS_MAX: Final = 4
FAILED: Final = CloseReason.HANDSHAKE_FAILED


class ListenerTls(Protocol):
    """The certificates of a TLS listener."""

    def context(self) -> ssl.SSLContext:
        """Return the context for new connections."""
        ...

    def principal(self, certificate: bytes | None) -> str:
        """Return the principal of a certificate (DER). Raises ValueError if there is none."""
        ...

    def days_left(self) -> float:
        """Return the days until the listener's certificate expires."""
        ...


class TlsHandshakes:
    """The worker threads, and all handshakes in progress."""

    def __init__(self) -> None:
        self.scratch = TlsScratch()
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: dict[TlsHandshake, None] = {}  # oldest first

    @property
    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1), thread_name_prefix="handshake")
        return self._pool

    def add(self, handshake: TlsHandshake) -> None:
        if len(self._under_way) >= HALF_OPEN_MAX:
            next(iter(self._under_way)).fail(
                CloseReason.HANDSHAKE_LIMIT, f"{HALF_OPEN_MAX} other TLS handshakes are in progress"
            )
        self._under_way[handshake] = None

    def remove(self, handshake: TlsHandshake) -> None:
        self._under_way.pop(handshake, None)

    def close(self) -> None:
        for handshake in list(self._under_way):
            handshake.fail(CloseReason.SHUTDOWN, "closed")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __repr__(self) -> str:
        return f"<TlsHandshakes {len(self._under_way)} under way>"


class TlsHandshake:
    """One handshake; the poller calls it until it ends. Then exactly one of its two callbacks is called."""

    def __init__(
        self,
        handshakes: TlsHandshakes,
        transport: TlsTransport,
        poller: Any,
        context: Callable[[], ssl.SSLContext],
        on_done: Callable[[bytes | None], None],
        on_failed: Callable[[CloseReason, str], None],
        server_name: str | None = None,
    ) -> None:
        """`on_done` gets the peer's certificate. With a `server_name` this side is the client."""
        self._handshakes = handshakes
        self._transport = transport
        self._poller = poller
        self._context = context
        self._on_done = on_done
        self._on_failed = on_failed
        self._server_name = server_name
        self._loop = asyncio.get_running_loop()
        self._descriptor = transport.socket.fileno()
        self._received_bytes = 0
        self._is_over = False
        self._is_stepping = False
        self._is_finished = False  # except for the last bytes that are not sent yet
        self._timer = self._loop.call_later(
            HANDSHAKE_SECONDS_MAX,
            self.fail,
            CloseReason.HANDSHAKE_TIMEOUT,
            f"the TLS handshake took longer than {HANDSHAKE_SECONDS_MAX:g} s",
        )

    def start(self) -> None:
        self._handshakes.add(self)
        self._poller.watch(self._descriptor, self)
        if self._server_name is not None:
            self._step()

    # ---- called by the poller

    def on_readable(self) -> None:
        if self._is_stepping or self._is_over:
            return
        try:
            count = self._transport.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(FAILED, error.strerror or "connection lost")
            return
        self._received_bytes += count
        if count == 0:
            self.fail(FAILED, "closed during the TLS handshake")
        elif self._received_bytes > HANDSHAKE_BYTES_MAX:
            self.fail(FAILED, f"more than {HANDSHAKE_BYTES_MAX} bytes before the end of the TLS handshake")
        elif self._transport.tls is not None or not self._transport.awaits_first_record:
            self._step()

    def on_writable(self) -> None:
        if not self._is_stepping and not self._is_over:
            self._continue()

    def flush(self) -> None:
        """Do nothing: no data is buffered until the end of a round."""

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        self.fail(FAILED if reason is CloseReason.CONNECTION_LOST else reason, detail or "connection lost")

    # ---- steps

    def _step(self) -> None:
        self._is_stepping = True
        self._poller.interest(self._descriptor, False, False)
        self._loop.run_in_executor(self._handshakes.pool, self._step_in_worker).add_done_callback(self._on_stepped)

    def _step_in_worker(self) -> Exception | None:
        """Run one step, in a worker; returns its error."""
        transport = self._transport
        try:
            if transport.tls is None:
                transport.begin(self._context(), self._server_name)
            assert transport.tls is not None
            transport.tls.do_handshake()
            self._is_finished = True
        except ssl.SSLWantReadError:
            return None
        except (OSError, ValueError) as error:  # ValueError: an invalid host name
            return error
        return None

    def _on_stepped(self, done: asyncio.Future[Exception | None]) -> None:
        self._is_stepping = False
        if self._is_over or done.cancelled():
            return
        problem = done.exception() or done.result()
        if problem is not None:
            try:
                self._transport.flush()  # the alert, which tells the peer the reason
            except OSError as error:
                problem = problem if isinstance(problem, ssl.SSLError) else error
            self.fail(FAILED, describe_tls_error(problem) if isinstance(problem, Exception) else repr(problem))
            return
        self._continue()

    def _continue(self) -> None:
        try:
            is_out = self._transport.flush()
        except OSError as error:
            self.fail(FAILED, error.strerror or "connection lost")
            return
        if is_out and self._is_finished:
            self._finish()
        else:
            self._poller.interest(self._descriptor, not self._is_finished, not is_out)

    # ---- the end

    def _finish(self) -> None:
        tls = self._transport.tls
        assert tls is not None
        self._end()
        self._transport.open()
        self._on_done(tls.getpeercert(binary_form=True))

    def fail(self, reason: CloseReason, detail: str) -> None:
        if not self._is_over:
            self._end()
            self._on_failed(reason, detail)

    def stop(self) -> None:
        """End the handshake, because the connection was closed."""
        if not self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._handshakes.remove(self)
        self._poller.unwatch(self._descriptor)

    def __repr__(self) -> str:
        return f"<TlsHandshake {'over' if self._is_over else 'under way'}, {self._received_bytes} bytes received>"


class OutgoingTls(NamedTuple):
    """TLS for outgoing connections."""

    handshakes: TlsHandshakes
    context: Callable[[], ssl.SSLContext]


async def tls_connect(tls: OutgoingTls, sock: socket.socket, server_name: str, poller: Any) -> TlsTransport:
    """Return the client side, on a connected socket. Any failure raises OSError and closes the socket."""
    transport = TlsTransport(sock, tls.handshakes.scratch)
    result: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(_: bytes | None) -> None:
        if not result.done():
            result.set_result(None)

    def on_failed(_: CloseReason, detail: str) -> None:
        if not result.done():
            result.set_exception(OSError(0, detail))

    handshake = TlsHandshake(tls.handshakes, transport, poller, tls.context, on_done, on_failed, server_name)
    handshake.start()
    try:
        await result
    except BaseException:
        handshake.stop()
        transport.close()
        raise
    return transport
