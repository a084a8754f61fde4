"""Requests that never end, in virtual time: uvicorn's protocol on a transport of our own."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from ottla.monitor.http.limits import ANSWER_SECONDS_MAX, KEEP_ALIVE_SECONDS, REQUEST_SECONDS_MAX, LimitedProtocol
from virtual_time import run

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed_at: float | None = None
        self.protocol: LimitedProtocol | None = None

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


async def never_answering(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(10_000)


def play(scene: Callable[[LimitedProtocol, Transport], Any], app: Any = answering) -> tuple[float | None, bytes]:
    """Seconds until the connection ended, None if it is still open, and what was written."""

    async def main() -> tuple[float | None, bytes]:
        config = Config(
            app, http=LimitedProtocol, ws="none", lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_SECONDS
        )
        config.load()
        protocol = LimitedProtocol(config=config, server_state=ServerState(), app_state={})
        transport = Transport()
        transport.protocol = protocol
        begin = asyncio.get_running_loop().time()
        protocol.connection_made(transport)
        await scene(protocol, transport)
        return (None if transport.closed_at is None else transport.closed_at - begin), transport.written

    return run(main())


async def drip(protocol: LimitedProtocol, transport: Transport, data: bytes) -> None:
    """A byte a second, until somebody has enough."""
    for place in range(len(data)):
        if transport.is_closing():
            return
        protocol.data_received(data[place : place + 1])
        await asyncio.sleep(1)


def test_who_says_nothing_is_sent_away() -> None:
    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        await asyncio.sleep(60)

    ended, written = play(scene)
    assert ended == REQUEST_SECONDS_MAX
    assert written.startswith(b"HTTP/1.1 408 ")


def test_headers_that_drip_end_after_ten_seconds() -> None:
    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        await drip(protocol, transport, GET)

    ended, written = play(scene)
    assert ended == REQUEST_SECONDS_MAX
    assert b"did not come to its end" in written


def test_a_body_that_drips_ends_after_ten_seconds() -> None:
    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        await asyncio.sleep(5)
        protocol.data_received(POST)
        await drip(protocol, transport, b"012345678")

    ended, written = play(scene)
    assert ended == REQUEST_SECONDS_MAX
    assert written.startswith(b"HTTP/1.1 408 ")


def test_the_second_request_has_ten_seconds_from_its_first_byte() -> None:
    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        protocol.data_received(GET)
        await asyncio.sleep(20)
        assert not transport.is_closing()
        await drip(protocol, transport, GET)

    ended, written = play(scene)
    assert ended == 20 + REQUEST_SECONDS_MAX
    assert written.count(b"HTTP/1.1 200") == 1
    assert written.count(b"HTTP/1.1 408") == 1


def test_whole_requests_are_answered_and_idle_connections_end_later() -> None:
    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        for _ in range(3):
            protocol.data_received(GET)
            await asyncio.sleep(15)
        protocol.data_received(POST + b"0123456789")
        await asyncio.sleep(60)

    ended, written = play(scene)
    assert ended == 45 + KEEP_ALIVE_SECONDS
    assert written.count(b"HTTP/1.1 200") == 4


def test_the_rest_of_a_body_that_nobody_wants_has_an_end_too() -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        protocol.data_received(POST)
        await asyncio.sleep(0.1)
        await drip(protocol, transport, b"012345678")
        await asyncio.sleep(60)

    ended, written = play(scene, refusing)
    assert ended is not None
    assert ended <= 0.2 + REQUEST_SECONDS_MAX
    assert written.startswith(b"HTTP/1.1 413")


def test_an_answer_that_does_not_come_ends_the_connection() -> None:
    async def scene(protocol: LimitedProtocol, transport: Transport) -> None:
        protocol.data_received(GET)
        await asyncio.sleep(200)

    assert play(scene, never_answering)[0] == ANSWER_SECONDS_MAX
