"""A peer with authentication: before the first call, and again on a new connection before the login expires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.network.test_peer import Server, beat, on_loop

from ottla.network.listener_limits import ConnectionLimits
from ottla.network.peer import Authenticate, BrokerConnection, PeerError
from ottla.network.poller import Poller
from ottla.network.socket_server import Acceptor, SocketServer
from ottla.protocol.headers import encode_response_frame
from ottla.protocol.messages.credentials import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.messages.groups import HeartbeatResponse

HANDSHAKE, HEARTBEAT = 17, 12


class Login:
    """Counts the logins, each of which asks for something."""

    def __init__(self, lifetime_ms: int = 0, problem: Exception | None = None) -> None:
        self.count = 0
        self.lifetime_ms = lifetime_ms
        self.problem = problem

    async def log_in(self, peer: BrokerConnection) -> int:
        self.count += 1
        assert not peer.is_connected
        await peer.call_during_setup(SaslHandshakeRequest(mechanism="X"), SaslHandshakeResponse, 1)
        if self.problem is not None:
            raise self.problem
        return self.lifetime_ms


def run(log_in: Authenticate, play: Callable[[Server, BrokerConnection], Awaitable[None]]) -> None:
    poller = Poller()

    async def main() -> None:
        server = Server()
        server.versions[HANDSHAKE] = (0, 1)
        server.answers = {HANDSHAKE: lambda *_: SaslHandshakeResponse(), HEARTBEAT: lambda *_: HeartbeatResponse()}
        connections = SocketServer(ConnectionLimits(frame_bytes_max=1 << 20), server, poller)
        listener = Acceptor("X", "127.0.0.1", 0, connections)
        listener.start()
        peer = BrokerConnection("127.0.0.1", listener.port, "broker-1-test", poller, log_in=log_in)
        try:
            await play(server, peer)
        finally:
            peer.close()
            listener.close()
            await connections.drain(0)

    on_loop(poller, main)


def test_no_call_starts_before_the_login() -> None:
    login = Login()

    async def play(server: Server, peer: BrokerConnection) -> None:
        await asyncio.gather(*(beat(peer) for _ in range(5)))
        assert [type(request).__name__ for _, request in server.asked] == ["SaslHandshakeRequest"] + [
            "HeartbeatRequest"
        ] * 5
        assert login.count == peer.connections == 1

    run(login.log_in, play)


def test_a_failed_login_fails_the_call_and_is_retried() -> None:
    login = Login(problem=PeerError("the login failed"))

    async def play(server: Server, peer: BrokerConnection) -> None:
        with pytest.raises(PeerError, match="the login failed") as caught:
            await beat(peer)
        assert not caught.value.is_refused
        assert len(server.asked) == 1
        login.problem = None
        await beat(peer)
        assert login.count == 2

    run(login.log_in, play)


def test_before_a_login_is_over_another_connection_takes_its_place() -> None:
    login = Login(lifetime_ms=10_000)

    async def play(_: Server, peer: BrokerConnection) -> None:
        await beat(peer)
        await asyncio.sleep(8)
        await beat(peer)
        assert peer.connections == 1
        await asyncio.sleep(1)
        await asyncio.gather(beat(peer), beat(peer))
        assert login.count == peer.connections == 2

    run(login.log_in, play)


def test_what_is_under_way_is_answered_first() -> None:
    login = Login(lifetime_ms=10_000)

    async def play(server: Server, peer: BrokerConnection) -> None:
        server.answers[HEARTBEAT] = lambda *_: None
        early = asyncio.ensure_future(beat(peer, timeout_ms=60_000))
        await asyncio.sleep(9)
        late = asyncio.ensure_future(beat(peer, timeout_ms=60_000))
        await asyncio.sleep(1)
        assert peer.connections == 1
        server.answers[HEARTBEAT] = lambda *_: HeartbeatResponse()
        for place, key, version, correlation_id in server.parked:
            place.complete(encode_response_frame(key, version, correlation_id, HeartbeatResponse()))
        await asyncio.gather(early, late)
        assert peer.connections == 2

    run(login.log_in, play)


def test_what_takes_too_long_is_given_up() -> None:
    login = Login(lifetime_ms=10_000)

    async def play(server: Server, peer: BrokerConnection) -> None:
        server.answers[HEARTBEAT] = lambda *_: None
        early = asyncio.ensure_future(beat(peer, timeout_ms=60_000))
        await asyncio.sleep(9)
        server.answers[HEARTBEAT] = lambda *_: HeartbeatResponse()
        await beat(peer, timeout_ms=60_000)
        with pytest.raises(PeerError, match="about to expire") as caught:
            await early
        assert caught.value.is_sent
        assert not caught.value.is_refused

    run(login.log_in, play)
