"""A minimal HTTP server for metrics on the broker's event loop: a few GET paths, and POST for Jolokia.

Rules:
1. Responses are written in slices of a few milliseconds: a scrape never delays a client of the broker.
2. Everything is bounded: heads, bodies, connections, and all waits for a client.
3. A malformed request gets a 4xx response with its reason, and the connection is closed.
4. If bound to loopback, the server accepts only host names of this machine, as a protection against DNS rebinding.
5. A wrong password is rejected after a delay, and the connection is closed.
6. Worker threads do the TLS handshakes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

from ottla.base import tasks
from ottla.base.broker_checks import is_loopback
from ottla.base.broker_settings import BrokerSettings
from ottla.broker.metrics_endpoint.start import MetricsAccessError

if TYPE_CHECKING:
    from ottla.network.tls_streams import TlsStream
    from ottla.security.tls import ReloadingTlsContext

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 16 * 1024
HEADERS_MAX: Final = 100
BODY_BYTES_MAX: Final = 256 * 1024
CONNECTIONS_MAX: Final = 32
REQUEST_SECONDS_MAX: Final = 10.0
IDLE_SECONDS_MAX: Final = 120.0  # between two requests on one connection
SEND_SECONDS_MAX: Final = 30.0
REFUSAL_SECONDS: Final = 0.5  # slows down password guessing
SLICE_SECONDS: Final = 0.002
CHUNK_BYTES: Final = 32 * 1024
TEXT: Final = "text/plain; charset=utf-8"


class BasicAuthentication:
    """HTTP Basic authentication with one name and password (`ottla.metrics.*`)."""

    def __init__(self, name: str, password: str) -> None:
        self._expected = b64encode(f"{name}:{password}".encode())

    def accepts(self, header: str) -> bool:
        """Return whether an `Authorization` header contains the right password."""
        scheme, _, token = header.partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return compare_digest(given, self._expected) and scheme.lower() == "basic"

    def __repr__(self) -> str:
        return "<BasicAuthentication>"


def metrics_login(settings: BrokerSettings) -> BasicAuthentication | None:
    name, password = settings.ottla_metrics_username, settings.ottla_metrics_password
    return BasicAuthentication(name, password) if name is not None and password is not None else None


def metrics_tls(settings: BrokerSettings) -> ReloadingTlsContext | None:
    """The endpoint's certificate; None without one. Raises MetricsAccessError."""
    if not settings.ottla_metrics_ssl_keystore_location:
        return None
    from ottla.base.broker_keys.security import TlsKeys  # noqa: PLC0415 (most endpoints do without TLS)
    from ottla.security.tls import ReloadingTlsContext, TlsError, server_context  # noqa: PLC0415

    texts = {
        "ssl.keystore.location": settings.ottla_metrics_ssl_keystore_location,
        "ssl.keystore.password": settings.ottla_metrics_ssl_keystore_password,
        "ssl.key.password": settings.ottla_metrics_ssl_key_password,
    }
    keys = TlsKeys({name: text for name, text in texts.items() if text is not None})
    try:
        return ReloadingTlsContext("the metrics endpoint", keys, server_context)
    except TlsError as problem:
        raise MetricsAccessError(f"the metrics endpoint cannot use its certificate: {problem}") from None


class BadRequestError(Exception):
    """A client error: a status and one line."""

    def __init__(self, status: HTTPStatus, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class HttpRequest(NamedTuple):
    """One request; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    is_http_1_0: bool = False  # HTTP/1.0: no chunks, one request per connection


class HttpResponse(NamedTuple):
    """Pieces of text; an empty piece lets the server yield to the loop."""

    pieces: Iterator[str]
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


Reader: TypeAlias = "asyncio.StreamReader | TlsStream"
Writer: TypeAlias = "asyncio.StreamWriter | TlsStream"
Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
UNREADABLE_REQUEST: Final = HttpRequest("GET", "/", {}, {}, b"")  # an unreadable request


class HttpServer:
    """One listening socket and its few connections."""

    def __init__(
        self,
        host: str,
        handler: Handler,
        login: BasicAuthentication | None = None,
        open_paths: frozenset[str] = frozenset(),
        tls: Callable[[], ssl.SSLContext] | None = None,
        workers: Executor | None = None,
    ) -> None:
        """`login` authenticates every request except for `open_paths`; `tls` returns the context of each connection,
        whose handshake runs in `workers`.
        """
        self.host = host
        self.port = 0
        self._handler = handler
        self._login = login
        self._open_paths = open_paths
        self._tls = tls
        self._workers = workers
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> None:
        """Start listening. Raises OSError if the address is not available."""
        self._server = await asyncio.start_server(self._on_connected, self.host, port, limit=HEAD_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __repr__(self) -> str:
        return f"<HttpServer {self.host}:{self.port}, {len(self._tasks)} connections>"

    # ---- one connection

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = tasks.spawn(self._serve(reader, writer), "the metrics endpoint")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        reader: Reader = incoming
        writer: Writer = outgoing
        try:
            if len(self._tasks) > CONNECTIONS_MAX:
                raise BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {CONNECTIONS_MAX} connections")
            if self._tls is not None:
                from ottla.network.tls_streams import TlsStream  # noqa: PLC0415 (most endpoints do without TLS)

                reader = writer = stream = TlsStream(incoming, outgoing, HEAD_BYTES_MAX)
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    await stream.do_handshake(self._tls, self._workers)
            patience = REQUEST_SECONDS_MAX  # a new connection sends a request at once
            while await self._serve_one(reader, writer, patience):
                patience = IDLE_SECONDS_MAX
        except BadRequestError as problem:
            await self._refuse(writer, problem)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            logger.debug("a client of the metrics endpoint disconnected")
        finally:
            writer.close()

    async def _serve_one(self, reader: Reader, writer: Writer, patience_s: float) -> bool:
        """Handle one request; returns whether the connection stays open."""
        async with asyncio.timeout(patience_s):
            first = await reader.read(1)
        if not first:
            return False
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                request = await _read_request(reader, first)
        except TimeoutError:
            raise BadRequestError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive") from None
        self._check_host(request.headers.get("host", ""))
        await self._check_login(request)
        keeps_open = request.headers.get("connection", "").lower() != "close" and not request.is_http_1_0
        answer = self._handler(request)
        await _send(
            writer, answer if isinstance(answer, HttpResponse) else await answer, request, keeps_open=keeps_open
        )
        return keeps_open

    def _check_host(self, host: str) -> None:
        """Check the host name: with DNS rebinding a browser sends the attacker's."""
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        if is_loopback(self.host) and not (name in ("localhost", socket.gethostname().lower()) or _is_address(name)):
            raise BadRequestError(HTTPStatus.MISDIRECTED_REQUEST, "use a name or an address of this machine")

    async def _check_login(self, request: HttpRequest) -> None:
        if self._login is None or request.path in self._open_paths:
            return
        if not self._login.accepts(request.headers.get("authorization", "")):
            await asyncio.sleep(REFUSAL_SECONDS)
            headers = {"WWW-Authenticate": 'Basic realm="ottla metrics", charset="UTF-8"'}
            raise BadRequestError(HTTPStatus.UNAUTHORIZED, "a name and a password are required", **headers)

    async def _refuse(self, writer: Writer, problem: BadRequestError) -> None:
        answer = HttpResponse(iter((f"{problem}\n",)), status=problem.status)
        try:
            await _send(writer, answer, UNREADABLE_REQUEST, keeps_open=False, headers=problem.headers)
        except (OSError, TimeoutError):
            logger.debug("a client of the metrics endpoint disconnected before the refusal")


# ---- requests


async def _read_request(reader: Reader, first: bytes) -> HttpRequest:
    try:
        head = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadRequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head may have {HEAD_BYTES_MAX} bytes"
        ) from None
    method, target, version, headers = _parse_head(head)
    size = _body_size(headers)
    body = await reader.readexactly(size) if size else b""
    path, _, query = target.partition("?")
    return HttpRequest(method, unquote(path), dict(parse_qsl(query)), headers, body, version == "HTTP/1.0")


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")[:-2]
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the first line is not METHOD /path HTTP/1.1")
    if words[0] not in ("GET", "HEAD", "POST"):
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET, HEAD and POST", Allow="GET, HEAD, POST")
    if len(lines) > HEADERS_MAX:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {HEADERS_MAX} headers")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip() or (key in ("host", "content-length") and key in headers):
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "a header is malformed or repeated")
        headers[key] = value.strip()
    if "host" not in headers:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "the Host header is missing")
    return words[0], words[1], words[2], headers


def _body_size(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "send the body with a Content-Length")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > 20:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
    if int(text) > BODY_BYTES_MAX:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {BODY_BYTES_MAX} bytes")
    return int(text)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ---- responses


async def _send(
    writer: Writer,
    answer: HttpResponse,
    request: HttpRequest,
    *,
    keeps_open: bool,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send the response in chunks: its size is unknown in advance."""
    lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}", f"Content-Type: {answer.content_type}"]
    lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff"]
    lines += [] if request.is_http_1_0 else ["Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [] if keeps_open else ["Connection: close"]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    if request.method != "HEAD":
        await _send_pieces(writer, answer.pieces, is_chunked=not request.is_http_1_0)
    await _drain(writer)


async def _send_pieces(writer: Writer, pieces: Iterator[str], *, is_chunked: bool) -> None:
    gathered: list[str] = []
    size = 0
    until = time.monotonic() + SLICE_SECONDS
    for piece in pieces:
        if piece:
            gathered.append(piece)
            size += len(piece)
        if size >= CHUNK_BYTES:
            _write_chunk(writer, gathered, is_chunked)
            size = 0
            await _drain(writer)
        if time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_SECONDS
    _write_chunk(writer, gathered, is_chunked)
    writer.write(b"0\r\n\r\n" if is_chunked else b"")


def _write_chunk(writer: Writer, gathered: list[str], is_chunked: bool) -> None:
    data = "".join(gathered).encode("utf-8", "backslashreplace")
    gathered.clear()
    if data:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)


async def _drain(writer: Writer) -> None:
    async with asyncio.timeout(SEND_SECONDS_MAX):
        await writer.drain()
