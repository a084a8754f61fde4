"""TLS over asyncio's streams: who does the arithmetic of the handshake, and what becomes of bad ones. No sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests import virtual_time
from tests.certificates import Authority

from ottla.network import tls_streams
from ottla.network.tls_streams import TlsStream

LINE_BYTES_MAX = 1_000


class Here(ssl.SSLObject):
    """Says where its handshake is done."""

    is_worker = False
    steps = 0

    def do_handshake(self) -> None:
        assert Here.is_worker, "on the loop"
        Here.steps += 1
        super().do_handshake()


class Link:
    """A client in memory, and the streams of the server at the other end."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(authority.issue("broker").pem(folder / "key.pem"))
        self.server.sslobject_class = Here
        client = ssl.create_default_context(cadata=authority.chain_pem)
        self.from_server, self.to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.from_server, self.to_server, server_hostname="localhost")
        self.reader = asyncio.StreamReader()
        self.is_closed = False
        self.stream = TlsStream(self.reader, self, LINE_BYTES_MAX)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        run_in_executor = loop.run_in_executor

        def work(function: Callable[..., Any], *arguments: Any) -> Any:
            Here.is_worker = True
            try:
                return function(*arguments)
            finally:
                Here.is_worker = False

        loop.run_in_executor = lambda pool, *call: run_in_executor(pool, work, *call)  # type: ignore[method-assign]

    # ---- what the server writes to

    def write(self, data: bytes) -> None:
        if data:
            self.from_server.write(data)

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    # ---- the client

    def send(self) -> None:
        if self.to_server.pending:
            self.reader.feed_data(self.to_server.read())

    async def connect(self) -> None:
        while True:
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.send()
                await asyncio.sleep(0.01)
            else:
                self.send()
                return

    async def open(self) -> None:
        await asyncio.gather(self.stream.do_handshake(lambda: self.server, None), self.connect())

    def say(self, data: bytes) -> None:
        self.client.write(data)
        self.send()


def play(folder: Path, scene: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scene(Link(folder))

    virtual_time.run(whole())


def test_every_step_of_a_handshake_is_a_worker_s(tmp_path: Path) -> None:
    async def scene(link: Link) -> None:
        Here.steps = 0
        await link.open()
        assert Here.steps >= 2
        link.say(b"GET / HTTP/1.1\r\n\r\nbody")
        assert await link.stream.read(1) == b"G"
        assert await link.stream.readuntil(b"\r\n\r\n") == b"ET / HTTP/1.1\r\n\r\n"
        assert await link.stream.readexactly(4) == b"body"
        link.stream.write(b"x" * 100_000)
        received = b""
        while len(received) < 100_000:
            received += link.client.read(100_000)
        link.stream.close()
        assert link.is_closed
        assert link.client.read(1) == b"", "it was said good-bye to"

    play(tmp_path, scene)


def test_what_has_no_end_is_bounded_and_what_ends_too_early_is_said(tmp_path: Path) -> None:
    async def scene(link: Link) -> None:
        await link.open()
        link.say(b"a" * (LINE_BYTES_MAX + 1))
        with pytest.raises(asyncio.LimitOverrunError):
            await link.stream.readuntil(b"\r\n")
        link.reader.feed_eof()
        with pytest.raises(asyncio.IncompleteReadError):
            await link.stream.readexactly(LINE_BYTES_MAX * 2)
        assert await link.stream.read(LINE_BYTES_MAX * 2) == b"a" * (LINE_BYTES_MAX + 1)
        assert await link.stream.read(1) == b""

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("sent", "is_told"), [(b"GET /metrics HTTP/1.1\r\n\r\n", False), (b"\x16\x03\x01\0\x05hello", True)]
)
def test_a_client_without_tls_is_refused_with_an_alert_if_possible(tmp_path: Path, sent: bytes, is_told: bool) -> None:
    async def scene(link: Link) -> None:
        link.reader.feed_data(sent)
        with pytest.raises(ssl.SSLError):
            await link.stream.do_handshake(lambda: link.server, None)
        link.stream.close()
        assert (link.is_closed, link.from_server.pending > 0) == (True, is_told)

    play(tmp_path, scene)


def test_a_handshake_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_streams, "HANDSHAKE_BYTES_MAX", 100)

    async def scene(link: Link) -> None:
        link.reader.feed_data(b"\x16\x03\x01\x10\0\x01\0\x0f\xf0")
        shaking = asyncio.ensure_future(link.stream.do_handshake(lambda: link.server, None))
        await asyncio.sleep(1)
        link.reader.feed_data(bytes(100))
        with pytest.raises(OSError, match="more than 100 bytes"):
            await shaking

    play(tmp_path, scene)


def test_who_goes_away_in_the_middle_is_let_go(tmp_path: Path) -> None:
    async def scene(link: Link) -> None:
        link.reader.feed_data(b"\x16\x03\x01")
        link.reader.feed_eof()
        with pytest.raises(ConnectionResetError):
            await link.stream.do_handshake(lambda: link.server, None)

    play(tmp_path, scene)
