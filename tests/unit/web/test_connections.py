"""HTTP timeouts in virtual time: uvicorn's protocol on a fake transport."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.virtual_time import run
from uvicorn import Config
from uvicorn.server import ServerState

from ottla.web.connections import (
    REQUEST_TIMEOUT_SECONDS,
    TIMEOUT_RESPONSE,
    WRITE_TIMEOUT_SECONDS,
    TimeoutProtocol,
)
from ottla.web.server import listen

KEEP_ALIVE_SECONDS = 30
GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed_at: float | None = None
        self.waiting_bytes = 0
        self.protocol: TimeoutProtocol | None = None

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        if self.closed_at is None:
            loop = asyncio.get_running_loop()
            self.closed_at = loop.time()
            assert self.protocol is not None
            loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed_at is not None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def answering(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    while message["type"] == "http.request" and message.get("more_body"):
        message = await receive()
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Responds slowly: no timeout of the client applies."""
    await asyncio.sleep(10 * REQUEST_TIMEOUT_SECONDS)
    await answering(scope, receive, send)


def connect(
    app: Any = answering, state: ServerState | None = None, limit: int | None = None
) -> tuple[TimeoutProtocol, Transport]:
    config = Config(
        app,
        http=TimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        limit_concurrency=limit,
    )
    config.load()
    protocol = TimeoutProtocol(config=config, server_state=state or ServerState(), app_state={})
    transport = Transport()
    transport.protocol = protocol
    protocol.connection_made(transport)
    return protocol, transport


def play(scene: Callable[[TimeoutProtocol, Transport], Any], app: Any = answering) -> tuple[float | None, bytes]:
    """Seconds until the connection ended, None if it is still open, and what was written."""

    async def main() -> tuple[float | None, bytes]:
        begin = asyncio.get_running_loop().time()
        protocol, transport = connect(app)
        await scene(protocol, transport)
        return (None if transport.closed_at is None else transport.closed_at - begin), transport.written

    return run(main())


async def drip(protocol: TimeoutProtocol, transport: Transport, data: bytes) -> None:
    """One byte a second, until the connection is closed."""
    for place in range(len(data)):
        if transport.is_closing():
            return
        protocol.data_received(data[place : place + 1])
        await asyncio.sleep(1)


def test_a_silent_connection_is_closed() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        await asyncio.sleep(60)

    ended, written = play(scene)
    assert ended == REQUEST_TIMEOUT_SECONDS
    assert written.startswith(b"HTTP/1.1 408 ")


def test_headers_that_drip_end_after_ten_seconds() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        await drip(protocol, transport, GET)

    ended, written = play(scene)
    assert ended == REQUEST_TIMEOUT_SECONDS
    assert b"did not come to its end" in written


def test_a_body_that_drips_ends_after_ten_seconds() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        await asyncio.sleep(5)
        protocol.data_received(POST)
        await drip(protocol, transport, b"012345678")

    ended, written = play(scene)
    assert ended == REQUEST_TIMEOUT_SECONDS
    assert written.startswith(b"HTTP/1.1 408 ")


def test_the_second_request_has_ten_seconds_from_its_first_byte() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        protocol.data_received(GET)
        await asyncio.sleep(20)
        assert not transport.is_closing()
        await drip(protocol, transport, GET)

    ended, written = play(scene)
    assert ended == 20 + REQUEST_TIMEOUT_SECONDS
    assert written.count(b"HTTP/1.1 200") == 1
    assert written.count(b"HTTP/1.1 408") == 1


def test_whole_requests_are_answered_and_idle_connections_end_later() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        for _ in range(3):
            protocol.data_received(GET)
            await asyncio.sleep(15)
        protocol.data_received(POST + b"0123456789")
        await asyncio.sleep(60)

    ended, written = play(scene)
    assert ended == 45 + KEEP_ALIVE_SECONDS
    assert written.count(b"HTTP/1.1 200") == 4


def test_the_rest_of_an_unread_body_is_limited_too() -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        protocol.data_received(POST)
        await asyncio.sleep(0.1)
        await drip(protocol, transport, b"012345678")
        await asyncio.sleep(60)

    ended, written = play(scene, refusing)
    assert ended is not None
    assert ended <= 0.2 + REQUEST_TIMEOUT_SECONDS
    assert written.startswith(b"HTTP/1.1 413")


def test_slow_processing_does_not_time_out() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        protocol.data_received(GET)
        await asyncio.sleep(9 * REQUEST_TIMEOUT_SECONDS)
        assert transport.written == b""
        assert not transport.is_closing()
        await asyncio.sleep(2 * REQUEST_TIMEOUT_SECONDS)

    assert play(scene, slow)[1].startswith(b"HTTP/1.1 200")


def test_a_client_that_reads_nothing_is_disconnected_and_a_slow_one_is_not() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        protocol.data_received(GET)
        transport.waiting_bytes = 1_000_000
        protocol.pause_writing()
        for _ in range(5):
            transport.waiting_bytes -= 10
            await asyncio.sleep(WRITE_TIMEOUT_SECONDS)
            assert not transport.is_closing()
        protocol.resume_writing()
        protocol.pause_writing()
        await asyncio.sleep(1.1 * WRITE_TIMEOUT_SECONDS)
        assert transport.is_closing()

    play(scene, slow)


def test_the_unread_end_of_a_response_is_not_waited_for() -> None:
    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        transport.waiting_bytes = 1_000
        protocol.data_received(GET)
        await asyncio.sleep(60)

    assert play(scene)[0] == WRITE_TIMEOUT_SECONDS


def test_half_open_connections_are_limited_and_the_oldest_is_closed_first() -> None:
    async def main() -> None:
        state = ServerState()
        silent = []
        for number in range(30):
            silent.append(connect(state=state, limit=20))
            if number % 2:
                silent[-1][0].data_received(POST)  # with half a request
            await asyncio.sleep(0.01)
        gone = [transport.is_closing() for _, transport in silent]
        assert gone == [True] * 20 + [False] * 10
        assert all(b" 408 " in transport.written for _, transport in silent[:20])
        protocol, transport = connect(state=state, limit=20)
        protocol.data_received(GET)
        await asyncio.sleep(0.01)
        assert transport.written.startswith(b"HTTP/1.1 200")

    run(main())


def test_when_hardly_any_is_left_the_longest_idle_connection_gives_way() -> None:
    async def main() -> None:
        state = ServerState()
        idle = []
        for _ in range(25):
            idle.append(connect(state=state, limit=20))
            idle[-1][0].data_received(GET)
            await asyncio.sleep(0.01)
        assert [transport.is_closing() for _, transport in idle] == [True] * 7 + [False] * 18
        assert all(transport.written.startswith(b"HTTP/1.1 200") for _, transport in idle)

    run(main())


def test_the_content_length_of_the_timeout_response_is_right() -> None:
    head, _, body = TIMEOUT_RESPONSE.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["error"] == "TOO_LATE"


def test_answers_do_not_wait_for_their_bodies() -> None:
    """asyncio switches Nagle's algorithm off only for sockets that name their protocol."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


BOTH = b"POST / HTTP/1.1\r\nhost: localhost\r\n%b\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        BOTH % b"content-length: 5\r\ntransfer-encoding: chunked",
        BOTH % b"Transfer-Encoding: Chunked\r\nContent-Length: 48",
        GET + BOTH % b"content-length: 0\r\ntransfer-encoding: chunked",  # the second on its connection
        BOTH.replace(b"/ HTTP/1.1", b"/ HTTP/1.0", 1) % b"connection: keep-alive\r\ntransfer-encoding: chunked",
    ],
)
def test_a_request_with_two_lengths_got_two_responses(request_bytes: bytes) -> None:
    """RFC 9112, section 6.1: a proxy before us may see other requests in the same bytes (request smuggling)."""

    async def scene(protocol: TimeoutProtocol, transport: Transport) -> None:
        protocol.data_received(request_bytes)
        await asyncio.sleep(1)

    ended, written = play(scene)
    good, _, refused = written.rpartition(b"HTTP/1.1 400 ")
    assert good.count(b"HTTP/1.1 200 ") == request_bytes.startswith(GET)
    assert b"HTTP/1.1" not in refused
    assert ended == 0
