"""Accepts connections on one address, within the limits that the settings give."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

from ottla.base import tasks
from ottla.base.log_limiter import LogLimiter
from ottla.network.buffers import Buffers
from ottla.network.client_facts import ClientFacts
from ottla.network.connection import Connection, FrameHandler, Rounds
from ottla.network.limits import ConnectionLimits, RateLimit
from ottla.network.poller import Poller
from ottla.network.receiver import Receiver
from ottla.network.tls_handshake import Handshake, Handshakes, ListenerTls
from ottla.network.tls_transport import TlsRounds, TlsTransport
from ottla.network.traffic import ListenerTraffic
from ottla.network.transport import PlainTransport, Transport

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 100
SWEEP_SECONDS_MAX = 5.0
SWEEP_SECONDS_MIN = 0.25
RETRY_SECONDS = 0.1  # after running out of descriptors; doubled with every failure in a row
RETRY_SECONDS_MAX = 1.0
COMPLAINT_SECONDS = 60.0  # between two messages about that
WAIT_SECONDS_MAX = 1.0  # so that a higher rate is soon felt
REFUSAL_SECONDS = 1.0  # between two messages about handshakes that failed
HANDSHAKE = "handshake"
HELD_UP_MAX = 1_000  # sockets of addresses that connect too often; further ones are closed at once
_NO_TLS: Mapping[str, ListenerTls] = {}


class ConnectionSet:
    """All open connections of a broker, over all its listeners: counted, swept when idle, closed at the end."""

    def __init__(
        self,
        limits: ConnectionLimits,
        handler: FrameHandler,
        poller: Poller,
        tls: Mapping[str, ListenerTls] = _NO_TLS,
        handshakes: Handshakes | None = None,
        receiver: Receiver | None = None,
    ) -> None:
        """`tls` has the listeners that speak it, by their names; without a receiver the loop receives everything."""
        self.limits = limits
        self.tls = tls
        self._handshakes = handshakes or Handshakes()
        self._refusals = LogLimiter(REFUSAL_SECONDS)
        self._complaints = LogLimiter(COMPLAINT_SECONDS)
        self.poller = poller
        self._receiver = receiver
        self.loop = asyncio.get_running_loop()
        self.buffers = Buffers()
        self.connections: set[Connection] = set()
        self.per_host: dict[str, int] = {}
        self.traffic: dict[str, ListenerTraffic] = {}  # by listener name
        self.per_listener: dict[str, int] = {}
        self._rate = RateLimit(limits.creation_rate, self.loop.time())
        self._rates: dict[str, RateLimit] = {}
        self._handler = handler
        self.on_open: Callable[[Connection], None] | None = None  # whoever wants to see a connection before its frames
        self.on_refused: Callable[[ClientFacts, str], None] | None = None  # … and who wants to hear why there is none
        self.hold_up: Callable[[str, str], float] | None = None  # seconds that an address waits, in vain: its quota
        self._held_up = 0
        self._tick = 0
        self._waiting: list[asyncio.Event] = []
        self._sweeper = self.loop.call_later(self._sweep_seconds(), self._sweep)

    def limit(self, limits: ConnectionLimits) -> None:
        """Other limits from now on; what is open stays open."""
        self.limits = limits
        now = self.loop.time()
        self._rate.change(limits.creation_rate, now)
        for name, rate in self._rates.items():
            rate.change(limits.of_listener(name).creation_rate, now)
        self._tell_room()

    def admit(self, sock: socket.socket, host: str, port: int, listener_name: str) -> None:
        """Take a new socket in, or close it when its host has too many already."""
        self._rate.take()
        self._rate_of(listener_name).take()
        if self.per_host.get(host, 0) >= self.limits.per_host(host):
            if self._complaints.is_due(self.loop.time()):
                allowed = self.limits.per_host(host)
                logger.warning("refusing connections from %s: max.connections.per.ip allows it %d", host, allowed)
            self.traffic_of(listener_name).refused += 1
            sock.close()
            return
        seconds = self.hold_up(host, listener_name) if self.hold_up is not None else 0.0
        if seconds > 0:
            self._hold_up(sock, seconds, listener_name)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        pace = None
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.limits.link.apply(sock)
            pace = self.limits.link.pace(sock)
        if self.limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        descriptor = sock.fileno()
        tls = self.tls.get(listener_name)
        transport: Transport
        rounds: Rounds = self.poller
        if tls is None:
            transport = PlainTransport(sock)
        else:
            transport = TlsTransport(sock, self._handshakes.scratch)
            rounds = TlsRounds(transport, self.poller, self.loop)
        connection = Connection(
            transport,
            descriptor,
            rounds,
            self.loop,
            self.buffers,
            self._handler,
            self._on_closed,
            ClientFacts(host, port, listener_name),
            self.limits.frame_bytes_max,
            self._receiver if tls is None else None,
        )
        connection.pace = pace
        self.connections.add(connection)
        self.traffic_of(listener_name).opened += 1
        self.per_host[host] = self.per_host.get(host, 0) + 1
        self.per_listener[listener_name] = self.per_listener.get(listener_name, 0) + 1
        if tls is not None:
            assert isinstance(transport, TlsTransport)
            self._shake_hands(connection, transport, tls)
            return
        if self.on_open is not None:
            self.on_open(connection)
        self.poller.watch(descriptor, connection)

    def _hold_up(self, sock: socket.socket, seconds: float, listener_name: str) -> None:
        """An address that connects too often waits and is closed then, as with Kafka: it cannot try again at once."""
        self.traffic_of(listener_name).refused += 1
        if self._held_up >= HELD_UP_MAX:
            sock.close()
            return
        self._held_up += 1

        def close() -> None:
            self._held_up -= 1
            sock.close()

        self.loop.call_later(seconds, close)

    def _shake_hands(self, connection: Connection, transport: TlsTransport, tls: ListenerTls) -> None:
        """Let the connection begin when both sides have agreed on keys and we know who is there."""

        def on_done(certificate: bytes | None) -> None:
            connection.watchers.pop(HANDSHAKE)
            try:
                connection.client.principal = tls.principal(certificate)
            except ValueError as problem:
                on_failed(str(problem))
                return
            rounds = connection.poller
            assert isinstance(rounds, TlsRounds)
            connection.last_active_tick = -1
            if self.on_open is not None:
                self.on_open(connection)
            rounds.watch(connection.descriptor, connection)

        def on_failed(reason: str) -> None:
            client = connection.client
            self.traffic_of(client.listener_name).failed_handshakes += 1
            if self._refusals.is_due(self.loop.time()):
                logger.info(
                    "refusing a connection from %s on listener %s: %s", client.host, client.listener_name, reason
                )
            if self.on_refused is not None:
                self.on_refused(client, reason)
            connection.abandon(reason)

        handshake = Handshake(self._handshakes, transport, self.poller, tls.context, on_done, on_failed)
        connection.watchers[HANDSHAKE] = handshake.stop
        handshake.start()

    def _on_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        traffic = self.traffic_of(connection.client.listener_name)
        traffic.closed += 1
        traffic.received_bytes += connection.received_bytes
        traffic.sent_bytes += connection.sent_bytes
        left = self.per_host[connection.client.host] - 1
        if left:
            self.per_host[connection.client.host] = left
        else:
            del self.per_host[connection.client.host]
        self.per_listener[connection.client.listener_name] -= 1
        logger.debug("connection from %s closed: %s", connection.client.host, connection.close_reason)
        self._tell_room()

    def traffic_of(self, listener_name: str) -> ListenerTraffic:
        found = self.traffic.get(listener_name)
        if found is None:
            found = self.traffic[listener_name] = ListenerTraffic()
        return found

    def _tell_room(self) -> None:
        for event in self._waiting:
            event.set()

    # ---- limits

    def is_full(self, listener_name: str) -> bool:
        limit = self.limits.of_listener(listener_name).connections_max
        return len(self.connections) >= self.limits.connections_max or self.per_listener.get(listener_name, 0) >= limit

    async def wait_for_room(self, listener_name: str) -> None:
        event = asyncio.Event()
        self._waiting.append(event)
        try:
            while self.is_full(listener_name):
                event.clear()
                await event.wait()
        finally:
            self._waiting.remove(event)

    def seconds_to_wait(self, listener_name: str) -> float:
        """How long max.connection.creation.rate, the broker's and the listener's, holds the next connection back."""
        now = self.loop.time()
        return max(self._rate.seconds_to_wait(now), self._rate_of(listener_name).seconds_to_wait(now))

    def _rate_of(self, listener_name: str) -> RateLimit:
        rate = self._rates.get(listener_name)
        if rate is None:
            rate = RateLimit(self.limits.of_listener(listener_name).creation_rate, self.loop.time())
            self._rates[listener_name] = rate
        return rate

    def _sweep(self) -> None:
        """Close what was idle for too long. Ticks instead of clock readings: receiving costs no system call more."""
        self._tick += 1
        idle_ms = self.limits.idle_ms_max
        idle_ticks = max(1, int(idle_ms / 1000 / self._sweep_seconds())) if idle_ms >= 0 else 0
        for connection in list(self.connections):
            if connection.pace is not None:
                connection.pace.on_sweep(self.loop.time())
            if connection.last_active_tick < 0 or connection.pending or connection.out:
                connection.last_active_tick = self._tick
            elif idle_ticks and self._tick - connection.last_active_tick >= idle_ticks:
                self.traffic_of(connection.client.listener_name).expired += 1
                connection.abandon("idle for longer than connections.max.idle.ms")
        if not any(connection.have for connection in self.connections):
            self.buffers.forget()
        self._sweeper = self.loop.call_later(self._sweep_seconds(), self._sweep)

    def _sweep_seconds(self) -> float:
        """A quarter of the idle time, so that nobody stays much longer than he may."""
        return min(SWEEP_SECONDS_MAX, max(SWEEP_SECONDS_MIN, self.limits.idle_ms_max / 4000))

    async def drain(self, seconds_max: float) -> None:
        """Wait until every accepted request is answered and sent, then close all connections."""
        deadline = self.loop.time() + seconds_max
        while self.loop.time() < deadline and not all(connection.is_idle for connection in self.connections):
            await asyncio.sleep(0.01)
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abandon("the broker is shutting down")
        self._handshakes.close()
        if self._receiver is not None:
            self._receiver.close()

    def __repr__(self) -> str:
        return f"<ConnectionSet {len(self.connections)} open>"


class Listener:
    """One listening socket."""

    def __init__(
        self, name: str, host: str, port: int, connections: ConnectionSet, bound: socket.socket | None = None
    ) -> None:
        """`bound` is what listen() has made of the same address, if it was called already."""
        self.name = name
        self.host = host
        self.connections = connections
        self._loop = asyncio.get_running_loop()
        self._socket = bound or listen(host, port, connections.limits)
        self.port: int = self._socket.getsockname()[1]
        self._waiter: asyncio.Task[None] | None = None
        self._retry_seconds = RETRY_SECONDS
        self._log_limiter = LogLimiter(COMPLAINT_SECONDS)

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self.connections.is_full(self.name):
                self._pause(self.connections.wait_for_room(self.name))
                return
            seconds = self.connections.seconds_to_wait(self.name)
            if seconds > 0:
                self._pause(asyncio.sleep(min(seconds, WAIT_SECONDS_MAX)))
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._back_off(error)
                return
            self._retry_seconds = RETRY_SECONDS
            # A socket for both kinds of addresses shows IPv4 ones in the form of IPv6.
            self.connections.admit(sock, address[0].removeprefix("::ffff:"), address[1], self.name)

    def _back_off(self, error: OSError) -> None:
        if self._log_limiter.is_due(self._loop.time()):
            logger.warning("cannot accept connections: %s; raise the limit of open files", error.strerror)
        self._pause(asyncio.sleep(self._retry_seconds))
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    def _pause(self, until: Awaitable[None]) -> None:
        """Leave new connections in the kernel's queue for now."""
        self._loop.remove_reader(self._socket.fileno())

        async def go_on() -> None:
            await until
            self.start()

        self._waiter = tasks.start(go_on(), f"the pause of listener {self.name}", on_failure=self.start)

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def __repr__(self) -> str:
        return f"<Listener {self.name} {self.host}:{self.port}>"


def plain_host(host: str) -> str | bytes:
    """As bytes, if it needs no other letters than those of host names: Python loads all rules of Unicode otherwise."""
    return host.encode() if host.isascii() else host


def listen(host: str, port: int, limits: ConnectionLimits) -> socket.socket:
    """A socket to which clients can connect; they are served when a Listener starts on it."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        plain_host(host) or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        sock.bind(address)
        sock.listen(limits.backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
