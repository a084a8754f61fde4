"""The limits of the machine without any broker, as a reference for the figures.

A forked process plays the broker and this process the client, over loopback and with the client's own receive loop.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from bench.figures import Figures
from bench.loads.threads import Load, run_together

CHUNK_BYTES = 1 << 20
REQUEST = b"next"
SERVER_SECONDS_MAX = 600  # fallback if the parent cannot kill it


def socket_to_file(path: str, seconds: float, bytes_max: int) -> Figures:
    """A stream through a socket, received in pieces of at most 1 MiB and written to a new file."""
    sent = [0]
    with _Server(lambda connection: _receive_into_file(connection, Path(path))) as server:

        def set_up(_: int) -> Load:
            connection = server.connect()
            return lambda: _send_stream(connection, sent, seconds, bytes_max)

        meter = run_together(server.pid, set_up, 1)
    return meter.figures(payload_bytes=sent[0])


def sendfile(path: str, streams: int, answer_bytes: int | None, seconds: float) -> Figures:
    """A file through sendfile to so many sockets: as endless streams, or in answers to one request at a time."""
    received = [0] * streams

    def serve(connection: socket.socket) -> None:
        (_answer_requests if answer_bytes else _send_file)(connection, Path(path), answer_bytes or 0)

    with _Server(serve) as server:

        def set_up(number: int) -> Load:
            connection = server.connect()
            return lambda: _drain(connection, received, number, answer_bytes, time.perf_counter() + seconds)

        meter = run_together(server.pid, set_up, streams)
    return meter.figures(payload_bytes=sum(received))


def write_file(path: str, size: int) -> None:
    chunk = os.urandom(CHUNK_BYTES)
    with open(path, "wb") as file:
        for _ in range(size // CHUNK_BYTES):
            file.write(chunk)


class _Server:
    """A child process that serves every connection in a thread of its own until it is killed."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.pid = os.fork()
        if self.pid == 0:
            self._accept_forever(serve)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def __repr__(self) -> str:
        return f"<_Server pid {self.pid}>"

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self._listener.getsockname())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _accept_forever(self, serve: Callable[[socket.socket], None]) -> None:
        signal.alarm(SERVER_SECONDS_MAX)
        try:
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=_serve_quietly, args=(serve, connection), daemon=True).start()
        finally:
            os._exit(1)


def _serve_quietly(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    try:
        serve(connection)
    except OSError:
        pass  # the client has disconnected
    finally:
        connection.close()


def _receive_into_file(connection: socket.socket, path: Path) -> None:
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    handle = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    while count := connection.recv_into(buffer):
        os.write(handle, view[:count])
    os.close(handle)


def _send_stream(connection: socket.socket, sent: list[int], seconds: float, bytes_max: int) -> None:
    end, chunk = time.perf_counter() + seconds, bytes(CHUNK_BYTES)
    while time.perf_counter() < end and sent[0] < bytes_max:
        connection.sendall(chunk)
        sent[0] += CHUNK_BYTES
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)  # the other side closes when it has written all
    connection.close()


def _send_file(connection: socket.socket, path: Path, _: int) -> None:
    handle = os.open(path, os.O_RDONLY)
    size, position = os.fstat(handle).st_size, 0
    while True:
        position = (position + os.sendfile(connection.fileno(), handle, position, CHUNK_BYTES)) % size


def _answer_requests(connection: socket.socket, path: Path, answer_bytes: int) -> None:
    handle = os.open(path, os.O_RDONLY)
    size, position = os.fstat(handle).st_size, 0
    while connection.recv(len(REQUEST)):
        if position + answer_bytes > size:
            position = 0
        end = position + answer_bytes
        while position < end:
            position += os.sendfile(connection.fileno(), handle, position, end - position)


def _drain(connection: socket.socket, received: list[int], number: int, answer_bytes: int | None, end: float) -> None:
    scratch = bytearray(CHUNK_BYTES)
    total = left = 0
    while time.perf_counter() < end or left:
        if not left and answer_bytes:
            connection.sendall(REQUEST)
            left = answer_bytes
        count = connection.recv_into(scratch, min(left, CHUNK_BYTES) if answer_bytes else CHUNK_BYTES)
        total += count
        left -= count if answer_bytes else 0
    received[number] = total
    connection.close()
