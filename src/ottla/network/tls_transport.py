"""TLS behind the interface of a Transport: OpenSSL works on memory, this module owns the socket. Compiled with mypyc
where possible.

Rules:
1. Encrypted data must be sent completely and once. While the socket buffer is full, send() raises BlockingIOError
   although the bytes are encrypted already; the caller offers the same bytes again, as for a plain socket.
2. epoll does not report decrypted or received bytes in memory: `has_pending` reports them, and TlsPoller continues to
   read.
3. OpenSSL responds to some messages itself (key updates). A peer that requests more and more without reading is closed.
4. OpenSSL is called only when a whole record was received: its "not yet" is an exception, which costs more than a
   record.

Memory instead of the socket is cheaper (a quarter less CPU per received byte, a tenth less per sent byte): one system
call moves many TLS records of 16 KiB, where OpenSSL needs two per received record and one per sent record.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from contextlib import suppress
from typing import Any, Final

from ottla.base.file_range import FileRange
from ottla.network.close_reason import CloseReason
from ottla.network.poller import Watched

logger = logging.getLogger(__name__)

RECEIVED_BYTES: Final = 256 * 1024  # ciphertext per call
SENT_BYTES: Final = 128 * 1024  # plaintext per call
HEADER_BYTES: Final = 5  # of a TLS record
HANDSHAKE_BEGINS: Final = b"\x16\x03"  # start of a handshake record of any version: other data is not TLS
JOINED_BYTES_MAX: Final = 16 * 1024  # limit of ciphertext that waits for following data
PROTOCOL_REPLY_BYTES_MAX: Final = 64 * 1024


class TlsScratch:
    """Buffers that all TLS connections of one event loop use, each for the time of a call."""

    def __init__(self) -> None:
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        self.file = memoryview(bytearray(SENT_BYTES))


class TlsTransport:
    """TLS over one socket; the handshake (tls_handshake.py) comes first."""

    def __init__(self, sock: socket.socket, scratch: TlsScratch) -> None:
        self.socket = sock
        self.scratch = scratch
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls: ssl.SSLObject | None = None
        self.is_open = False  # after the handshake
        self.has_pending = False
        self._records = 0  # number of whole unread records; never too low, see receive_into()
        self._is_in_record = False  # part of a decrypted record waits for a larger buffer
        self._first_bytes = b""  # the first bytes of the connection
        self._header = bytearray()  # header of the record that is being received
        self._missing = 0  # missing bytes of that record
        self._unsent = memoryview(b"")  # ciphertext that is not sent yet
        self._encrypted_unacknowledged = 0  # plaintext bytes in it that the caller offers again

    def begin(self, context: ssl.SSLContext, server_name: str | None) -> None:
        """Begin as a server or, with a server name, as a client."""
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_name is None, server_hostname=server_name
        )

    @property
    def awaits_first_record(self) -> bool:
        """Whether the data may be the start of a handshake but is not a whole record: a TLS object takes 50 KB."""
        seen = self._first_bytes
        is_handshake = seen[: len(HANDSHAKE_BEGINS)] == HANDSHAKE_BEGINS[: len(seen)]
        return self._records == 0 and is_handshake

    def open(self) -> None:
        """Process the end of the handshake; data after it is kept."""
        self.is_open = True
        if not self.incoming.pending:
            self._records = 0  # all records were part of the handshake

    # ---- receiving

    def receive_into(self, buffer: memoryview) -> int:
        tls = self.tls
        assert tls is not None
        read: Any = tls.read  # typeshed lacks the form with a buffer
        size = len(buffer)
        filled = 0
        self.has_pending = False
        while filled < size:
            if self._records == 0 and not self._is_in_record:
                if filled or self.receive() == 0:
                    break
                continue
            try:
                count: int = read(size - filled, buffer[filled:])
            except ssl.SSLWantReadError:  # the last records were OpenSSL's own: of the handshake, or new keys
                self._records = 0
                self._is_in_record = False
                continue
            if count == 0:  # the peer has sent close_notify
                self._records, self._is_in_record = 0, False
                break
            filled += count
            if not self._is_in_record:
                self._records -= 1
            self._is_in_record = tls.pending() > 0
        if self.outgoing.pending:
            self._send_protocol_messages()
        self.has_pending = self._records > 0 or self._is_in_record
        return filled

    def receive(self) -> int:
        """Read ciphertext from the socket into OpenSSL's buffer; 0 at its end."""
        received = self.scratch.received
        count = self.socket.recv_into(received)
        if count:
            if len(self._first_bytes) < len(HANDSHAKE_BEGINS):
                self._first_bytes += received[: min(count, len(HANDSHAKE_BEGINS) - len(self._first_bytes))]
            self.incoming.write(received[:count])
            self._count_records(received, count)
        return count

    def _count_records(self, received: memoryview, count: int) -> None:
        """Count whole records. A record has a header of five bytes; the last two are the length of the rest."""
        header = self._header
        position = 0
        while position < count:
            if self._missing == 0:
                taken = min(HEADER_BYTES - len(header), count - position)
                header += received[position : position + taken]
                position += taken
                if len(header) < HEADER_BYTES:
                    return
                self._missing = header[3] << 8 | header[4]
                header.clear()
            taken = min(self._missing, count - position)
            position += taken
            self._missing -= taken
            if self._missing == 0:
                self._records += 1

    def _send_protocol_messages(self) -> None:
        if self.outgoing.pending > PROTOCOL_REPLY_BYTES_MAX:  # data in flight is not limited: a response may be large
            raise OSError(0, "the peer requests key updates and does not read them")
        if not self._unsent:
            self._unsent = memoryview(self.outgoing.read())
            with suppress(BlockingIOError):
                self._send_unsent()

    # ---- sending

    def send(self, data: bytes | bytearray | memoryview, more_follows: bool) -> int:
        if self._encrypted_unacknowledged == 0:
            if self._unsent:
                self._send_unsent()
            assert self.tls is not None
            count = self.tls.write(data if len(data) <= SENT_BYTES else memoryview(data)[:SENT_BYTES])
            if more_follows and self.outgoing.pending <= JOINED_BYTES_MAX:
                return count
            self._unsent = memoryview(self.outgoing.read())
            self._encrypted_unacknowledged = count
        return self._complete_send()

    def send_file(self, file_range: FileRange, bytes_max: int) -> int:
        if self._encrypted_unacknowledged == 0:
            if self._unsent:
                self._send_unsent()
            assert self.tls is not None
            room = self.scratch.file[: min(file_range.length, bytes_max, SENT_BYTES)]
            count = os.preadv(file_range.descriptor, [room], file_range.position)
            if count == 0:
                return 0
            self._encrypted_unacknowledged = self.tls.write(room[:count])
            self._unsent = memoryview(self.outgoing.read())
        return self._complete_send()

    def flush(self) -> bool:
        """Send the data of the handshake; true if all of it was sent."""
        if not self._unsent:
            self._unsent = memoryview(self.outgoing.read())
        try:
            while self._unsent:
                self._send_unsent()
                self._unsent = memoryview(self.outgoing.read())
        except BlockingIOError:
            return False
        return True

    def _complete_send(self) -> int:
        self._send_unsent()
        promised = self._encrypted_unacknowledged
        self._encrypted_unacknowledged = 0
        return promised

    def _send_unsent(self) -> None:
        unsent = self._unsent
        sent = self.socket.send(unsent)
        self._unsent = unsent[sent:]
        if sent < len(unsent):
            raise BlockingIOError

    # ---- the end

    def close(self) -> None:
        """Send close_notify if the socket has space, without waiting for that of the peer."""
        self.has_pending = False
        if self.is_open and not self._unsent and self.tls is not None:
            self.is_open = False
            with suppress(OSError, ValueError):
                self.tls.unwrap()
            with suppress(OSError):
                self.socket.send(self.outgoing.read())
        self.socket.close()

    def __repr__(self) -> str:
        return f"<TlsTransport {'open' if self.is_open else 'not open'}, {len(self._unsent)} bytes unsent>"


class TlsPoller:
    """A layer between the poller and a TLS connection, which continues to read while the transport has pending bytes.

    Plain connections use the poller directly.
    """

    def __init__(self, transport: TlsTransport, poller: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._poller = poller
        self._loop = loop
        self._watched: Watched | None = None
        self._is_reading = True
        self._is_due = False

    # ---- what the connection calls

    def watch(self, descriptor: int, watched: Watched) -> None:
        self._watched = watched
        self._poller.watch(descriptor, self)
        self._schedule_read()  # data that arrived with the end of the handshake

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None:
        self._is_reading = readable
        self._poller.interest(descriptor, readable, writable)
        if readable and self._transport.has_pending:
            self._schedule_read()

    def flush_later(self, watched: Watched) -> None:
        self._poller.flush_later(watched)

    def unwatch(self, descriptor: int) -> None:
        self._watched = None
        self._poller.unwatch(descriptor)

    # ---- what the poller calls

    def on_readable(self) -> None:
        if self._watched is not None:
            self._watched.on_readable()
            if self._transport.has_pending and self._is_reading:
                self._schedule_read()

    def on_writable(self) -> None:
        if self._watched is not None:
            self._watched.on_writable()

    def flush(self) -> None:
        if self._watched is not None:
            self._watched.flush()

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        if self._watched is not None:
            self._watched.abandon(reason, detail)

    def _schedule_read(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._on_scheduled_read)

    def _on_scheduled_read(self) -> None:
        self._is_due = False
        if self._watched is None or not self._is_reading:
            return
        try:
            self.on_readable()
        except Exception:  # a bug in one connection must not stop the others
            logger.exception("closing a connection after an unexpected error")
            self.abandon(CloseReason.UNEXPECTED_ERROR, "an unexpected error")
