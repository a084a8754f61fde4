"""Lookups in a web server: `GET https://host/users/{user_id}`, a JSON object.

404, 410 and 204 mean that the key is unknown; 408, 429, 5xx and connection errors are retried; other statuses are
failures.
Redirects are not followed. Row values appear in the path or query, never in the host name, and are escaped.
"""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from ottla.pipelines.sinks.http_sink import RETRIABLE_STATUSES, connect, header_problem, url_problem
from ottla.pipelines.steps.lookups.lookup_client import Key, LookupFailedError, Row, UnavailableError

ANSWER_BYTES_MAX = 1_000_000
ANSWER_SHOWN_MAX = 100
NOT_FOUND_STATUSES = (204, 404, 410)
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class WebAddress:
    """`url` has {column} for values; `fields`: new column -> path in the answer."""

    url: str = field(repr=False)
    fields: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_seconds: float = 5.0

    @property
    def display_name(self) -> str:
        return self.url.partition("?")[0]

    @property
    def keys(self) -> list[str]:
        return key_names(self.url)

    def connect(self) -> HttpLookup:
        return HttpLookup(self)


class HttpLookup:
    """One connection; opened on first use and after errors."""

    def __init__(self, address: WebAddress) -> None:
        self._address = address
        self._open: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"HttpLookup({self._address.display_name}, {'open' if self._open else 'closed'})"

    def lookup(self, key: Key) -> Row | None:
        target = request_target(self._address.url, key)
        try:
            status, body, headers = self._exchange(target)
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            raise UnavailableError(f"{problem or type(problem).__name__}") from problem
        return parse_response(status, body, headers, self._address.fields)

    def _exchange(self, target: str) -> tuple[int, bytes, dict[str, str]]:
        parts = urlsplit(self._address.url)
        is_new = self._open is None
        if self._open is None:
            self._open = connect(parts, self._address.timeout_seconds)
        try:
            answer = self._asked(self._open, target)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if is_new:
                raise
            return self._exchange(target)  # the server has closed an idle connection
        body = answer.read(ANSWER_BYTES_MAX + 1)
        if answer.will_close or not answer.isclosed():
            self.close()
        return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}

    def _asked(self, connection: http.client.HTTPConnection, target: str) -> http.client.HTTPResponse:
        connection.request("GET", target, headers={"Accept": "application/json", **dict(self._address.headers)})
        return connection.getresponse()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def key_names(url: str) -> list[str]:
    return list(dict.fromkeys(PLACEHOLDER.findall(url)))


def address_problem(url: str) -> str | None:
    """Why the URL is not usable for lookups."""
    parts = urlsplit(url)
    if "{" in parts.scheme + parts.netloc:
        return "the host name must not come from a row: use {column} after it"
    problem = url_problem(PLACEHOLDER.sub("x", url))
    if problem:
        return problem
    if parts.fragment:
        return "a fragment (#) is not sent to a server"
    names = PLACEHOLDER.findall(url)
    if not names:
        return "names no key column: write {column} for its value"
    return "{} names no column" if "" in names else None


def headers_problem(headers: dict[str, str]) -> str | None:
    return next(filter(None, (header_problem(name, value) for name, value in headers.items())), None)


def request_target(url: str, key: Key) -> str:
    """Raises LookupFailedError for a value that is not allowed in a path."""
    parts = urlsplit(url)
    values = dict(zip(key_names(url), key, strict=True))
    texts = {name: text_of(value) for name, value in values.items()}

    def filled(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: quote(texts[match[1]], safe=""), text)

    for part in parts.path.split("/"):
        if PLACEHOLDER.search(part) and filled(part) in ("", ".", ".."):
            raise LookupFailedError(f"{filled(part)!r} cannot be part of an address")
    path, query = filled(parts.path) or "/", filled(parts.query)
    return f"{path}?{query}" if query else path


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def parse_response(
    status: int, body: bytes, headers: dict[str, str], fields: tuple[tuple[str, str], ...]
) -> Row | None:
    """Raises LookupFailedError, AwayError."""
    if status in NOT_FOUND_STATUSES:
        return None
    words = " ".join(body[:ANSWER_SHOWN_MAX].decode(errors="replace").split())
    if status in RETRIABLE_STATUSES or status >= 500:
        wished = headers.get("retry-after", "")
        raise UnavailableError(f"{status} {words}".strip(), float(wished) if wished.isdigit() else None)
    if 300 <= status < 400:
        raise LookupFailedError(f"{status}, moved: use the URL {headers.get('location', 'of the new location')}")
    if not 200 <= status < 300:
        raise LookupFailedError(f"{status} {words}".strip())
    if len(body) > ANSWER_BYTES_MAX:
        raise LookupFailedError(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes")
    try:
        found = json.loads(body)
    except ValueError:
        raise LookupFailedError(f"the answer is not JSON: {words!r}") from None
    if not isinstance(found, dict):
        raise LookupFailedError(f"the answer is not a JSON object: {words!r}")
    return {column: _value_at(found, path) for column, path in fields}


def _value_at(found: Any, path: str) -> Any:
    """The value at this path; None if it does not exist."""
    if isinstance(found, dict) and path in found:
        return found[path]
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found
