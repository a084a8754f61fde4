"""How bytes cross a socket: plain now, TLS behind the same four calls later.

Every call raises BlockingIOError when the socket is not ready, and another OSError when the peer is gone.
"""

from __future__ import annotations

import os
import socket
from typing import Final, Protocol

from ottla.base.file_range import FileRange

MORE: Final = socket.MSG_MORE


class Transport(Protocol):
    """What a connection needs of its socket."""

    def receive_into(self, buffer: memoryview) -> int: ...

    def send(self, data: bytes | bytearray | memoryview, more_follows: bool) -> int: ...

    def send_file(self, file_range: FileRange, bytes_max: int) -> int: ...

    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket as it is: records go from the page cache to the network card without passing through Python."""

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
