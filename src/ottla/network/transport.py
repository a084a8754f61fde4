"""Transports of bytes over a socket: plain, or TLS (tls_transport.py). Compiled with mypyc where possible.

Every call raises BlockingIOError if the socket is not ready, and another OSError if the connection is lost.
"""

from __future__ import annotations

import os
import socket
from typing import Final, Protocol

from ottla.base.file_range import FileRange

MORE: Final = socket.MSG_MORE


class Transport(Protocol):
    """The operations that a connection needs."""

    def receive_into(self, buffer: memoryview) -> int: ...

    def send(self, data: bytes | bytearray | memoryview, more_follows: bool) -> int: ...

    def send_file(self, file_range: FileRange, bytes_max: int) -> int: ...

    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket; records are sent from the page cache with sendfile."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()

    def receive_into(self, buffer: memoryview) -> int:
        return self._socket.recv_into(buffer)

    def send(self, data: bytes | bytearray | memoryview, more_follows: bool) -> int:
        return self._socket.send(data, MORE if more_follows else 0)

    def send_file(self, file_range: FileRange, bytes_max: int) -> int:
        return os.sendfile(
            self._descriptor, file_range.descriptor, file_range.position, min(file_range.length, bytes_max)
        )

    def close(self) -> None:
        self._socket.close()
