"""Forwards changes to the leader node unchanged, and returns its response.

Rules:
1. A request is forwarded once: the receiving node handles it, or responds that it is not the leader.
2. A request that could not be sent because the leader has just died is kept until there is another leader, for a
   limited time. A request whose response was lost is not resent, because its outcome is unknown (50003).
3. If another node becomes the leader before a response arrives (the old one was paused or disconnected), waiting ends.
4. Responses are bounded in size and time; the addresses come from the group's members.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ottla.web.application import Headers

FORWARDED: Final = b"x-forward"
THREADS: Final = 16
CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS_MAX: Final = 70.0  # longer than a change may take
ANSWER_BYTES_MAX: Final = 20 << 20
# Hop-by-hop headers, and those rewritten.
HOP_BY_HOP_HEADERS: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"host", b"expect", b"upgrade", FORWARDED}
)


class RawRequest(NamedTuple):
    """A request to forward; `target` is the original path with its parameters."""

    method: str
    target: str
    headers: Headers
    body: bytes


class RawResponse(NamedTuple):
    status: int
    headers: Headers
    body: bytes


Forward = Callable[[RawRequest, str], Awaitable[RawResponse]]


class NotSentError(Exception):
    """The leader cannot be reached: the request was not sent."""


class UnknownOutcomeError(Exception):
    """The leader got the request, but its outcome is unknown."""


class Forwarder:
    """Sends requests to the leader, one connection for each."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls  # for leaders over HTTPS; None: the system's certificates
        self._threads = ThreadPoolExecutor(THREADS, "registry-forwarding")

    def __repr__(self) -> str:
        return "<Forwarder>"

    async def __call__(self, request: RawRequest, leader: str) -> RawResponse:
        """Raises NotSentError, UnknownOutcomeError. Cancellation also releases the thread."""
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
) -> RawResponse:
    """Blocking; the connection is appended to `opened`."""
    parts = urlsplit(leader)
    host = parts.hostname or ""
    if tls is not None and parts.scheme != "https":
        raise NotSentError(f"{leader}: the leader has no TLS, and credentials would be sent unencrypted")
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
            raise UnknownOutcomeError(f"{leader}: {problem or type(problem).__name__}") from None
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.getheaders()]
        kept = [header for header in _passed_on(headers) if header[0] == b"content-type"]
        return RawResponse(response.status, [*kept, (b"content-length", str(len(body)).encode())], body)
    finally:
        connection.close()


def _passed_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [header for header in headers if header[0].lower() not in HOP_BY_HOP_HEADERS]
