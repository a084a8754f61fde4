"""Peers over real sockets of the loopback: against a listener of our own, and against servers that misbehave."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from tests import virtual_time

from ottla.network import peer as peer_module
from ottla.network import peer_transport
from ottla.network.close_reason import CloseReason
from ottla.network.connection import Connection, PendingReply
from ottla.network.listener_limits import ConnectionLimits
from ottla.network.peer import BrokerConnection, PeerError
from ottla.network.poller import Poller
from ottla.network.socket_server import Acceptor, SocketServer
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import decode
from ottla.protocol.headers import decode_request_header, encode_response_frame
from ottla.protocol.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.inter_broker import EnvelopeRequest, EnvelopeResponse

API_VERSIONS = 18
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Server:
    """Answers what it has been told to answer; None parks the request for good."""

    def __init__(self) -> None:
        self.versions = {1: (4, 18), 12: (0, 4), 58: (0, 0)}
        self.answers: dict[int, Callable[[Any, int], Any]] = {}
        self.asked: list[Any] = []
        self.software = ""
        self.parked: list[tuple[PendingReply, int, int, int]] = []

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        header = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        request = decode(ALL_APIS[key].request, version, frame, header.body_position)[0]
        if key == API_VERSIONS:
            assert isinstance(request, ApiVersionsRequest)
            self.software = request.client_software_name
            answer: Any = ApiVersionsResponse(
                api_keys=[ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.versions.items()]
            )
        else:
            self.asked.append((version, request))
            answer = self.answers[key](request, version)
        if answer is None:
            self.parked.append((connection.reserve_reply(overlaps=True), key, version, header.correlation_id))
        else:
            connection.reply(encode_response_frame(key, version, header.correlation_id, answer))
        return True


Play = Callable[[Server, BrokerConnection, SocketServer], Awaitable[None]]


def run(play: Play) -> None:
    poller = Poller()

    async def main() -> None:
        server = Server()
        connections = SocketServer(ConnectionLimits(frame_bytes_max=200 << 20), server, poller)
        listener = Acceptor("PLAINTEXT", "127.0.0.1", 0, connections)
        listener.start()
        peer = BrokerConnection("127.0.0.1", listener.port, "broker-1-test", poller)
        try:
            await play(server, peer, connections)
        finally:
            peer.close()
            listener.close()
            await connections.drain(0)

    on_loop(poller, main)


def on_loop(poller: Poller, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    virtual_time.run(main(), poller)


def against(
    serve: Callable[[socket.socket], Awaitable[None]], play: Callable[[BrokerConnection], Awaitable[None]]
) -> None:
    """A play against a server that is nothing but a function of its socket."""
    poller = Poller()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)

            async def accept() -> None:
                while True:
                    sock, _ = await loop.sock_accept(listening)
                    sock.setblocking(False)
                    with sock, contextlib.suppress(OSError):
                        await serve(sock)

            task = asyncio.ensure_future(accept())
            peer = BrokerConnection("127.0.0.1", listening.getsockname()[1], "broker-1", poller)
            try:
                await play(peer)
            finally:
                peer.close()
                task.cancel()

    on_loop(poller, main)


async def read_frame(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        some = await loop.sock_recv(sock, 65536)
        if not some:
            raise ConnectionResetError
        data += some
    return data[4:]


async def shake_hands(sock: socket.socket) -> None:
    """Read ApiVersions and answer it: Heartbeat v0-4 is served."""
    header = decode_request_header(memoryview(await read_frame(sock)))
    answer = ApiVersionsResponse(api_keys=[ApiVersion(api_key=12, min_version=0, max_version=4)])
    frame = encode_response_frame(API_VERSIONS, header.api_version, header.correlation_id, answer)
    await asyncio.get_running_loop().sock_sendall(sock, frame)


def beat(peer: BrokerConnection, timeout_ms: int = 5000) -> Awaitable[HeartbeatResponse]:
    return peer.call(HEARTBEAT, HeartbeatResponse, timeout_ms=timeout_ms)


def test_a_call_sends_the_client_id_and_uses_the_highest_common_version() -> None:
    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        server.versions[12] = (0, 3)
        server.answers[12] = lambda _request, _version: HeartbeatResponse(error_code=27)
        assert (await beat(peer)).error_code == 27
        assert server.software == "ottla-broker"
        assert server.asked == [(3, HEARTBEAT)]
        await peer.call(HEARTBEAT, HeartbeatResponse, 1)
        assert server.asked[1][0] == 1
        assert peer.connections == 1
        assert repr(peer) == f"<BrokerConnection {peer.address} ready, 0 in flight, 0 bytes unsent>"

    run(play)


def test_an_unsupported_api_fails_without_a_request() -> None:
    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        del server.versions[12]
        with pytest.raises(PeerError, match="does not support Heartbeat") as caught:
            await beat(peer)
        assert not caught.value.is_refused
        assert not caught.value.is_sent
        server.versions[12] = (90, 95)
        peer.close()

    run(play)


def test_answers_find_their_calls_when_many_are_under_way() -> None:
    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        server.answers[12] = lambda request, _: HeartbeatResponse(error_code=request.generation_id)
        server.answers[58] = lambda request, _: EnvelopeResponse(response_data=bytes(request.request_data))

        async def ask(number: int) -> None:
            if number % 3:
                asked = HeartbeatRequest(group_id="g", generation_id=number, member_id="m")
                assert (await peer.call(asked, HeartbeatResponse)).error_code == number
            else:
                data = bytes([number & 255]) * (number * 997)
                envelope = EnvelopeRequest(request_data=data, client_host_address=b"1234")
                assert (await peer.call(envelope, EnvelopeResponse)).response_data == data

        await asyncio.gather(*(ask(number) for number in range(300)))
        assert peer.connections == 1

    run(play)


def test_a_call_waits_while_the_other_side_does_not_read() -> None:
    """20 MB of requests to a peer that defers the first: unsent bytes stay bounded, all get responses in the end."""

    async def play(server: Server, peer: BrokerConnection, connections: SocketServer) -> None:
        server.answers[58] = lambda request, _: EnvelopeResponse(response_data=bytes(request.request_data[:10]))
        server.answers[12] = lambda *_: None
        envelope = EnvelopeRequest(request_data=b"x" * 100_000, client_host_address=b"1234")
        await peer.call(envelope, EnvelopeResponse)
        first = asyncio.ensure_future(beat(peer))
        await asyncio.sleep(0.01)
        (connection,) = connections.connections
        connections.poller.interest(connection.descriptor, False, False)
        calls = [asyncio.ensure_future(peer.call(envelope, EnvelopeResponse)) for _ in range(200)]
        await asyncio.sleep(0.05)
        assert peer._unsent_bytes <= peer_module.UNSENT_BYTES_MAX + 100_100
        assert peer.in_flight_count < 150
        connections.poller.interest(connection.descriptor, True, False)
        place, key, version, correlation_id = server.parked[0]
        place.complete(encode_response_frame(key, version, correlation_id, HeartbeatResponse()))
        await first
        assert all(answer.response_data == b"x" * 10 for answer in await asyncio.gather(*calls))

    run(play)


def test_a_refused_connection_fails_at_once() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        peer = BrokerConnection("127.0.0.1", port, "broker-1", poller)
        started = asyncio.get_running_loop().time()
        with pytest.raises(PeerError) as caught:
            await beat(peer)
        assert caught.value.is_refused
        assert not caught.value.is_sent
        assert asyncio.get_running_loop().time() - started < 0.5
        with pytest.raises(PeerError) as again:
            await asyncio.gather(beat(peer), beat(peer))
        assert again.value.is_refused

    poller = Poller()
    on_loop(poller, main)


def test_an_unknown_host_is_not_taken_for_a_dead_broker() -> None:
    async def main() -> None:
        peer = BrokerConnection("no-such-host.invalid", 9092, "broker-1", poller)
        with pytest.raises(PeerError, match="cannot connect") as caught:
            await beat(peer)
        assert not caught.value.is_refused

    poller = Poller()
    on_loop(poller, main)


@pytest.mark.parametrize("how", ["reset", "closed", "reset in the middle of an answer", "closed before a word"])
def test_a_lost_connection_fails_all_waiting_calls(how: str) -> None:
    async def serve(sock: socket.socket) -> None:
        if how == "closed before a word":
            return
        await shake_hands(sock)
        await read_frame(sock)
        await asyncio.sleep(0.02)
        if how == "reset in the middle of an answer":
            await asyncio.get_running_loop().sock_sendall(sock, struct.pack(">ii", 1000, 2) + b"half")
            await asyncio.sleep(0.02)
        if how.startswith("reset"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def play(peer: BrokerConnection) -> None:
        problems = await asyncio.gather(*(beat(peer, 20_000) for _ in range(3)), return_exceptions=True)
        for problem in problems:
            assert isinstance(problem, PeerError)
            assert problem.is_refused
            assert problem.is_sent == (how != "closed before a word")
        assert not peer.is_connected

    against(serve, play)


def test_after_a_loss_the_next_call_connects_again_even_elsewhere() -> None:
    async def play(server: Server, peer: BrokerConnection, connections: SocketServer) -> None:
        server.answers[12] = lambda *_: HeartbeatResponse()
        await beat(peer)
        for connection in list(connections.connections):
            connection.abandon(CloseReason.IDLE)
        await asyncio.sleep(0.01)
        assert not peer.is_connected
        await beat(peer)
        assert peer.connections == 2
        moved = BrokerConnection("127.0.0.1", 1, "broker-1", connections.poller, lambda: ("127.0.0.1", peer.port))
        await beat(moved)
        assert moved.port == peer.port
        moved.close()

    run(play)


def test_a_call_that_is_late_gives_up_its_answer_but_not_the_connection() -> None:
    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        server.answers[12] = lambda request, _: None if request.generation_id else HeartbeatResponse(error_code=27)
        now = HeartbeatRequest(group_id="g", generation_id=0, member_id="m")
        late = asyncio.ensure_future(beat(peer, 10_000))
        hurried = asyncio.ensure_future(peer.call(HEARTBEAT, HeartbeatResponse, timeout_ms=10_000))
        while len(server.parked) < 2:
            await asyncio.sleep(0)
        place, key, version, correlation_id = server.parked[0]
        hurried.cancel()
        place.complete(encode_response_frame(key, version, correlation_id, HeartbeatResponse(error_code=1)))
        assert (await late).error_code == 1
        place, key, version, correlation_id = server.parked[1]
        place.complete(encode_response_frame(key, version, correlation_id, HeartbeatResponse(error_code=2)))
        assert (await peer.call(now, HeartbeatResponse)).error_code == 27
        assert peer.connections == 1

    run(play)


def test_a_silent_peer_is_disconnected_when_a_call_times_out() -> None:
    async def serve(sock: socket.socket) -> None:
        await shake_hands(sock)
        await asyncio.sleep(60)

    async def play(peer: BrokerConnection) -> None:
        patient = asyncio.ensure_future(beat(peer, 20_000))
        with pytest.raises(PeerError) as caught:
            await beat(peer, 100)
        assert caught.value.is_timeout
        assert not caught.value.is_refused
        with pytest.raises(PeerError, match="does not respond") as other:
            await patient
        assert other.value.is_timeout
        assert not other.value.is_refused
        assert not peer.is_connected

    against(serve, play)


def test_a_silent_peer_delays_a_call_no_longer_than_its_timeout() -> None:
    async def serve(_: socket.socket) -> None:
        await asyncio.sleep(60)

    async def play(peer: BrokerConnection) -> None:
        with pytest.raises(PeerError) as caught:
            await beat(peer, 50)
        assert caught.value.is_timeout

    against(serve, play)


def test_a_large_answer_comes_whole_and_its_records_are_views() -> None:
    records = random.Random(1).randbytes(50_000_000)

    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        partition = PartitionData(partition_index=0, high_watermark=5, records=records)
        server.answers[1] = lambda *_: FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
        answer = await peer.call(FetchRequest(max_wait_ms=0, min_bytes=1), FetchResponse)
        found = answer.responses[0].partitions[0].records
        assert isinstance(found, memoryview)
        assert found == records
        server.answers[12] = lambda *_: HeartbeatResponse(error_code=27)
        assert (await beat(peer)).error_code == 27
        peer.close()
        assert found == records, "they stay when the connection is gone"

    run(play)


def test_a_large_answer_without_records_is_decoded_beside_the_loop() -> None:
    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        server.answers[58] = lambda *_: EnvelopeResponse(response_data=b"y" * 3_000_000)
        envelope = EnvelopeRequest(request_data=b"", client_host_address=b"")
        answers = await asyncio.gather(*(peer.call(envelope, EnvelopeResponse) for _ in range(3)))
        assert all(answer.response_data == b"y" * 3_000_000 for answer in answers)

    run(play)


GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "huge size": struct.pack(">ii", 2**31 - 1, 2) + b"x" * 100,
    "negative size": struct.pack(">ii", -5, 2),
    "no room for a header": struct.pack(">ib", 1, 0),
    "wrong correlation id": struct.pack(">iibih", 11, 77, 0, 0, 0),
    "cut short": struct.pack(">iib", 5, 2, 0),
    "bad tags in the header": struct.pack(">ii", 9, 2) + b"\xff\xff\xff\xff\xff",
    "too many answers": struct.pack(">iibihb", 12, 2, 0, 0, 0, 0) * 2,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_an_invalid_response_closes_the_connection(name: str) -> None:
    async def serve(sock: socket.socket) -> None:
        await shake_hands(sock)
        await read_frame(sock)
        await asyncio.get_running_loop().sock_sendall(sock, GARBAGE[name])
        await asyncio.sleep(60)

    async def play(peer: BrokerConnection) -> None:
        if name == "too many answers":
            assert (await beat(peer)).error_code == 0
        else:
            with pytest.raises(PeerError, match="an invalid response") as caught:
                await beat(peer)
            assert not caught.value.is_refused
        await asyncio.sleep(0.01)
        assert not peer.is_connected

    against(serve, play)


def test_random_bytes_never_do_worse_than_a_failed_call() -> None:
    dice = random.Random(7)

    async def serve(sock: socket.socket) -> None:
        if dice.random() < 0.7:
            await shake_hands(sock)
        data = await read_frame(sock)
        answer = bytearray(
            struct.pack(">iibihb", 12, decode_request_header(memoryview(data)).correlation_id, 0, 0, 0, 0)
        )
        for _ in range(dice.randrange(1, 4)):
            answer[dice.randrange(len(answer))] = dice.randrange(256)
        await asyncio.get_running_loop().sock_sendall(sock, answer + dice.randbytes(dice.randrange(40)))

    async def play(peer: BrokerConnection) -> None:
        failed = 0
        for _ in range(300):
            try:
                await beat(peer, 2_000)
            except PeerError:
                failed += 1
        assert failed > 100
        assert peer.in_flight_count == 0

    against(serve, play)


def test_closing_fails_calls_in_flight_and_new_ones() -> None:
    async def play(server: Server, peer: BrokerConnection, _: SocketServer) -> None:
        server.answers[12] = lambda *_: None
        waiting = asyncio.ensure_future(beat(peer))
        await asyncio.sleep(0.01)
        peer.close()
        for call in (waiting, beat(peer)):
            with pytest.raises(PeerError) as caught:
                await call
            assert not caught.value.is_refused
        opening = BrokerConnection("127.0.0.1", peer.port, "broker-1", peer._poller)
        early = asyncio.ensure_future(beat(opening))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opening.close()
        with pytest.raises(PeerError, match="closed permanently"):
            await early

    run(play)


class Losing:
    """A poller that reports a hangup once for each connection, in the round in which data arrived."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self.is_broken = True

    def watch(self, descriptor: int, watched: Any) -> None:
        self._watched = watched
        self._poller.watch(descriptor, self)

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None:
        self._poller.interest(descriptor, readable, writable)

    def unwatch(self, descriptor: int) -> None:
        self._poller.unwatch(descriptor)

    def on_readable(self) -> None:
        self._watched.on_readable()
        if self.is_broken:
            self.is_broken = False
            self._watched.abandon(CloseReason.CONNECTION_LOST)

    def on_writable(self) -> None:
        self._watched.on_writable()

    def flush(self) -> None:
        pass

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        self._watched.abandon(reason, detail)


def test_a_connection_that_is_lost_while_it_is_made_is_not_taken_for_one() -> None:
    """The answer about versions came, and in the same round epoll said that the other side is gone."""

    async def play(server: Server, peer: BrokerConnection, connections: SocketServer) -> None:
        server.answers[12] = lambda request, version: HeartbeatResponse()
        unlucky = BrokerConnection(peer.host, peer.port, "broker-1-test", Losing(peer._poller))
        with pytest.raises(PeerError, match="was lost") as caught:
            await unlucky.call(HEARTBEAT, HeartbeatResponse)
        assert caught.value.is_refused
        assert (await unlucky.call(HEARTBEAT, HeartbeatResponse)).error_code == 0
        unlucky.close()

    run(play)


def test_whatever_goes_wrong_while_a_connection_is_made_the_next_one_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(server: Server, peer: BrokerConnection, connections: SocketServer) -> None:
        server.answers[12] = lambda request, version: HeartbeatResponse()

        async def fail(*_: object) -> socket.socket:
            raise ValueError("an unexpected error")

        with monkeypatch.context() as broken:
            broken.setattr(peer_transport, "connect_socket", fail)
            with pytest.raises(ValueError, match="an unexpected error"):
                await peer.call(HEARTBEAT, HeartbeatResponse)
        assert (await peer.call(HEARTBEAT, HeartbeatResponse)).error_code == 0

    run(play)
