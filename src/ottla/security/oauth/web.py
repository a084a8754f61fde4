"""Files and web addresses of identity providers: read as a whole, within limits of time and size. Blocks.

Whom to trust is, as in Kafka, what the options `ssl.*` of the login module say; without any, what the machine trusts.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from ottla.base.broker_keys.tls import TlsKeys
from ottla.base.tls_problems import tls_problem
from ottla.security.live_context import LiveContext
from ottla.security.tls import TlsError, client_context

BYTES_MAX: Final = 1024 * 1024
SECONDS_MAX: Final = 10.0
FILE: Final = "file"

Connect = Callable[..., socket.socket]
"""As socket.create_connection: whoever does not want every address to be talked to hands in his own."""


class WebError(Exception):
    """What could not be read: one line, without what was sent."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Secrets go to the address that was named, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


class _OwnHttp(urllib.request.HTTPHandler):
    """Web servers by connections that somebody else opens, and by no proxy."""

    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_own(http.client.HTTPConnection, self._connect), request)


class _OwnHttps(urllib.request.HTTPSHandler):
    """The same with TLS."""

    def __init__(self, connect: Connect, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._connect, self._own_context = connect, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_own(http.client.HTTPSConnection, self._connect), request, context=self._own_context)


def _own(kind: type[http.client.HTTPConnection], connect: Connect) -> Callable[..., http.client.HTTPConnection]:
    def make(*arguments: object, **named: object) -> http.client.HTTPConnection:
        connection = kind(*arguments, **named)  # type: ignore[arg-type]  # what urllib hands over
        connection._create_connection = connect  # type: ignore[attr-defined]
        return connection

    return make


class Fetch(Protocol):
    """What an address holds; with `data`, what is answered to it. Raises WebError."""

    def __call__(
        self, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None, seconds: float = ...
    ) -> bytes: ...


def check_url(url: str, key: str) -> str:
    """The address, if it is one of a file or a web server. Raises ValueError that names the key."""
    parts = urlsplit(url)
    if parts.scheme == FILE and parts.path:
        return url
    if parts.scheme in ("http", "https") and parts.hostname:
        return url
    raise ValueError(f"{key} must be an address that begins with https://, http:// or file:///")


def path_of(url: str) -> str | None:
    """The path in an address of a file, else None."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == FILE else None


def fetch_by(options: Mapping[str, str], connect: Connect | None = None) -> Fetch:
    """By the options of a login module; certificates that change are read anew. Raises ValueError."""
    texts = {name: text for name, text in options.items() if name.startswith("ssl.")}
    if not texts:
        return fetch if connect is None else partial(fetch, connect=connect)
    try:
        keys = TlsKeys(texts)
        live = LiveContext("the identity provider", keys, client_context)
    except TlsError as problem:
        raise ValueError(f"the options ssl.* for the identity provider: {problem}") from None

    def fetch_safely(
        url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None, seconds: float = SECONDS_MAX
    ) -> bytes:
        live.refresh(keys)
        return fetch(url, data, headers, seconds, live.context(), connect)

    return fetch_safely


def fetch(
    url: str,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SECONDS_MAX,
    context: ssl.SSLContext | None = None,
    connect: Connect | None = None,
) -> bytes:
    """See Fetch; `context` and `connect` are for web servers."""
    try:
        path = path_of(url)
        if path is not None:
            with open(path, "rb") as file:
                return _bounded(url, file.read(BYTES_MAX + 1))
        request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 (check_url has looked at it)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if connect is not None:
            handlers = [_OwnHttp(connect), _OwnHttps(connect, context), urllib.request.ProxyHandler({})]
        opener = urllib.request.build_opener(_NoRedirect, *handlers)
        with opener.open(request, timeout=seconds) as answer:
            return _bounded(url, answer.read(BYTES_MAX + 1))
    except urllib.error.HTTPError as problem:
        raise WebError(f"{url} answers with status {problem.code}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or problem
        if isinstance(reason, ssl.SSLError):
            reason = f"TLS: {tls_problem(reason)}"
        elif isinstance(reason, OSError):
            reason = reason.strerror or reason
        raise WebError(f"{url} cannot be read: {reason}") from None


def _bounded(url: str, data: bytes) -> bytes:
    if len(data) > BYTES_MAX:
        raise WebError(f"{url} holds more than {BYTES_MAX} bytes")
    return data
