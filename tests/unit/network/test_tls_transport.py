"""TLS behind the calls of a Transport: on socketpairs, and listeners over TLS in virtual time."""

import asyncio
import os
import random
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests import virtual_time
from tests.certificates import Authority, Identity

from ottla.base.broker_keys.security import TlsKeys
from ottla.base.file_range import FileRange
from ottla.network import tls_handshake
from ottla.network.connection import Connection
from ottla.network.listener_limits import ConnectionLimits
from ottla.network.peer import BrokerConnection, PeerError
from ottla.network.poller import Poller
from ottla.network.socket_server import Acceptor, SocketServer
from ottla.network.tls_handshake import OutgoingTls, TlsHandshakes
from ottla.network.tls_transport import PROTOCOL_REPLY_BYTES_MAX, SENT_BYTES, TlsScratch, TlsTransport
from ottla.protocol.codec import Encoded
from ottla.security.ssl_principal_mapper import SslPrincipalMapper
from ottla.security.tls import client_context, server_context

AUTHORITY = Authority()
BROKER, ALICE = AUTHORITY.issue("broker"), AUTHORITY.issue("alice")
MIB = 1024 * 1024


def keys(identity: Identity, **more: str) -> TlsKeys:
    texts = {
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.chain_pem,
        "ssl.truststore.certificates": AUTHORITY.chain_pem,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return TlsKeys(texts)


SERVER = server_context(keys(BROKER, ssl_client_auth="requested")).context
CLIENT = client_context(keys(ALICE)).context


class NoOwner:
    def release_range(self) -> None:
        """The file outlives its ranges here."""


@pytest.fixture
def transports() -> tuple[TlsTransport, TlsTransport]:
    """Both ends of a connection after the handshake; their sockets hold little, so that they are often full."""
    left, right = socket.socketpair()
    for sock in (left, right):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    ours, theirs = TlsTransport(left, TlsScratch()), TlsTransport(right, TlsScratch())
    ours.begin(SERVER, None)
    theirs.begin(CLIENT, "localhost")
    for _ in range(4):
        for side in (theirs, ours):
            assert side.tls is not None
            with suppress(ssl.SSLWantReadError):
                side.tls.do_handshake()
            assert side.flush()
            with suppress(BlockingIOError):
                side.receive()
    ours.open()
    theirs.open()
    return ours, theirs


def drain(transport: TlsTransport, into: bytearray, size: int = 100_000) -> None:
    buffer = memoryview(bytearray(size))
    while True:
        try:
            count = transport.receive_into(buffer)
        except BlockingIOError:
            assert not transport.has_pending
            return
        into += buffer[:count]


def test_what_is_offered_again_while_the_socket_is_full_arrives_once(
    transports: tuple[TlsTransport, TlsTransport], tmp_path: Path
) -> None:
    sender, receiver = transports
    luck = random.Random(7)
    file_bytes = luck.randbytes(3 * SENT_BYTES)
    (tmp_path / "log").write_bytes(file_bytes)
    descriptor = os.open(tmp_path / "log", os.O_RDONLY)
    sent, received, refused = bytearray(), bytearray(), 0
    for _ in range(60):
        chunk = luck.randbytes(luck.choice((0, 1, 100, 16_384, 70_000, 2 * SENT_BYTES)))
        piece: bytes | FileRange = chunk
        if luck.random() < 0.5:
            position = luck.randrange(len(file_bytes))
            chunk = file_bytes[position : position + luck.randrange(1, 2 * SENT_BYTES)]
            piece = FileRange(NoOwner(), descriptor, position, len(chunk))
        offset = 0
        while offset < len(chunk):
            try:
                if isinstance(piece, FileRange):
                    count = sender.send_file(piece, 1 << 30)
                    piece.position += count
                    piece.length -= count
                else:
                    count = sender.send(memoryview(chunk)[offset:], luck.random() < 0.3)
            except BlockingIOError:
                refused += 1
                drain(receiver, received, luck.choice((1000, 100_000)))
            else:
                offset += count
        sent += chunk
    sender.send(b"end", False)
    drain(receiver, received)
    assert received == sent + b"end"
    assert refused > 20
    os.close(descriptor)


def test_bytes_that_wait_inside_are_announced(transports: tuple[TlsTransport, TlsTransport]) -> None:
    receiver, sender = transports
    sender.send(bytes(range(200)), False)
    small = memoryview(bytearray(50))
    seen = [(receiver.receive_into(small), receiver.has_pending) for _ in range(4)]
    assert seen == [(50, True), (50, True), (50, True), (50, False)]


@pytest.mark.parametrize("piece", [1, 3, 7, 4096])
def test_records_that_come_in_pieces_are_read_as_soon_as_they_are_whole(
    transports: tuple[TlsTransport, TlsTransport], piece: int
) -> None:
    sender, receiver = transports
    assert sender.tls is not None
    bodies = [bytes([number]) * size for number, size in enumerate((1, 500, 16_384, 20_000, 2))]
    for body in bodies:
        sender.tls.write(body)
    sealed, received = sender.outgoing.read(), bytearray()
    for position in range(0, len(sealed), piece):
        sender.socket.send(sealed[position : position + piece])
        drain(receiver, received)
    assert received == b"".join(bodies)


def test_an_end_is_seen_with_and_without_good_bye(transports: tuple[TlsTransport, TlsTransport]) -> None:
    sender, receiver = transports
    buffer = memoryview(bytearray(10))
    sender.send(b"x", False)
    sender.close()
    assert [receiver.receive_into(buffer) for _ in range(3)] == [1, 0, 0]
    receiver.close()


def test_a_cut_is_an_end(transports: tuple[TlsTransport, TlsTransport]) -> None:
    sender, receiver = transports
    sender.socket.close()
    assert receiver.receive_into(memoryview(bytearray(10))) == 0


def test_a_file_that_is_too_short_is_reported(transports: tuple[TlsTransport, TlsTransport], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    descriptor = os.open(tmp_path / "log", os.O_RDONLY)
    assert transports[0].send_file(FileRange(NoOwner(), descriptor, 0, 10), 100) == 0
    os.close(descriptor)


def test_new_keys_that_are_asked_for_during_a_large_answer_end_nothing(
    transports: tuple[TlsTransport, TlsTransport],
) -> None:
    """A consumer in Java does so after 128 GB. The answer under way counted as answers that it does not read."""
    sender, receiver = transports
    with pytest.raises(BlockingIOError):
        while True:
            sender.send(b"x" * SENT_BYTES, False)
    sender.outgoing.write(b"new keys")  # as OpenSSL does
    receiver.send(b"next request", False)
    buffer = memoryview(bytearray(100))
    assert bytes(buffer[: sender.receive_into(buffer)]) == b"next request"
    sender.outgoing.write(bytes(PROTOCOL_REPLY_BYTES_MAX))
    receiver.send(b"next request", False)
    with pytest.raises(OSError, match="requests key updates and does not read them"):
        sender.receive_into(buffer)


def test_changed_bytes_are_an_error(transports: tuple[TlsTransport, TlsTransport]) -> None:
    sender, receiver = transports
    assert sender.tls is not None
    sender.tls.write(b"hello")
    sealed = bytearray(sender.outgoing.read())
    sealed[-1] ^= 1
    sender.socket.send(sealed)
    with pytest.raises(OSError, match=r"BAD_RECORD_MAC|DECRYPTION_FAILED"):
        receiver.receive_into(memoryview(bytearray(10)))


# ---- listeners


class Echo:
    """Answers each frame with itself."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        self.principals.append(connection.client.principal)
        answer = Encoded(struct.pack(">i", len(frame)) + bytes(frame))
        answer.holes = []
        connection.reply(answer)
        return True


class Guard:
    """ListenerTls of a test."""

    def __init__(self, context: ssl.SSLContext = SERVER, rules: str = "DEFAULT") -> None:
        self._context = context
        self._mapping = SslPrincipalMapper(rules)

    def context(self) -> ssl.SSLContext:
        return self._context

    def principal(self, certificate: bytes | None) -> str:
        return self._mapping.principal(certificate)


Check = Callable[[SocketServer, Acceptor, Echo], Awaitable[None]]


def serve(check: Check, guard: Guard | None = None) -> None:
    async def main() -> None:
        echo = Echo()
        connections = SocketServer(ConnectionLimits(), echo, poller, {"SSL": guard or Guard()})
        listener = Acceptor("SSL", "127.0.0.1", 0, connections)
        listener.start()
        try:
            await check(connections, listener, echo)
        finally:
            listener.close()
            await connections.drain(1)

    poller = Poller()
    virtual_time.run(main(), poller)


async def until(condition: Callable[[], bool], pause: float = 0.01) -> None:
    async with asyncio.timeout(100):
        while not condition():
            await asyncio.sleep(pause)


class Caller:
    """A client on the same loop, with TLS on memory and a plain socket."""

    def __init__(self, port: int, context: ssl.SSLContext = CLIENT) -> None:
        self.loop = asyncio.get_running_loop()
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.received = bytearray()

    async def shake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                await self.flush()
                return
            except ssl.SSLWantReadError:
                await self.flush()
                await self.receive()

    async def flush(self) -> None:
        await self.loop.sock_sendall(self.sock, self.outgoing.read())

    async def receive(self) -> None:
        data = await self.loop.sock_recv(self.sock, 65536)
        if not data:
            raise ConnectionResetError
        self.incoming.write(data)

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await self.flush()

    async def read(self, size: int) -> bytes:
        while len(self.received) < size:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self.receive()
                continue
            if not data:
                raise ConnectionResetError
            self.received += data
        found = bytes(self.received[:size])
        del self.received[:size]
        return found


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("size", [1, 1000, 300_000, 3 * MIB])
def test_frames_of_every_size_come_back(size: int) -> None:
    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port)
        await caller.shake()
        body = random.Random(size).randbytes(size)
        for _ in range(3):
            await caller.send(frame(body))
            assert await caller.read(size + 4) == frame(body)
        assert echo.principals == ["User:CN=alice"] * 3

    serve(check)


def test_many_small_frames_in_one_record_are_all_answered() -> None:
    """They fill the receive buffer several times, and epoll says nothing of what is left inside."""

    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port)
        await caller.shake()
        frames = b"".join(frame(b"%d" % number) for number in range(5_000))
        await caller.send(frames)
        assert await caller.read(len(frames)) == frames

    serve(check)


def test_a_request_that_comes_with_the_last_message_of_the_handshake_is_answered() -> None:
    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port)
        with pytest.raises(ssl.SSLWantReadError):
            caller.tls.do_handshake()
        await caller.flush()
        while True:
            await caller.receive()
            try:
                caller.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        await caller.send(frame(b"hello"))  # together with the client's last word
        assert await caller.read(9) == frame(b"hello")

    serve(check)


def test_a_certificate_that_no_rule_fits_is_turned_away() -> None:
    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port)
        await caller.shake()
        await caller.send(frame(b"hello"))
        with pytest.raises(OSError):
            await caller.read(1)
        assert (echo.principals, connections.traffic_of("SSL").failed_handshakes) == ([], 1)

    serve(check, Guard(rules="RULE:^CN=bob$/bob/"))


@pytest.mark.parametrize(
    "hello", [frame(b"\0\x12\0\3" + b"\0" * 20), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0" + b"\xff" * 700]
)
def test_a_client_without_tls_is_refused_at_once(hello: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(hello)
            await until(lambda: connections.traffic_of("SSL").closed == 1)
        assert connections.traffic_of("SSL").failed_handshakes == 1
        assert connections.per_host == {}
        assert "on listener SSL (handshake-failed): " in caplog.text

    serve(check)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\0\x01"])
def test_half_a_handshake_is_closed_after_ten_seconds(said: bytes) -> None:
    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(said)
            await until(lambda: len(connections.connections) == 1)
            began = loop.time()
            patient = Caller(listener.port)  # no other connection waits for it
            await patient.shake()
            assert loop.time() - began < 1
            await until(lambda: connections.traffic_of("SSL").closed == 1, pause=1.0)
            assert 9 <= loop.time() - began <= 11

    serve(check)


def test_five_bytes_of_a_handshake_make_no_tls_object() -> None:
    """OpenSSL takes 50 KB to look at them."""

    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(b"\x16\x03\x01\x02\0")
            await until(lambda: any(begun(each).incoming.pending == 5 for each in connections.connections))
            (connection,) = connections.connections
            assert begun(connection).tls is None
        patient = Caller(listener.port)
        await patient.shake()

    serve(check)


def begun(connection: Connection) -> TlsTransport:
    assert isinstance(connection.transport, TlsTransport)
    return connection.transport


def test_more_half_open_handshakes_than_are_allowed_close_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshake, "HALF_OPEN_MAX", 3)

    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(5)]
        await until(lambda: connections.traffic_of("SSL").opened == 5)
        assert connections.traffic_of("SSL").open == 3
        for client in clients:
            client.close()
        await until(lambda: connections.traffic_of("SSL").open == 0)

    serve(check)


def test_a_handshake_of_too_many_bytes_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_BYTES_MAX", 100)

    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port)
        with pytest.raises(OSError):
            await caller.shake()
        assert connections.traffic_of("SSL").failed_handshakes == 1

    serve(check)


def test_a_missing_certificate_is_refused_where_one_is_required() -> None:
    required = server_context(keys(BROKER, ssl_client_auth="required")).context
    nameless = client_context(TlsKeys({"ssl.truststore.certificates": AUTHORITY.chain_pem})).context

    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port, nameless)
        with pytest.raises(OSError):
            await caller.shake()
            await caller.send(frame(b"x"))
            await caller.read(1)
        assert (echo.principals, connections.traffic_of("SSL").failed_handshakes) == ([], 1)
        alice = Caller(listener.port)
        await alice.shake()
        await alice.send(frame(b"x"))
        assert await alice.read(5) == frame(b"x")

    serve(check, Guard(required))


def test_a_connection_closed_during_the_handshake_leaves_nothing_behind() -> None:
    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        caller = Caller(listener.port)
        with pytest.raises(ssl.SSLWantReadError):
            caller.tls.do_handshake()
        await caller.flush()
        caller.sock.close()
        await until(lambda: connections.traffic_of("SSL").closed == 1)
        assert connections._handshakes._under_way == {}
        assert connections.per_host == {}

    serve(check)


# ---- a broker that connects


def test_a_peer_checks_the_name_of_whom_it_reaches() -> None:
    async def check(connections: SocketServer, listener: Acceptor, echo: Echo) -> None:
        tls = OutgoingTls(TlsHandshakes(), lambda: CLIENT)
        peer = BrokerConnection("127.0.0.2", listener.port, "broker-1", connections.poller, tls=tls)
        with pytest.raises(PeerError, match=r"IP address mismatch, certificate is not valid for '127.0.0.2'"):
            await peer._open()
        assert not peer.is_connected

    async def on_all(connections: SocketServer, _: Acceptor, echo: Echo) -> None:
        listener = Acceptor("SSL", "0.0.0.0", 0, connections)
        listener.start()
        try:
            await check(connections, listener, echo)
        finally:
            listener.close()

    serve(on_all)


def test_a_peer_whose_other_side_speaks_no_tls_gives_up_in_time() -> None:
    async def main() -> None:
        deaf = socket.create_server(("127.0.0.1", 0))
        tls = OutgoingTls(TlsHandshakes(), lambda: CLIENT)
        peer = BrokerConnection("127.0.0.1", deaf.getsockname()[1], "broker-1", poller, connect_ms=2_000, tls=tls)
        began = asyncio.get_running_loop().time()
        with pytest.raises(PeerError, match="cannot be reached in time"):
            await peer._open()
        assert asyncio.get_running_loop().time() - began < 3
        peer.close()
        deaf.close()

    poller = Poller()
    virtual_time.run(main(), poller)
