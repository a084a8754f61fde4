"""A request must come as a whole within seconds; whoever says nothing is not waited for. In virtual time."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.server import ServerState

import virtual_time
from ottla.console.serving import listen
from ottla.console.slow_requests import TAKING_SECONDS, WHOLE_REQUEST_SECONDS, PromptProtocol

HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"


class Wire(asyncio.Transport):
    """The server's end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed_s: float | None = None
        self.waiting_bytes = 0

    def abort(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed_s = self.closed_s or asyncio.get_running_loop().time()

    def is_closing(self) -> bool:
        return self.closed_s is not None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers slowly, which is nobody's fault but ours."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(3 * WHOLE_REQUEST_SECONDS)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def connect() -> tuple[PromptProtocol, Wire]:
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    protocol = PromptProtocol(config, ServerState(), {})
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


def seconds_until_closed(*pieces: bytes, pause: float = 1.0) -> tuple[float | None, bytes]:
    async def main() -> tuple[float | None, bytes]:
        began = asyncio.get_running_loop().time()
        protocol, wire = connect()
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(pause)
            if wire.is_closing():
                break
        await asyncio.sleep(2 * WHOLE_REQUEST_SECONDS)
        return None if wire.closed_s is None else wire.closed_s - began, wire.sent

    return virtual_time.run(main())


def test_who_connects_and_says_nothing_is_closed() -> None:
    closed, sent = seconds_until_closed()
    assert closed == WHOLE_REQUEST_SECONDS
    assert b" 408 " in sent


def test_half_a_head_is_not_waited_for() -> None:
    closed, _ = seconds_until_closed(HEAD[:20])
    assert closed == WHOLE_REQUEST_SECONDS


def test_a_body_that_trickles_in_has_no_more_time_than_any_other() -> None:
    closed, sent = seconds_until_closed(HEAD, *([b"x"] * 9), pause=2.0)
    assert closed == WHOLE_REQUEST_SECONDS
    assert b" 408 " in sent


def test_our_own_slowness_is_not_the_callers() -> None:
    closed, sent = seconds_until_closed(HEAD + b"0123456789")
    assert closed is None
    assert sent == b""


def test_the_words_are_as_long_as_they_say() -> None:
    _, sent = seconds_until_closed()
    head, _, body = sent.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_who_takes_nothing_of_an_answer_is_closed_and_who_is_slow_is_not() -> None:
    async def main() -> None:
        protocol, wire = connect()
        protocol.data_received(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
        wire.waiting_bytes = 1_000_000
        protocol.pause_writing()
        for _ in range(5):
            wire.waiting_bytes -= 10
            await asyncio.sleep(TAKING_SECONDS)
            assert not wire.is_closing()
        protocol.resume_writing()
        assert protocol.taking is None
        protocol.pause_writing()
        await asyncio.sleep(1.1 * TAKING_SECONDS)
        assert wire.is_closing()

    virtual_time.run(main())


def test_answers_do_not_wait_for_their_bodies() -> None:
    """asyncio switches Nagle's algorithm off only for sockets that name their protocol."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
