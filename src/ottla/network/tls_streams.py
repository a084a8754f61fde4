"""TLS over a pair of asyncio streams, for the few connections that do not use the poller (metrics).

Rules:
1. A worker runs the handshake step by step: a signature takes milliseconds, and asyncio's own TLS would run it on the
   event loop. Meanwhile no other code uses the TLS object.
2. Bytes are read on demand: a client that sends too much fills its own socket buffer.
3. The caller limits the time of each operation.
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
    """The methods of StreamReader and StreamWriter that are used here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line_bytes_max: int) -> None:
        self._reader = reader
        self._writer = writer
        self._line_bytes_max = line_bytes_max
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # set after the handshake
        self._plain = bytearray()

    async def do_handshake(self, context: Callable[[], ssl.SSLContext], workers: Executor | None) -> None:
        """Perform the handshake as a server. Raises OSError, which includes ssl.SSLError."""
        loop = asyncio.get_running_loop()
        received = await self._receive()
        tls = context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            while not await loop.run_in_executor(workers, handshake_step, tls):
                await self._flush()
                received += await self._receive()
                if received > HANDSHAKE_BYTES_MAX:
                    raise OSError(0, f"more than {HANDSHAKE_BYTES_MAX} bytes before the end of the TLS handshake")
        except ssl.SSLError:
            self._writer.write(self._outgoing.read())  # the alert, which tells the peer the reason
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
        """Return at most this number of bytes; none at the end."""
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
        """Return whether more data was received."""
        assert self._tls is not None, "the handshake comes first"
        while True:
            try:
                data = self._tls.read(RECEIVED_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()  # OpenSSL responds to some messages itself (key updates)
                try:
                    await self._receive()
                except ConnectionResetError:
                    return False
                continue
            self._plain += data
            return bool(data)

    # ---- writing

    def write(self, data: bytes) -> None:
        assert self._tls is not None, "the handshake comes first"
        if data:
            self._tls.write(data)
            self._writer.write(self._outgoing.read())

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        """Send close_notify without waiting for that of the peer."""
        if self._tls is not None:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
            with suppress(OSError):
                self._writer.write(self._outgoing.read())
        self._writer.close()

    def __repr__(self) -> str:
        return f"<TlsStream {'open' if self._tls is not None else 'not open'}, {len(self._plain)} bytes not read>"


def handshake_step(tls: ssl.SSLObject) -> bool:
    """Run one step of the handshake, in a worker; returns whether it is complete."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
