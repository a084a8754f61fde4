"""TLS over a pair of asyncio's streams, for the few connections that are not the broker's own (metrics).

Rules:
1. The handshake is done by a worker, step by step: a signature takes milliseconds, and asyncio's own TLS would make it
   on the loop. While a worker is at it, nobody else touches the TLS object.
2. Bytes are pulled, never pushed: whoever sends more than is asked for fills his own socket.
3. How long anything may take is the caller's business.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from ottla.network.tls_handshake import HANDSHAKE_BYTES_MAX

RECEIVED_BYTES: Final = 16 * 1024


class TlsStream:
    """What a StreamReader and a StreamWriter have, as far as somebody needs it here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line_bytes_max: int) -> None:
        self._reader = reader
        self._writer = writer
        self._line_bytes_max = line_bytes_max
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # once the handshake is over
        self._plain = bytearray()

    async def shake_hands(self, context: Callable[[], ssl.SSLContext], workers: Executor | None) -> None:
        """As a server. Raises OSError, of which ssl.SSLError is one."""
        loop = asyncio.get_running_loop()
        received = await self._receive()
        tls = context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            while not await loop.run_in_executor(workers, is_finished, tls):
                await self._flush()
                received += await self._receive()
                if received > HANDSHAKE_BYTES_MAX:
                    raise OSError(0, f"more than {HANDSHAKE_BYTES_MAX} bytes before the end of the TLS handshake")
        except ssl.SSLError:
            self._writer.write(self._outgoing.read())  # the alert, so that the other side learns why
            raise
        self._writer.write(self._outgoing.read())
        self._tls = tls

    async def _receive(self) -> int:
        data = await self._reader.read(RECEIVED_BYTES)
        if not data:
            raise ConnectionResetError("closed")
        self._incoming.write(data)
        return len(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
            await self._writer.drain()

    # ---- reading

    async def read(self, count: int) -> bytes:
        """So many bytes at most; none at the end."""
        if not self._plain:
            await self._fill()
        return self._take(count)

    async def readexactly(self, count: int) -> bytes:
        while len(self._plain) < count:
            if not await self._fill():
                raise asyncio.IncompleteReadError(bytes(self._plain), count)
        return self._take(count)

    async def readuntil(self, separator: bytes) -> bytes:
        while (found := self._plain.find(separator)) < 0:
            if len(self._plain) > self._line_bytes_max:
                raise asyncio.LimitOverrunError("no separator in so many bytes", len(self._plain))
            if not await self._fill():
                raise asyncio.IncompleteReadError(bytes(self._plain), None)
        return self._take(found + len(separator))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._plain[:count])
        del self._plain[:count]
        return taken

    async def _fill(self) -> bool:
        """Whether something more has come."""
        assert self._tls is not None, "hands are shaken first"
        while True:
            try:
                data = self._tls.read(RECEIVED_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()  # OpenSSL answers by itself to some messages (key updates)
                try:
                    await self._receive()
                except ConnectionResetError:
                    return False
                continue
            self._plain += data
            return bool(data)

    # ---- writing

    def write(self, data: bytes) -> None:
        assert self._tls is not None, "hands are shaken first"
        if data:
            self._tls.write(data)
            self._writer.write(self._outgoing.read())

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        """Says good-bye and does not wait for the answer."""
        if self._tls is not None:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
            with suppress(OSError):
                self._writer.write(self._outgoing.read())
        self._writer.close()

    def __repr__(self) -> str:
        return f"<TlsStream {'open' if self._tls is not None else 'not open'}, {len(self._plain)} bytes not read>"


def is_finished(tls: ssl.SSLObject) -> bool:
    """In a worker: one step of the handshake."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
