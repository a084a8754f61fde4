"""Adapter for kazoo, the ZooKeeper client: the only module that depends on kazoo's internals.

Rules:
1. kazoo has one thread for its connection. Responses and watch events are passed to the event loop with
   call_soon_threadsafe, in order; none of our other code runs on that thread.
2. The loop only adds requests to kazoo's queue. kazoo writes a byte to a small pipe for each of them, and a full pipe
   would block the loop, so the store never has more than IN_FLIGHT_MAX requests in flight.
3. An unresponsive server of an ensemble takes only a share of the session timeout, not all of it.
4. TLS and SASL are implemented here (security/zookeeper.py): kazoo does not verify host names, and its SASL library has
   predictable random numbers. No request is sent before the login: kazoo's queue waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, NoNodeError, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, Connect, GetChildren, GetData

from ottla.base.tls_problems import describe_tls_error
from ottla.base.zookeeper_connect import ZooKeeperAddress
from ottla.controller.stores.store import Node
from ottla.security.sasl.exchange import LoginError
from ottla.security.zookeeper import ZooKeeperClientSecurity

IN_FLIGHT_MAX: Final = 64
RETRY_SECONDS_MIN: Final = 0.1
RETRY_SECONDS_MAX: Final = 1.0
RETRY_JITTER: Final = 0.4  # spreads the reconnects of brokers that lost the same server
MULTI_READ: Final = 22  # the request type in ZooKeeper, since 3.6
GET_DATA: Final = GetData.type
GET_CHILDREN: Final = GetChildren.type
ERROR_RESULT: Final = -1
HUNG_UP: Final = "socket connection broken"  # kazoo's message

# The store logs important events itself; kazoo logs every attempt.
kazoo_logger = logging.getLogger("kazoo")
kazoo_logger.setLevel(logging.ERROR)

_int = struct.Struct("!i")
_header = struct.Struct("!iBi")
_stat = struct.Struct("!qqqqiiiqiiq")


class LoginRequiredError(ZookeeperError):  # type: ignore[misc]  # kazoo has no types
    """ZooKeeper requires a SASL login. kazoo does not know this error code (since 3.6)."""

    code = -124


EXCEPTIONS[LoginRequiredError.code] = LoginRequiredError


class LoopResult:
    """A result that kazoo sets on its thread, as a future of the loop."""

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def set(self, value: Any = None) -> None:
        cross(self._loop, self._finish, value, None)

    def set_exception(self, error: BaseException) -> None:
        cross(self._loop, self._finish, None, error)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():  # the waiter was cancelled
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


def cross(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Call a function on the loop from kazoo's thread; ignored if the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler with futures as results, and without a thread for watches: they are passed to the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connect_seconds_max: float, security: ZooKeeperClientSecurity
    ) -> None:
        super().__init__()
        self._security = security
        self._loop = loop
        self._connect_seconds_max = connect_seconds_max

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def async_result(self) -> LoopResult:
        return LoopResult(self._loop)

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs.get("timeout") or self._connect_seconds_max, self._connect_seconds_max)
        context = self._security.context()
        connection = super().create_connection(*args, **kwargs)
        return connection if context is None else _secure(context, connection, kwargs["hostname"])

    def select(self, readable: list[Any], writable: list[Any], broken: list[Any], timeout: float | None = None) -> Any:
        """Return the ready sockets. select() does not report data that OpenSSL has already decrypted."""
        waiting = [each for each in readable if hasattr(each, "pending") and each.pending()]
        found = super().select(readable, writable, broken, 0 if waiting else timeout)
        return ([each for each in readable if each in found[0] or each in waiting], *found[1:])


def _secure(context: ssl.SSLContext, connection: socket.socket, host: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except OSError as problem:
        connection.close()
        is_silent = isinstance(problem, ssl.SSLEOFError | ConnectionResetError | TimeoutError)
        reason = (
            "the server does not respond with TLS: is this its TLS port?" if is_silent else describe_tls_error(problem)
        )
        raise ConnectionError(errno.EPROTO, f"TLS: {reason}") from problem


class ObservedConnection(ConnectionHandler):  # type: ignore[misc]
    """A connection of kazoo with the negotiated timeout and the reason of a failure."""

    negotiated_timeout_ms = 0
    problem = ""
    is_refused = False  # ZooKeeper has rejected the login; a retry would also fail

    def __init__(self, client: KazooClient, security: ZooKeeperClientSecurity) -> None:
        # Options of kazoo's own login, which is replaced; None disables the login.
        sasl_options: dict[str, str] | None = {} if security.make_login is not None else None
        super().__init__(client, client._conn_retry.copy(), logger=kazoo_logger, sasl_options=sasl_options)
        self._security = security

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.negotiated_timeout_ms = answer[0].time_out
        return answer

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        try:
            return super()._connect(host, hostip, port)
        except Exception as error:
            reason = str(error).removeprefix("socket connection error: ") or "no answer"
            if isinstance(error.__context__, ssl.SSLError):
                reason = f"TLS: {describe_tls_error(error.__context__)}"
            elif reason == HUNG_UP and self._security.context() is None:
                reason = f"{HUNG_UP}: does that port want TLS (zookeeper.ssl.client.enable)?"
            self.problem = f"{host}:{port}: {reason}"
            raise

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in on kazoo's thread, before the first request."""
        assert self._security.make_login is not None
        exchange = self._security.make_login(host)
        try:
            token, number = exchange.first(), 0
            while not exchange.is_done:
                number += 1
                self._submit(SASL(token), timeout, number)
                header, data, offset = self._read_header(timeout)
                if header.err:
                    raise LoginError("wrong name or password")
                token = exchange.step(SASL.deserialize(data, offset)[0] or b"")
        except LoginError as refusal:
            self.is_refused = True
            raise AuthFailedError(f"the login by the section Client of the JAAS file failed: {refusal}") from refusal

    def _expand_client_hosts(self) -> Any:
        unknown = f"the host name is not known: {', '.join(sorted({host for host, _ in self.client.hosts}))}"
        self.problem = self.problem or unknown  # a lookup can take longer than the timeout
        found = super()._expand_client_hosts()
        if not found:
            self.problem = unknown
        elif self.problem == unknown:
            self.problem = ""
        return found

    @property
    def has_ended(self) -> bool:
        """Whether kazoo's thread has ended: after a stop, or by an unexpected error."""
        return bool(self.connection_stopped.is_set())

    def drop(self) -> None:
        """Close the connection as if the server had closed it: kazoo connects to another one in the same session."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown(), after which concurrent writes would be sent unencrypted.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


Identity = tuple[int, bytes]  # session id and password


def make_client(
    address: ZooKeeperAddress,
    session_timeout_ms: int,
    loop: asyncio.AbstractEventLoop,
    identity: Identity | None = None,
    security: ZooKeeperClientSecurity | None = None,
) -> tuple[KazooClient, ObservedConnection]:
    """Create a client that is not started yet, for a new session or an existing one.

    The store adds the chroot to paths, because it must be created from outside of it.
    """
    security = security or ZooKeeperClientSecurity()
    client = KazooClient(
        client_id=identity,
        hosts=address.hosts,
        timeout=session_timeout_ms / 1000,
        handler=LoopHandler(loop, session_timeout_ms / 1000 / (len(address.servers) + 1), security),
        connection_retry={
            "max_tries": -1,
            "delay": RETRY_SECONDS_MIN,
            "max_delay": RETRY_SECONDS_MAX,
            "max_jitter": RETRY_JITTER,
        },
        logger=kazoo_logger,
    )
    connection = ObservedConnection(client, security)
    client._connection = connection
    return client, connection


class Found(NamedTuple):
    """A node with the properties that only this package needs."""

    node: Node
    changed_id: int  # the transaction that wrote its data (mzxid)
    owner: int  # the session that owns an ephemeral node
    child_count: int


Read = Found | list[str] | Exception | None


class MultiRead:
    """ZooKeeper's multi-read request, which kazoo lacks: GET_DATA or GET_CHILDREN for each path.

    The response has, for each path, a Found, a list of names, None for a missing node, or any other error.
    """

    type: Final = MULTI_READ
    __slots__ = ("reads",)

    def __init__(self, reads: Sequence[tuple[int, str]]) -> None:
        self.reads = reads

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for kind, path in self.reads:
            name = path.encode()
            parts += (_header.pack(kind, False, -1), _int.pack(len(name)), name, b"\0")
        parts.append(_header.pack(-1, True, -1))
        return b"".join(parts)

    def deserialize(self, data: bytes, offset: int) -> list[Read]:
        results: list[Read] = []
        while True:
            kind, is_done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if is_done:
                return results
            if kind == ERROR_RESULT:
                code = _int.unpack_from(data, offset)[0]
                offset += _int.size
                results.append(None if code == NoNodeError.code else EXCEPTIONS[code]())
            elif kind == GET_DATA:
                found, offset = _read_found(data, offset)
                results.append(found)
            else:
                names, offset = _read_names(data, offset)
                results.append(names)


def send_request(client: KazooClient, request: Any) -> LoopResult:
    """Send a request for which kazoo has no method."""
    result: LoopResult = client.handler.async_result()
    client._call(request, result)
    return result


def _read_found(data: bytes, offset: int) -> tuple[Found, int]:
    length = max(_int.unpack_from(data, offset)[0], 0)  # -1: the node was created without data
    start = offset + _int.size
    end = start + length
    created_id, changed_id, _, _, version, _, _, owner, _, child_count, _ = _stat.unpack_from(data, end)
    node = Node(bytes(data[start:end]), version, created_id, changed_id)
    return Found(node, changed_id, owner, child_count), end + _stat.size


def _read_names(data: bytes, offset: int) -> tuple[list[str], int]:
    count = _int.unpack_from(data, offset)[0]
    offset += _int.size
    names = []
    for _ in range(max(count, 0)):
        length = _int.unpack_from(data, offset)[0]
        offset += _int.size + length
        names.append(data[offset - length : offset].decode())
    return names, offset
