"""Files and web addresses of identity providers: read as a whole, within limits of time and size. Blocks."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

BYTES_MAX: Final = 1024 * 1024
SECONDS_MAX: Final = 10.0
FILE: Final = "file"


class WebError(Exception):
    """What could not be read: one line, without what was sent."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Secrets go to the address that was named, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirect)


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


def fetch(
    url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None, seconds: float = SECONDS_MAX
) -> bytes:
    """What an address holds; with `data`, what is answered to it. Raises WebError."""
    try:
        path = path_of(url)
        if path is not None:
            with open(path, "rb") as file:
                return _bounded(url, file.read(BYTES_MAX + 1))
        request = urllib.request.Request(url, data, dict(headers or {}))  # noqa: S310 (check_url has looked at it)
        with _opener.open(request, timeout=seconds) as answer:
            return _bounded(url, answer.read(BYTES_MAX + 1))
    except urllib.error.HTTPError as problem:
        raise WebError(f"{url} answers with status {problem.code}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or problem
        raise WebError(f"{url} cannot be read: {reason}") from None


def _bounded(url: str, data: bytes) -> bytes:
    if len(data) > BYTES_MAX:
        raise WebError(f"{url} holds more than {BYTES_MAX} bytes")
    return data
