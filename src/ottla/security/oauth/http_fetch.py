"""Reads of files and URLs of identity providers, with limits of time and size. All functions may block.

Trusted certificates are set, as in Kafka, by the options `ssl.*` of the login module; the default is the system's trust
store.
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

from ottla.base.broker_keys.security import TlsKeys
from ottla.base.tls_problems import describe_tls_error
from ottla.security.tls import ReloadingTlsContext, TlsError, client_context

BYTES_MAX: Final = 1024 * 1024
SECONDS_MAX: Final = 10.0
FILE: Final = "file"

CreateConnection = Callable[..., socket.socket]
"""As socket.create_connection; a caller that restricts addresses passes its own function."""


class FetchError(Exception):
    """A failed read, in one line, without the request."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects: secrets are sent only to the configured address."""

    def redirect_request(self, *_: object) -> None:
        return None


class _HttpHandler(urllib.request.HTTPHandler):
    """HTTP over connections of the caller, without a proxy."""

    def __init__(self, connect: CreateConnection) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_connection_factory(http.client.HTTPConnection, self._connect), request)


class _HttpsHandler(urllib.request.HTTPSHandler):
    """HTTPS over connections of the caller, without a proxy."""

    def __init__(self, connect: CreateConnection, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._connect, self._own_context = connect, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(
            _connection_factory(http.client.HTTPSConnection, self._connect), request, context=self._own_context
        )


def _connection_factory(
    kind: type[http.client.HTTPConnection], connect: CreateConnection
) -> Callable[..., http.client.HTTPConnection]:
    def make(*arguments: object, **named: object) -> http.client.HTTPConnection:
        connection = kind(*arguments, **named)  # type: ignore[arg-type]  # what urllib hands over
        connection._create_connection = connect  # type: ignore[attr-defined]
        return connection

    return make


class Fetch(Protocol):
    """Returns the content at a URL; with `data`, the response to a POST. Raises FetchError."""

    def __call__(
        self, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None, seconds: float = ...
    ) -> bytes: ...


def check_url(url: str, key: str) -> str:
    """Return the URL, if it is one of a file or of HTTP. Raises ValueError with the key."""
    parts = urlsplit(url)
    if parts.scheme == FILE and parts.path:
        return url
    if parts.scheme in ("http", "https") and parts.hostname:
        return url
    raise ValueError(f"{key} must be an address that begins with https://, http:// or file:///")


def path_of(url: str) -> str | None:
    """Return the path in a file URL, otherwise None."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == FILE else None


def make_fetch(options: Mapping[str, str], connect: CreateConnection | None = None) -> Fetch:
    """Return a function with the TLS options of a login module; changed certificates are reloaded.

    Raises ValueError.
    """
    texts = {name: text for name, text in options.items() if name.startswith("ssl.")}
    if not texts:
        return fetch if connect is None else partial(fetch, connect=connect)
    try:
        keys = TlsKeys(texts)
        live = ReloadingTlsContext("the identity provider", keys, client_context)
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
    connect: CreateConnection | None = None,
) -> bytes:
    """See Fetch; `context` and `connect` apply to HTTP."""
    try:
        path = path_of(url)
        if path is not None:
            with open(path, "rb") as file:
                return _check_size(url, file.read(BYTES_MAX + 1))
        request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 (check_url has looked at it)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
        if connect is not None:
            handlers = [_HttpHandler(connect), _HttpsHandler(connect, context), urllib.request.ProxyHandler({})]
        opener = urllib.request.build_opener(_NoRedirect, *handlers)
        with opener.open(request, timeout=seconds) as answer:
            return _check_size(url, answer.read(BYTES_MAX + 1))
    except urllib.error.HTTPError as problem:
        raise FetchError(f"{url} answers with status {problem.code}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or problem
        if isinstance(reason, ssl.SSLError):
            reason = f"TLS: {describe_tls_error(reason)}"
        elif isinstance(reason, OSError):
            reason = reason.strerror or reason
        raise FetchError(f"{url} cannot be read: {reason}") from None


def _check_size(url: str, data: bytes) -> bytes:
    if len(data) > BYTES_MAX:
        raise FetchError(f"{url} holds more than {BYTES_MAX} bytes")
    return data
