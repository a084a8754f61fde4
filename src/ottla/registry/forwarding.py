"""What would change something is handed to the node that leads, as it came, and its answer is given back.

Rules:
1. A request is handed on once: the node that gets it answers for itself, or says that it does not lead.
2. One that could not be sent, since the leader has just died, is kept until there is another leader, for a while. One
   that was sent and whose answer was lost is not sent again: nobody knows what became of it (50003).
3. One that has not answered when another leads already, since it was paused or is cut off, is waited for no longer.
4. Answers are bounded in size and time, and addresses are those that members of the group gave.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from ottla.registry.leadership import RawAnswer, RawRequest

FORWARDED: Final = b"x-forward"
THREADS: Final = 16
CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS_MAX: Final = 70.0  # longer than a change may take there
ANSWER_BYTES_MAX: Final = 20 << 20
# What belongs to one connection, or is written anew.
LEFT_OUT: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"host", b"expect", b"upgrade", FORWARDED}
)


class NotSentError(Exception):
    """The leader cannot be reached: nothing has happened."""


class LostAnswerError(Exception):
    """The leader got the request; nobody knows what became of it."""


class Forwarding:
    """The way to the leader; a connection for each request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls  # for leaders over HTTPS; None: what the machine trusts
        self._threads = ThreadPoolExecutor(THREADS, "registry-forwarding")

    def __repr__(self) -> str:
        return "<Forwarding>"

    async def __call__(self, request: RawRequest, leader: str) -> RawAnswer:
        """Raises NotSentError, LostAnswerError. Who gives up frees the thread, too."""
        opened: list[socket.socket] = []
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, forward, request, leader, self._tls, opened)
        except asyncio.CancelledError:
            for each in opened:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            raise

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def forward(
    request: RawRequest, leader: str, tls: ssl.SSLContext | None = None, opened: list[socket.socket] | None = None
) -> RawAnswer:
    """Blocking; `opened` gets the connection."""
    parts = urlsplit(leader)
    host = parts.hostname or ""
    if tls is not None and parts.scheme != "https":
        raise NotSentError(f"{leader}: the leader has no TLS, and the login of who asks would travel in the clear")
    connection = http.client.HTTPConnection(host, parts.port, timeout=CONNECT_SECONDS)
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, parts.port, timeout=CONNECT_SECONDS, context=tls)
    try:
        try:
            connection.connect()
        except OSError as problem:
            raise NotSentError(f"{leader}: {problem.strerror or problem}") from None
        if opened is not None:
            opened.append(connection.sock)
        try:
            connection.sock.settimeout(ANSWER_SECONDS_MAX)
            connection.putrequest(request.method, request.target, skip_accept_encoding=True)
            for name, value in _passed_on(request.headers):
                connection.putheader(name.decode("latin-1"), value)
            connection.putheader(FORWARDED.decode(), "true")
            connection.putheader("content-length", str(len(request.body)))
            connection.endheaders(request.body)
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise LostAnswerError(f"{leader}: {problem or type(problem).__name__}") from None
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.getheaders()]
        kept = [header for header in _passed_on(headers) if header[0] == b"content-type"]
        return RawAnswer(response.status, [*kept, (b"content-length", str(len(body)).encode())], body)
    finally:
        connection.close()


def _passed_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [header for header in headers if header[0].lower() not in LEFT_OUT]
