"""Listeners on real sockets of the loopback: what the settings of sockets come to."""

import ast
import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests import virtual_time

import ottla.network
from ottla.base.broker_settings import load_broker_settings
from ottla.broker.configs.connection_options import connection_limits
from ottla.network import socket_options
from ottla.network import socket_server as socket_server_module
from ottla.network.close_reason import CLOSED_BY_CLIENT, CloseReason
from ottla.network.connection import ConnectedClient
from ottla.network.listener_limits import ConnectionLimits
from ottla.network.poller import Poller
from ottla.network.socket_server import (
    LINES_PER_SECOND_MAX,
    LOGGED_ELSEWHERE,
    REPEAT_SECONDS,
    Acceptor,
    CloseLog,
    ListenerTraffic,
    SocketServer,
)
from ottla.protocol.codec import Encoded


class NoHandler:
    """A handler of frames that never come."""

    def on_frame(self, *_: object) -> None:
        raise AssertionError


def run(limits: ConnectionLimits, check: Callable[[SocketServer, Acceptor], Awaitable[None]]) -> None:
    async def main() -> None:
        connections = SocketServer(limits, NoHandler(), poller)  # type: ignore[arg-type]
        listener = Acceptor("PLAINTEXT", "127.0.0.1", 0, connections)
        try:
            await check(connections, listener)
        finally:
            listener.close()
            await connections.drain(1)

    poller = Poller()
    virtual_time.run(main(), poller)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.1)


def test_a_new_connection_has_the_whole_idle_time_however_old_the_broker_is() -> None:
    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener.start()
        await asyncio.sleep(3_600)
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: bool(connections.connections))
            await asyncio.sleep(500)
            assert connections.connections
            await asyncio.sleep(200)
            assert not connections.connections

    run(ConnectionLimits(idle_ms_max=600_000), check)


@pytest.mark.parametrize("size", [20_000, 50_000])
def test_buffers_have_the_size_that_is_set(size: int) -> None:
    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: bool(connections.connections))
            (connection,) = connections.connections
            accepted = socket.socket(fileno=socket.dup(connection.descriptor))
            with accepted:
                # The kernel doubles what it is told, for its own bookkeeping.
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * size
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * size

    run(ConnectionLimits(send_buffer_bytes=size, receive_buffer_bytes=size), check)


@pytest.mark.parametrize(
    ("more", "paced", "fixed"), [({}, 307_200, -1), ({"socket.send.buffer.bytes": "5000"}, -1, 5000)]
)
def test_a_chosen_send_buffer_is_also_that_of_sockets_with_pacing(more: dict[str, str], paced: int, fixed: int) -> None:
    limits = connection_limits(load_broker_settings(None, {"listeners": "PLAINTEXT://:9092", **more}))
    assert (limits.link.paced_send_buffer_bytes, limits.send_buffer_bytes) == (paced, fixed)


def test_options_for_bad_networks_reach_accepted_sockets() -> None:
    settings = {"listeners": "PLAINTEXT://:9092", "ottla.socket.congestion.control": "reno"}
    settings |= {"ottla.socket.user.timeout.ms": "20000", "ottla.socket.unsent.max.bytes": "70000"}
    limits = connection_limits(load_broker_settings(None, settings))

    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: bool(connections.connections))
            (connection,) = connections.connections
            with socket.socket(fileno=socket.dup(connection.descriptor)) as accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 70_000

    run(limits, check)


def answer(data: bytes) -> Encoded:
    encoded = Encoded(data)
    encoded.holes = []
    return encoded


def test_a_connection_whose_socket_is_full_sends_by_a_timer_if_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_options, "PACED", b"reno")  # every kernel has it
    limits = ConnectionLimits(link=socket_options.SocketOptions(congestion_control="reno"))

    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            await until(lambda: bool(connections.connections))
            (connection,) = connections.connections
            pace = connection.pace
            assert pace is not None
            connection.reply(answer(b"small"))
            connection.flush()
            assert client.recv(10) == b"small"
            assert not pace.is_paced
            connection.reply(answer(bytes(64 << 20)))  # more than any socket takes
            connection.flush()
            assert pace.is_paced

    run(limits, check)


def test_no_more_connections_wait_than_the_backlog_lets() -> None:
    async def check(connections: SocketServer, listener: Acceptor) -> None:
        waiting = [socket.socket() for _ in range(4)]
        try:
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", listener.port))  # not accepted: the listener was not started
            await asyncio.sleep(0.05)
            assert sum(_is_connected(sock) for sock in waiting) == 2  # Linux lets one more wait than it was told
        finally:
            for sock in waiting:
                sock.close()

    run(ConnectionLimits(backlog=1), check)


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def test_an_address_of_ipv4_is_counted_as_such_on_a_socket_for_both() -> None:
    async def check(connections: SocketServer, _: Acceptor) -> None:
        both = Acceptor("BOTH", "::", 0, connections)
        both.start()
        try:
            with socket.create_connection(("127.0.0.1", both.port)):
                await until(lambda: bool(connections.connections))
                assert connections.per_host == {"127.0.0.1": 1}
                assert connections.per_listener == {"BOTH": 1}
        finally:
            both.close()

    run(ConnectionLimits(), check)


def test_connections_and_their_bytes_are_counted_by_listener() -> None:
    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            await until(lambda: connections.traffic_of("PLAINTEXT").open == 1)
            client.sendall(b"abc")
            await until(lambda: any(connection.received_bytes == 3 for connection in connections.connections))
        await until(lambda: connections.traffic_of("PLAINTEXT").closed == 1)
        counted = connections.traffic_of("PLAINTEXT")
        assert (counted.opened, counted.open, counted.received_bytes, counted.refused) == (1, 0, 3, 0)

    run(ConnectionLimits(), check)


def test_refused_connections_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: connections.traffic_of("PLAINTEXT").open == 1)
            for refused in (1, 2):
                with socket.create_connection(("127.0.0.1", listener.port)):
                    await until(lambda refused=refused: connections.traffic_of("PLAINTEXT").refused == refused)

    run(ConnectionLimits(connections_per_host_max=1), check)
    (told,) = [message for message in caplog.messages if "(host-limit)" in message]
    assert told.endswith("on listener PLAINTEXT (host-limit): max.connections.per.ip allows its address 1")


def test_running_out_of_descriptors_is_logged_once_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    class Starving:
        """The listening socket of a process that has no descriptor left, five times."""

        def __init__(self, real: socket.socket) -> None:
            self._real = real

        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            tries.append(1)
            if len(tries) <= 5:
                raise OSError(errno.EMFILE, "Too many open files")
            return self._real.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    async def check(connections: SocketServer, listener: Acceptor) -> None:
        listener._socket = Starving(listener._socket)  # type: ignore[assignment]
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: bool(connections.connections))

    told: list[str] = []
    monkeypatch.setattr(socket_server_module, "RETRY_SECONDS_MAX", 0.1)
    monkeypatch.setattr(socket_server_module.logger, "warning", lambda text, *_: told.append(text))
    run(ConnectionLimits(), check)
    assert len(tries) > 5
    assert [text for text in told if text.startswith("cannot accept connections")] == told[:1] != []


NETWORK = Path(ottla.network.__file__).parent
# Where a socket or a transport is closed: behind a connection that has a reason, after a refusal with one, and sockets
# that are no clients'.
CLOSERS = {
    ("peer_transport.py", "connect_socket"),
    ("connection.py", "_release_resources"),
    ("socket_server.py", "admit"),
    ("socket_server.py", "_close_after_throttle"),
    ("socket_server.py", "close"),
    ("socket_server.py", "listen"),
    ("peer.py", "_disconnect"),
    ("tls_handshake.py", "tls_connect"),
    ("tls_transport.py", "close"),
    ("transport.py", "close"),
}


def client(number: int = 0) -> ConnectedClient:
    return ConnectedClient(f"10.0.{number >> 8}.{number & 255}", 4711, "SSL")


@pytest.mark.parametrize("reason", CloseReason)
def test_a_close_is_counted_and_logged(reason: CloseReason, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    closed, traffic = CloseLog(), ListenerTraffic()
    closed.record(client(), traffic, reason, "because", 0.0)
    assert traffic.closes == {each: each is reason for each in CloseReason}
    is_told = reason not in CLOSED_BY_CLIENT | LOGGED_ELSEWHERE
    line = f"closing the connection from 10.0.0.0:4711 on listener SSL ({reason.value}): because"
    assert caplog.messages == [line] * is_told


def test_closes_fill_no_disk_and_suppressed_lines_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    closed, traffic = CloseLog(), ListenerTraffic()
    for _ in range(1000):
        closed.record(client(), traffic, CloseReason.HANDSHAKE_TIMEOUT, "slow", 0.0)
    assert len(caplog.messages) == 1
    closed.record(client(), traffic, CloseReason.HANDSHAKE_TIMEOUT, "slow", REPEAT_SECONDS)
    assert caplog.messages[-1].endswith("slow (999 more were closed for this reason since the last line)")
    for number in range(5000):
        closed.record(client(number), traffic, CloseReason.IDLE, "idle", 20.0)
    assert len(caplog.messages) == 2 + LINES_PER_SECOND_MAX
    assert traffic.closes[CloseReason.IDLE] == 5000


def test_closing_takes_a_reason() -> None:
    """Read from the source: compiled methods keep no annotations."""
    closers = [
        function
        for path in NETWORK.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and function.name in {"abandon", "fail"}
    ]
    assert len(closers) >= 4
    for closer in closers:
        reason = next(each for each in closer.args.args if each.arg == "reason")
        assert ast.unparse(reason.annotation or ast.Constant(None)) == "CloseReason"
        assert len(closer.args.args) - closer.args.args.index(reason) > len(closer.args.defaults), "no default"


def test_sockets_are_closed_where_the_reason_is_known() -> None:
    found = set()
    for path in NETWORK.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                if node.func.attr in ("close", "shutdown", "detach") and closes_socket(ast.unparse(node.func.value)):
                    found.add((path.name, function.name))
    assert found - {("socket_server.py", "close")} == CLOSERS - {("socket_server.py", "close")}


def closes_socket(owner: str) -> bool:
    return owner.rpartition(".")[2].lstrip("_") in ("sock", "socket", "transport", "_socket")
