"""Listeners on real sockets of the loopback: what the settings of sockets come to."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

import pytest

import virtual_time
from ottla.base.broker_settings import load_broker_settings
from ottla.broker.connection_limits import connection_limits
from ottla.network import link_options
from ottla.network import listener as listener_module
from ottla.network.limits import ConnectionLimits
from ottla.network.listener import ConnectionSet, Listener
from ottla.network.poller import Poller
from ottla.protocol.codec import Encoded


class Nobody:
    """A handler of frames that never come."""

    def on_frame(self, *_: object) -> None:
        raise AssertionError


def run(limits: ConnectionLimits, check: Callable[[ConnectionSet, Listener], Awaitable[None]]) -> None:
    async def main() -> None:
        connections = ConnectionSet(limits, Nobody(), poller)  # type: ignore[arg-type]
        listener = Listener("PLAINTEXT", "127.0.0.1", 0, connections)
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


@pytest.mark.parametrize("size", [20_000, 50_000])
def test_buffers_have_the_size_that_is_set(size: int) -> None:
    async def check(connections: ConnectionSet, listener: Listener) -> None:
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


def test_options_for_bad_networks_reach_accepted_sockets() -> None:
    settings = {"listeners": "PLAINTEXT://:9092", "ottla.socket.congestion.control": "reno"}
    settings |= {"ottla.socket.user.timeout.ms": "20000", "ottla.socket.unsent.max.bytes": "70000"}
    limits = connection_limits(load_broker_settings(None, settings))

    async def check(connections: ConnectionSet, listener: Listener) -> None:
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
    monkeypatch.setattr(link_options, "PACED", b"reno")  # every kernel has it
    limits = ConnectionLimits(link=link_options.LinkOptions(congestion_control="reno"))

    async def check(connections: ConnectionSet, listener: Listener) -> None:
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
    async def check(connections: ConnectionSet, listener: Listener) -> None:
        waiting = [socket.socket() for _ in range(4)]
        try:
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", listener.port))  # nobody accepts: the listener was not started
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
    async def check(connections: ConnectionSet, _: Listener) -> None:
        both = Listener("BOTH", "::", 0, connections)
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
    async def check(connections: ConnectionSet, listener: Listener) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            await until(lambda: connections.traffic_of("PLAINTEXT").open == 1)
            client.sendall(b"abc")
            await until(lambda: any(connection.received_bytes == 3 for connection in connections.connections))
        await until(lambda: connections.traffic_of("PLAINTEXT").closed == 1)
        counted = connections.traffic_of("PLAINTEXT")
        assert (counted.opened, counted.open, counted.received_bytes, counted.refused) == (1, 0, 3, 0)

    run(ConnectionLimits(), check)


def test_refused_connections_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def check(connections: ConnectionSet, listener: Listener) -> None:
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: connections.traffic_of("PLAINTEXT").open == 1)
            for refused in (1, 2):
                with socket.create_connection(("127.0.0.1", listener.port)):
                    await until(lambda refused=refused: connections.traffic_of("PLAINTEXT").refused == refused)

    run(ConnectionLimits(connections_per_host_max=1), check)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["refusing connections from 127.0.0.1: max.connections.per.ip allows it 1"]


def test_running_out_of_descriptors_is_told_once_and_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
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

    async def check(connections: ConnectionSet, listener: Listener) -> None:
        listener._socket = Starving(listener._socket)  # type: ignore[assignment]
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)):
            await until(lambda: bool(connections.connections))

    told: list[str] = []
    monkeypatch.setattr(listener_module, "RETRY_SECONDS_MAX", 0.1)
    monkeypatch.setattr(listener_module.logger, "warning", lambda text, *_: told.append(text))
    run(ConnectionLimits(), check)
    assert len(tries) > 5
    assert [text for text in told if text.startswith("cannot accept connections")] == told[:1] != []
