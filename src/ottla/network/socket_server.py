"""Listening sockets, and the open connections of a broker: limits, idle sweep, counters, and log lines about closes."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ottla.base import tasks
from ottla.base.logs import LogLimiter
from ottla.network.buffers import BufferPool
from ottla.network.close_reason import CLOSED_BY_CLIENT, HANDSHAKE_REASONS, CloseReason
from ottla.network.connection import ConnectedClient, Connection, ConnectionPoller, RequestHandler
from ottla.network.listener_limits import ConnectionLimits, RateLimit
from ottla.network.poller import Poller
from ottla.network.receiver_thread import ReceiverThread
from ottla.network.socket_options import PacingControl
from ottla.network.tls_handshake import ListenerTls, TlsHandshake, TlsHandshakes
from ottla.network.tls_transport import TlsPoller, TlsTransport
from ottla.network.transport import PlainTransport, Transport


class ListenerTraffic:
    """Counters of one listener since the broker started; open connections keep their own until they close."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.closes = dict.fromkeys(CloseReason, 0)  # by reason, including refused connections
        self.logins = 0
        self.failed_logins = 0
        self.repeated_logins = 0  # re-authentications (KIP-368)
        self.failed_repeated_logins = 0
        self.received_bytes = 0  # of closed connections
        self.sent_bytes = 0

    @property
    def open(self) -> int:
        return self.opened - self.closed

    @property
    def refused(self) -> int:
        """Connections closed before any read: too many connections of the address, or a too high rate."""
        return self.closes[CloseReason.HOST_LIMIT] + self.closes[CloseReason.HOST_RATE]

    @property
    def failed_handshakes(self) -> int:
        return sum(self.closes[reason] for reason in HANDSHAKE_REASONS)

    def __repr__(self) -> str:
        return f"<ListenerTraffic {self.open} open of {self.opened}>"


REPEAT_SECONDS: Final = 10.0  # between two lines about the same reason and address
LINES_PER_SECOND_MAX: Final = 20
LOGGED_PAIRS_MAX: Final = 1_000  # tracked pairs of reason and address
DETAIL_LENGTH_MAX: Final = 300
# Logged with more detail by broker/dispatch.py and broker/security/server_authenticator.py.
LOGGED_ELSEWHERE: Final = frozenset({CloseReason.UNSUPPORTED_REQUEST, CloseReason.LOGIN_FAILED})
# Caused by a limit, this machine or a bug; all others are caused by clients.
WARNING_REASONS: Final = frozenset(
    {
        CloseReason.HOST_LIMIT,
        CloseReason.SOCKET_SETUP,
        CloseReason.HANDSHAKE_LIMIT,
        CloseReason.REQUEST_FAILED,
        CloseReason.REQUEST_UNANSWERED,
        CloseReason.UNEXPECTED_ERROR,
        CloseReason.TRANSPORT_ERROR,
    }
)


class CloseLog:
    """Counts and logs connections that the broker closes, over all listeners; times are those of the event loop.

    The log volume is bounded: lines about the same reason and address are rate limited, and so are lines per second.
    Suppressed lines are counted, and reported with the next line about that reason.
    """

    def __init__(self) -> None:
        self._limiter = LogLimiter(REPEAT_SECONDS)
        self._subjects = 0
        self._second = -1
        self._lines = 0
        self._suppressed: dict[CloseReason, int] = {}

    def record(
        self, client: ConnectedClient, traffic: ListenerTraffic, reason: CloseReason, detail: str, now: float
    ) -> None:
        traffic.closes[reason] += 1
        if reason in CLOSED_BY_CLIENT:
            logger.debug("the connection from %s:%d has ended: %s", client.host, client.port, detail or reason.value)
        elif reason not in LOGGED_ELSEWHERE:
            self._log_close(client, reason, detail, now)

    def _log_close(self, client: ConnectedClient, reason: CloseReason, detail: str, now: float) -> None:
        if not self._is_due(f"{reason.value} {client.host}", now):
            self._suppressed[reason] = self._suppressed.get(reason, 0) + 1
            return
        left_out = self._suppressed.pop(reason, 0)
        logger.log(
            logging.WARNING if reason in WARNING_REASONS else logging.INFO,
            "closing the connection from %s:%d on listener %s (%s): %s%s",
            client.host,
            client.port,
            client.listener_name,
            reason.value,
            detail[:DETAIL_LENGTH_MAX],
            f" ({left_out} more were closed for this reason since the last line)" if left_out else "",
        )

    def _is_due(self, subject: str, now: float) -> bool:
        second = int(now)
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= LINES_PER_SECOND_MAX:
            return False
        if self._subjects >= LOGGED_PAIRS_MAX:
            self._limiter, self._subjects = LogLimiter(REPEAT_SECONDS), 0
        if not self._limiter.is_due(now, subject):
            return False
        self._subjects += 1
        self._lines += 1
        return True

    def __repr__(self) -> str:
        return f"<CloseLog {sum(self._suppressed.values())} suppressed>"


logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 100
SWEEP_SECONDS_MAX = 5.0
SWEEP_SECONDS_MIN = 0.25
RETRY_SECONDS = 0.1  # after running out of descriptors; doubled at every consecutive failure
RETRY_SECONDS_MAX = 1.0
WARNING_INTERVAL_SECONDS = 60.0  # between two warnings about that
WAIT_SECONDS_MAX = 1.0  # so that a higher rate takes effect soon
HANDSHAKE = "handshake"
THROTTLED_SOCKETS_MAX = (
    1_000  # throttled sockets of addresses above their connection rate; further ones are closed at once
)
_NO_TLS: Mapping[str, ListenerTls] = {}


class SocketServer:
    """All open connections of a broker, over all its listeners."""

    def __init__(
        self,
        limits: ConnectionLimits,
        handler: RequestHandler,
        poller: Poller,
        tls: Mapping[str, ListenerTls] = _NO_TLS,
        handshakes: TlsHandshakes | None = None,
        receiver: ReceiverThread | None = None,
    ) -> None:
        """`tls` has the TLS listeners by name; without a receiver the event loop receives all frames."""
        self.limits = limits
        self.tls = tls
        self._handshakes = handshakes or TlsHandshakes()
        self._closed = CloseLog()
        self.poller = poller
        self._receiver = receiver
        self.loop = asyncio.get_running_loop()
        self.buffers = BufferPool()
        self.connections: set[Connection] = set()
        self.per_host: dict[str, int] = {}
        self.traffic: dict[str, ListenerTraffic] = {}  # by listener name
        self.per_listener: dict[str, int] = {}
        self._rate = RateLimit(limits.creation_rate, self.loop.time())
        self._rates: dict[str, RateLimit] = {}
        self._handler = handler
        self.on_open: Callable[[Connection], None] | None = None  # called for each connection before its first frame
        self.on_refused: Callable[[ConnectedClient, str], None] | None = None  # called when a TLS handshake has failed
        # Seconds that an address is throttled by its connection rate quota.
        self.connection_throttle_seconds: Callable[[str, str], float] | None = None
        self._throttled_count = 0
        self._tick = 0
        self._capacity_events: list[asyncio.Event] = []
        self._sweeper = self.loop.call_later(self._sweep_seconds(), self._sweep)

    def update_limits(self, limits: ConnectionLimits) -> None:
        """Apply other limits; open connections stay open."""
        self.limits = limits
        now = self.loop.time()
        self._rate.update_rate(limits.creation_rate, now)
        for name, rate in self._rates.items():
            rate.update_rate(limits.of_listener(name).creation_rate, now)
        self._notify_capacity()

    def admit(self, sock: socket.socket, host: str, port: int, listener_name: str) -> None:
        """Accept a new socket, or close it if its host has too many connections."""
        client = ConnectedClient(host, port, listener_name)
        self._rate.consume()
        self._rate_of(listener_name).consume()
        if self.per_host.get(host, 0) >= self.limits.per_host(host):
            allowed = self.limits.per_host(host)
            self._refuse(client, CloseReason.HOST_LIMIT, f"max.connections.per.ip allows its address {allowed}")
            sock.close()
            return
        seconds = (
            self.connection_throttle_seconds(host, listener_name)
            if self.connection_throttle_seconds is not None
            else 0.0
        )
        if seconds > 0:
            self._refuse(client, CloseReason.HOST_RATE, "its address connects more often than its quota allows")
            self._close_after_throttle(sock, seconds)
            return
        try:
            pace = self._configure_socket(sock)
        except OSError as error:
            self._refuse(client, CloseReason.SOCKET_SETUP, error.strerror or str(error))
            sock.close()
            return
        self._open(sock, client, pace)

    def _refuse(self, client: ConnectedClient, reason: CloseReason, detail: str) -> None:
        self._closed.record(client, self.traffic_of(client.listener_name), reason, detail, self.loop.time())

    def _configure_socket(self, sock: socket.socket) -> PacingControl | None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        pace = None
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.limits.link.apply(sock)
            pace = self.limits.link.pace(sock)
        if self.limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        return pace

    def _open(self, sock: socket.socket, client: ConnectedClient, pace: PacingControl | None) -> None:
        host, listener_name = client.host, client.listener_name
        descriptor = sock.fileno()
        tls = self.tls.get(listener_name)
        transport: Transport
        rounds: ConnectionPoller = self.poller
        if tls is None:
            transport = PlainTransport(sock)
        else:
            transport = TlsTransport(sock, self._handshakes.scratch)
            rounds = TlsPoller(transport, self.poller, self.loop)
        connection = Connection(
            transport,
            descriptor,
            rounds,
            self.loop,
            self.buffers,
            self._handler,
            self._on_closed,
            client,
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
            self._begin_handshake(connection, transport, tls)
            return
        if self.on_open is not None:
            self.on_open(connection)
        self.poller.watch(descriptor, connection)

    def _close_after_throttle(self, sock: socket.socket, seconds: float) -> None:
        """Close the socket after the throttle time, as in Kafka, so that the client cannot reconnect at once."""
        if self._throttled_count >= THROTTLED_SOCKETS_MAX:
            sock.close()
            return
        self._throttled_count += 1

        def close() -> None:
            self._throttled_count -= 1
            sock.close()

        self.loop.call_later(seconds, close)

    def _begin_handshake(self, connection: Connection, transport: TlsTransport, tls: ListenerTls) -> None:
        """Start the connection after the TLS handshake, with the principal of the client's certificate."""

        def on_done(certificate: bytes | None) -> None:
            connection.close_listeners.pop(HANDSHAKE)
            try:
                connection.client.principal = tls.principal(certificate)
            except ValueError as problem:
                on_failed(CloseReason.HANDSHAKE_FAILED, str(problem))
                return
            rounds = connection.poller
            assert isinstance(rounds, TlsPoller)
            connection.last_active_tick = -1
            if self.on_open is not None:
                self.on_open(connection)
            rounds.watch(connection.descriptor, connection)

        def on_failed(reason: CloseReason, detail: str) -> None:
            if self.on_refused is not None:
                self.on_refused(connection.client, detail)
            connection.abandon(reason, detail)

        handshake = TlsHandshake(self._handshakes, transport, self.poller, tls.context, on_done, on_failed)
        connection.close_listeners[HANDSHAKE] = handshake.stop
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
        assert connection.close_reason is not None, "a closed connection has a reason"
        self._closed.record(
            connection.client, traffic, connection.close_reason, connection.close_detail, self.loop.time()
        )
        self._notify_capacity()

    def traffic_of(self, listener_name: str) -> ListenerTraffic:
        found = self.traffic.get(listener_name)
        if found is None:
            found = self.traffic[listener_name] = ListenerTraffic()
        return found

    def _notify_capacity(self) -> None:
        for event in self._capacity_events:
            event.set()

    # ---- limits

    def is_full(self, listener_name: str) -> bool:
        limit = self.limits.of_listener(listener_name).connections_max
        return len(self.connections) >= self.limits.connections_max or self.per_listener.get(listener_name, 0) >= limit

    async def wait_for_capacity(self, listener_name: str) -> None:
        event = asyncio.Event()
        self._capacity_events.append(event)
        try:
            while self.is_full(listener_name):
                event.clear()
                await event.wait()
        finally:
            self._capacity_events.remove(event)

    def seconds_to_wait(self, listener_name: str) -> float:
        """Return how long max.connection.creation.rate, of broker and listener, delays the next connection."""
        now = self.loop.time()
        return max(self._rate.seconds_to_wait(now), self._rate_of(listener_name).seconds_to_wait(now))

    def _rate_of(self, listener_name: str) -> RateLimit:
        rate = self._rates.get(listener_name)
        if rate is None:
            rate = RateLimit(self.limits.of_listener(listener_name).creation_rate, self.loop.time())
            self._rates[listener_name] = rate
        return rate

    def _sweep(self) -> None:
        """Close idle connections.

        Uses ticks instead of the clock, so that receiving needs no additional system call.
        """
        self._tick += 1
        idle_ms = self.limits.idle_ms_max
        idle_ticks = max(1, int(idle_ms / 1000 / self._sweep_seconds())) if idle_ms >= 0 else 0
        for connection in list(self.connections):
            if connection.pace is not None:
                connection.pace.on_sweep(self.loop.time())
            if connection.last_active_tick < 0 or connection.pending or connection.unsent_chunks:
                connection.last_active_tick = self._tick
            elif idle_ticks and self._tick - connection.last_active_tick >= idle_ticks:
                connection.abandon(CloseReason.IDLE, f"no data for {idle_ms} ms (connections.max.idle.ms)")
        if not any(connection.buffered_bytes for connection in self.connections):
            self.buffers.release_unused()
        self._sweeper = self.loop.call_later(self._sweep_seconds(), self._sweep)

    def _sweep_seconds(self) -> float:
        """Return a quarter of the idle time, so that connections are closed soon after it."""
        return min(SWEEP_SECONDS_MAX, max(SWEEP_SECONDS_MIN, self.limits.idle_ms_max / 4000))

    async def drain(self, seconds_max: float) -> None:
        """Wait until every accepted request has its reply sent, then close all connections."""
        deadline = self.loop.time() + seconds_max
        while self.loop.time() < deadline and not all(connection.is_idle for connection in self.connections):
            await asyncio.sleep(0.01)
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abandon(CloseReason.SHUTDOWN, "the broker stops")
        self._handshakes.close()
        if self._receiver is not None:
            self._receiver.close()

    def __repr__(self) -> str:
        return f"<SocketServer {len(self.connections)} open>"


class Acceptor:
    """One listening socket."""

    def __init__(
        self, name: str, host: str, port: int, connections: SocketServer, bound: socket.socket | None = None
    ) -> None:
        """`bound` is a socket from listen() for the same address, if it exists."""
        self.name = name
        self.host = host
        self.connections = connections
        self._loop = asyncio.get_running_loop()
        self._socket = bound or listen(host, port, connections.limits)
        self.port: int = self._socket.getsockname()[1]
        self._waiter: asyncio.Task[None] | None = None
        self._retry_seconds = RETRY_SECONDS
        self._log_limiter = LogLimiter(WARNING_INTERVAL_SECONDS)

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self.connections.is_full(self.name):
                self._pause(self.connections.wait_for_capacity(self.name))
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
            # A dual-stack socket reports IPv4 addresses as mapped IPv6 addresses.
            self.connections.admit(sock, address[0].removeprefix("::ffff:"), address[1], self.name)

    def _back_off(self, error: OSError) -> None:
        if self._log_limiter.is_due(self._loop.time()):
            logger.warning("cannot accept connections: %s; raise the limit of open files", error.strerror)
        self._pause(asyncio.sleep(self._retry_seconds))
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    def _pause(self, until: Awaitable[None]) -> None:
        """Pause accepting: new connections stay in the kernel's queue."""
        self._loop.remove_reader(self._socket.fileno())

        async def go_on() -> None:
            await until
            self.start()

        self._waiter = tasks.spawn(go_on(), f"the pause of listener {self.name}", on_failure=self.start)

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def __repr__(self) -> str:
        return f"<Acceptor {self.name} {self.host}:{self.port}>"


def plain_host(host: str) -> str | bytes:
    """Return the host, as bytes if it is ASCII: otherwise Python loads the IDNA codec."""
    return host.encode() if host.isascii() else host


def listen(host: str, port: int, limits: ConnectionLimits) -> socket.socket:
    """Return a bound, listening socket; a Listener accepts its connections later."""
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
