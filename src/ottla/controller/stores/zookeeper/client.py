"""kazoo, as the store uses it: the only file that knows kazoo's insides.

Rules:
1. kazoo has one thread for its connection. Answers and watch events cross from there to the loop by
   call_soon_threadsafe, in the order in which they came; nothing else of ours runs on that thread.
2. The loop only puts requests into kazoo's queue. Each of them is announced by a byte in a small buffer, and a full
   buffer would stop the loop: so the store never has more than IN_FLIGHT_MAX requests under way.
3. A server of an ensemble that does not answer costs its share of the session, not all of it.
4. TLS and logins are ours (security/zookeeper.py): kazoo checks no host names, and its logins need a library whose
   random numbers can be guessed. Nothing is sent before the login is done: kazoo's queue waits for it.
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

from ottla.base.tls_problems import tls_problem
from ottla.base.zookeeper_connect import ZooKeeperAddress
from ottla.controller.stores.store import Node
from ottla.security.sasl.mechanism import LoginError
from ottla.security.zookeeper import ZooKeeperSecurity

IN_FLIGHT_MAX: Final = 64
RETRY_SECONDS_MIN: Final = 0.1
RETRY_SECONDS_MAX: Final = 1.0
RETRY_JITTER: Final = 0.4  # brokers that lost the same server do not come back all at once
MULTI_READ: Final = 22  # ZooKeeper's number of the request, since 3.6
GET_DATA: Final = GetData.type
GET_CHILDREN: Final = GetChildren.type
ERROR_RESULT: Final = -1
HUNG_UP: Final = "socket connection broken"  # so kazoo calls it

# What is worth a line is told by the store itself; kazoo tells of every attempt.
kazoo_logger = logging.getLogger("kazoo")
kazoo_logger.setLevel(logging.ERROR)

_int = struct.Struct("!i")
_header = struct.Struct("!iBi")
_stat = struct.Struct("!qqqqiiiqiiq")


class LoginRequiredError(ZookeeperError):  # type: ignore[misc]  # kazoo has no types
    """ZooKeeper admits nobody who has not logged in. kazoo does not know this code (3.6)."""

    code = -124


EXCEPTIONS[LoginRequiredError.code] = LoginRequiredError


class LoopResult:
    """What kazoo fills on its thread, as a future of the loop."""

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def set(self, value: Any = None) -> None:
        cross(self._loop, self._finish, value, None)

    def set_exception(self, error: BaseException) -> None:
        cross(self._loop, self._finish, None, error)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():  # nobody waits any more
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)


def cross(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """From kazoo's thread to the loop; a loop that is closed needs no news."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Results are futures, and watches are called without a thread of their own: ours only cross to the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connect_seconds_max: float, security: ZooKeeperSecurity
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
        """What OpenSSL has decrypted already is not seen by the system any more."""
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
            "the other side does not answer in TLS: is this its port for it?" if is_silent else tls_problem(problem)
        )
        raise ConnectionError(errno.EPROTO, f"TLS: {reason}") from problem


class ObservedConnection(ConnectionHandler):  # type: ignore[misc]
    """A connection of kazoo's that tells what was agreed on, and why there is none."""

    negotiated_timeout_ms = 0
    problem = ""
    is_refused = False  # ZooKeeper does not let us in, and will not if we ask again

    def __init__(self, client: KazooClient, security: ZooKeeperSecurity) -> None:
        # Options of kazoo's own login, which ours stands for; None is no login at all.
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
                reason = f"TLS: {tls_problem(error.__context__)}"
            elif reason == HUNG_UP and self._security.context() is None:
                reason = f"{HUNG_UP}: does that port want TLS (zookeeper.ssl.client.enable)?"
            self.problem = f"{host}:{port}: {reason}"
            raise

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """On kazoo's thread, before the first request."""
        assert self._security.make_login is not None
        exchange = self._security.make_login(host)
        try:
            token, number = exchange.first(), 0
            while not exchange.is_done:
                number += 1
                self._submit(SASL(token), timeout, number)
                header, data, offset = self._read_header(timeout)
                if header.err:
                    raise LoginError("the name or the password is wrong")
                token = exchange.step(SASL.deserialize(data, offset)[0] or b"")
        except LoginError as refusal:
            self.is_refused = True
            raise AuthFailedError(f"the login by the section Client of the JAAS file failed: {refusal}") from refusal

    def _expand_client_hosts(self) -> Any:
        unknown = f"the host name is not known: {', '.join(sorted({host for host, _ in self.client.hosts}))}"
        self.problem = self.problem or unknown  # looking it up can take longer than anybody waits
        found = super()._expand_client_hosts()
        if not found:
            self.problem = unknown
        elif self.problem == unknown:
            self.problem = ""
        return found

    @property
    def has_ended(self) -> bool:
        """Whether kazoo's thread is over: after a stop, or because of an error that kazoo did not expect."""
        return bool(self.connection_stopped.is_set())

    def drop(self) -> None:
        """Give the connection up, as if the server had closed it: kazoo looks for another, within the same session."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket's own: it would let what is sent at this moment go out as it is.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


Identity = tuple[int, bytes]  # of a session: its number and its password


def make_client(
    address: ZooKeeperAddress,
    session_timeout_ms: int,
    loop: asyncio.AbstractEventLoop,
    identity: Identity | None = None,
    security: ZooKeeperSecurity | None = None,
) -> tuple[KazooClient, ObservedConnection]:
    """A client that is not started yet, for a new session or to go on with one.

    The chroot is the store's business: it must be created from outside of it.
    """
    security = security or ZooKeeperSecurity()
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
    """A node as ZooKeeper has it, with more than the store's users need."""

    node: Node
    changed_id: int  # the number of the transaction that wrote its data
    owner: int  # the session that an ephemeral node belongs to
    child_count: int


Read = Found | list[str] | Exception | None


class MultiRead:
    """Many reads in one request: GET_DATA or GET_CHILDREN and the path of each. kazoo lacks it, ZooKeeper has it.

    The answer has, for each of them, a Found, a list of names, None for a node that does not exist, or any other error.
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
    """A request that kazoo has no method for."""
    result: LoopResult = client.handler.async_result()
    client._call(request, result)
    return result


def _read_found(data: bytes, offset: int) -> tuple[Found, int]:
    length = max(_int.unpack_from(data, offset)[0], 0)  # -1 stands for a node that was created without data
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
