"""TLS handshakes: the loop moves the bytes, a few worker threads do the arithmetic.

Rules:
1. A signature takes milliseconds, so each step of a handshake is made by a worker. While it is at it, nobody else
   touches the TLS object nor its memory: nothing is read from that socket.
2. Whoever has not finished after HANDSHAKE_SECONDS_MAX, or has sent more than HANDSHAKE_BYTES_MAX, is closed. Before
   the first byte came there is no TLS object: a connection that says nothing costs nothing but itself.
3. There are at most HALF_OPEN_MAX at a time; one more closes the oldest.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol

from ottla.base.tls_problems import tls_problem
from ottla.network.tls_transport import Scratch, TlsTransport

HANDSHAKE_SECONDS_MAX: Final = 10.0
HANDSHAKE_BYTES_MAX: Final = 512 * 1024
HALF_OPEN_MAX: Final = 2_000
THREADS_MAX: Final = 4


class ListenerTls(Protocol):
    """What a listener over TLS is told by whoever knows certificates."""

    def context(self) -> ssl.SSLContext:
        """The one for new connections."""
        ...

    def principal(self, certificate: bytes | None) -> str:
        """Whose certificate this is (DER); ValueError if it is nobody's."""
        ...

    def days_left(self) -> float:
        """Until the certificate that we show expires."""
        ...


class Handshakes:
    """The workers, and all handshakes that are under way."""

    def __init__(self) -> None:
        self.scratch = Scratch()
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: dict[Handshake, None] = {}  # the oldest first

    @property
    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1), thread_name_prefix="handshake")
        return self._pool

    def add(self, handshake: Handshake) -> None:
        if len(self._under_way) >= HALF_OPEN_MAX:
            next(iter(self._under_way)).fail("too many TLS handshakes are under way")
        self._under_way[handshake] = None

    def remove(self, handshake: Handshake) -> None:
        self._under_way.pop(handshake, None)

    def close(self) -> None:
        for handshake in list(self._under_way):
            handshake.fail("closed")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __repr__(self) -> str:
        return f"<Handshakes {len(self._under_way)} under way>"


class Handshake:
    """One handshake; the poller calls it until it is over. Then exactly one of two functions is called."""

    def __init__(
        self,
        handshakes: Handshakes,
        transport: TlsTransport,
        poller: Any,
        context: Callable[[], ssl.SSLContext],
        on_done: Callable[[bytes | None], None],
        on_failed: Callable[[str], None],
        server_name: str | None = None,
    ) -> None:
        """`on_done` gets the other side's certificate. With a `server_name` we are the client."""
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
        self._is_finished = False  # but for the last bytes that the socket did not take
        self._timer = self._loop.call_later(
            HANDSHAKE_SECONDS_MAX, self.fail, f"the TLS handshake took longer than {HANDSHAKE_SECONDS_MAX:g} s"
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
            self.fail(error.strerror or "connection lost")
            return
        self._received_bytes += count
        if count == 0:
            self.fail("closed during the TLS handshake")
        elif self._received_bytes > HANDSHAKE_BYTES_MAX:
            self.fail(f"more than {HANDSHAKE_BYTES_MAX} bytes before the end of the TLS handshake")
        else:
            self._step()

    def on_writable(self) -> None:
        if not self._is_stepping and not self._is_over:
            self._go_on()

    def flush(self) -> None:
        """Nothing is held back for the end of a round."""

    def abandon(self, reason: str) -> None:
        self.fail(reason)

    # ---- steps

    def _step(self) -> None:
        self._is_stepping = True
        self._poller.interest(self._descriptor, False, False)
        self._loop.run_in_executor(self._handshakes.pool, self._work).add_done_callback(self._on_stepped)

    def _work(self) -> Exception | None:
        """In a worker: one step; what is wrong with it."""
        transport = self._transport
        try:
            if transport.tls is None:
                transport.begin(self._context(), self._server_name)
            assert transport.tls is not None
            transport.tls.do_handshake()
            self._is_finished = True
        except ssl.SSLWantReadError:
            return None
        except (OSError, ValueError) as error:  # ValueError: a host name that is none
            return error
        return None

    def _on_stepped(self, done: asyncio.Future[Exception | None]) -> None:
        self._is_stepping = False
        if self._is_over or done.cancelled():
            return
        problem = done.exception() or done.result()
        if problem is not None:
            try:
                self._transport.flush()  # the alert, so that the other side learns why
            except OSError as error:
                problem = problem if isinstance(problem, ssl.SSLError) else error
            self.fail(tls_problem(problem) if isinstance(problem, Exception) else repr(problem))
            return
        self._go_on()

    def _go_on(self) -> None:
        try:
            is_out = self._transport.flush()
        except OSError as error:
            self.fail(error.strerror or "connection lost")
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

    def fail(self, reason: str) -> None:
        if not self._is_over:
            self._end()
            self._on_failed(reason)

    def stop(self) -> None:
        """The connection was closed by somebody else."""
        if not self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._handshakes.remove(self)
        self._poller.unwatch(self._descriptor)

    def __repr__(self) -> str:
        return f"<Handshake {'over' if self._is_over else 'under way'}, {self._received_bytes} bytes received>"


class OutgoingTls(NamedTuple):
    """What whoever connects to others needs."""

    handshakes: Handshakes
    context: Callable[[], ssl.SSLContext]


async def shake_hands(tls: OutgoingTls, sock: socket.socket, server_name: str, poller: Any) -> TlsTransport:
    """As a client, on a socket that is connected; whatever goes wrong raises OSError, and closes it."""
    transport = TlsTransport(sock, tls.handshakes.scratch)
    result: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(_: bytes | None) -> None:
        if not result.done():
            result.set_result(None)

    def on_failed(reason: str) -> None:
        if not result.done():
            result.set_exception(OSError(0, reason))

    handshake = Handshake(tls.handshakes, transport, poller, tls.context, on_done, on_failed, server_name)
    handshake.start()
    try:
        await result
    except BaseException:
        handshake.stop()
        transport.close()
        raise
    return transport
