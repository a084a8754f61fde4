"""The fast path responds like the normal path, and leaves irregular requests to it."""

import asyncio
from typing import Any

import pytest
from tests.unit.registry.nodes import Node, record
from tests.virtual_time import run
from uvicorn import Config
from uvicorn.server import ServerState

from ottla.registry.http.fast_path import FastPath, fast_path_protocol, read_scope
from ottla.web.connections import REQUEST_TIMEOUT_SECONDS

HOST = b"host: 127.0.0.1:8081\r\n"
PLAIN = b"GET /schemas/ids/1 HTTP/1.1\r\n" + HOST + b"\r\n"
ODD = [
    PLAIN.replace(b"GET", b"POST"),
    PLAIN.replace(b"GET ", b"GET  "),
    PLAIN.replace(b"1.1", b"1.0"),
    PLAIN.replace(b"/schemas", b"schemas"),
    PLAIN.replace(b"/ids/", b"/i ds/"),
    PLAIN.replace(b"/ids/1", b"/ids/1#x"),
    PLAIN.replace(b"/ids/1", b"/ids/\xff"),
    PLAIN.replace(b"ids/1", b"ids/1?format=serialized"),
    PLAIN.replace(HOST, b""),
    PLAIN.replace(HOST, HOST + HOST),
    PLAIN.replace(HOST, HOST + b"content-length: 5\r\n"),
    PLAIN.replace(HOST, HOST + b"Transfer-Encoding: chunked\r\n"),
    PLAIN.replace(HOST, HOST + b"connection: close\r\n"),
    PLAIN.replace(HOST, HOST + b"connection: upgrade\r\n"),
    PLAIN.replace(HOST, HOST + b"expect: 100-continue\r\n"),
    PLAIN.replace(HOST, HOST + b" folded: x\r\n"),
    PLAIN.replace(HOST, HOST + b"a: b\nc: d\r\n"),
    PLAIN.replace(HOST, HOST + b"nothing\r\n"),
    PLAIN.replace(HOST, HOST + b"a b: c\r\n"),
    PLAIN.replace(HOST, HOST + b"a: \x00\r\n"),
    PLAIN + PLAIN,
]


@pytest.mark.parametrize("request_bytes", ODD)
def test_irregular_requests_take_the_normal_path(request_bytes: bytes) -> None:
    assert read_scope(request_bytes) is None


def test_simple_requests_are_parsed() -> None:
    scope = read_scope(
        b"GET /a%2Fb?x=1&y HTTP/1.1\r\nHost: h\r\nX-Thing:  some value \r\nConnection: Keep-Alive\r\n\r\n"
    )
    assert scope is not None
    assert (scope["raw_path"], scope["query_string"]) == (b"/a%2Fb", b"x=1&y")
    assert scope["headers"] == [(b"host", b"h"), (b"x-thing", b"some value"), (b"connection", b"Keep-Alive")]


def test_an_answer_is_known_until_something_changes() -> None:
    async def main() -> None:
        node = Node()
        quick = FastPath(node.app, node.registry.state)
        await node.registry.catch_up()
        unknown = quick.answer(PLAIN)
        assert unknown is not None
        assert unknown.startswith(b"HTTP/1.1 404 Not Found\r\n\0content-type: ")
        await node.register("s", record("a"))
        found = quick.answer(PLAIN)
        assert found is not None
        assert found.endswith(b'\r\n\r\n{"schema":"' + record("a").replace('"', '\\"').encode() + b'"}')
        assert quick.answer(PLAIN) is found
        await node.ask("DELETE", "/subjects/s")
        await node.ask("DELETE", "/subjects/s?permanent=true")
        assert quick.answer(PLAIN) == unknown

    run(main())


def test_hosts_are_looked_at() -> None:
    async def main() -> None:
        node = Node()
        answer = FastPath(node.app, node.registry.state).answer(PLAIN.replace(b"127.0.0.1", b"evil.example"))
        assert answer is not None
        assert answer.startswith(b"HTTP/1.1 403 ")

    run(main())


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def test_both_ways_on_one_connection() -> None:
    """Whole, in pieces, two at once, whole again: all are answered in order, and no timer closes the connection."""

    async def main() -> None:
        node = Node()
        await node.register("s", '"int"')
        quick = fast_path_protocol(FastPath(node.app, node.registry.state))
        config = Config(node.app, http=quick, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        protocol = quick(config, state, {})
        transport = Transport()
        protocol.connection_made(transport)
        protocol.data_received(PLAIN)
        assert transport.written.count(b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: ") == 1
        for piece in (PLAIN[:20], PLAIN[20:], PLAIN + PLAIN, PLAIN):
            protocol.data_received(piece)
            await asyncio.sleep(0.1)
        assert transport.written.count(b"HTTP/1.1 200") == 5
        assert transport.written.count(b'{"schema":"\\"int\\""}') == 5
        await asyncio.sleep(config.timeout_keep_alive / 2)
        protocol.data_received(PLAIN)
        await asyncio.sleep(config.timeout_keep_alive - 0.1)
        assert not transport.is_closed
        protocol.data_received(PLAIN[:20])
        await asyncio.sleep(REQUEST_TIMEOUT_SECONDS + 1)
        assert transport.is_closed
        assert transport.written.count(b"HTTP/1.1 408 ") == 1

    run(main())


def test_a_request_with_two_lengths_got_two_responses() -> None:
    async def main() -> None:
        node = Node()
        kind = fast_path_protocol(FastPath(node.app, node.registry.state))
        config = Config(node.app, http=kind, ws="none", lifespan="off", log_config=None)
        config.load()
        protocol = kind(config=config, server_state=ServerState(), app_state={})
        transport = Transport()
        protocol.connection_made(transport)
        both = HOST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n"
        protocol.data_received(PLAIN.replace(b"GET", b"POST").replace(HOST, both) + b"0\r\n\r\n" + PLAIN)
        await asyncio.sleep(1)
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        assert transport.written.count(b"HTTP/1.1 ") == 1
        assert transport.is_closing()

    run(main())
