"""The keys with which an identity provider signs (JWKS, RFC 7517), kept and read anew when it is time. Used by workers.

Rules:
1. Keys are good for `refresh_ms`. When they cannot be read then, the old ones stay good: the provider may be away.
2. A token with a key that nobody knows makes them be read early, because the provider may have a new one; but at most
   once in UNKNOWN_MS, whatever clients send.
3. After a failure it is tried again after `backoff_ms`, twice that, and so on up to `backoff_ms_max`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.base.clock import Clock
from ottla.security.oauth.web import WebError, fetch, path_of

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

UNKNOWN_MS: Final = 10_000
KEYS_MAX: Final = 1_000


class SigningKeys:
    """The keys at one address."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        refresh_ms: int = 3_600_000,
        backoff_ms: int = 100,
        backoff_ms_max: int = 10_000,
        read: Callable[[str], bytes] = fetch,
    ) -> None:
        self._url = url
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._backoff_ms_max = backoff_ms_max
        self._read = read
        self._lock = threading.Lock()
        self._keys: dict[str | None, PyJWK] = {}
        self._read_ms: int | None = None  # when they were read last
        self._retry_ms = 0  # not before
        self._failures = 0
        self._stamp: object = None  # of a file that was read

    def find(self, key_id: str | None) -> PyJWK | None:
        """The key of this name; without a name, the only one there is."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._is_old(now_ms):
                self._refresh(now_ms)
            found = self._lookup(key_id)
            if found is None and self._read_ms is not None and now_ms - self._read_ms >= UNKNOWN_MS:
                self._refresh(now_ms)
                found = self._lookup(key_id)
            return found

    def _lookup(self, key_id: str | None) -> PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_old(self, now_ms: int) -> bool:
        if self._read_ms is None or now_ms - self._read_ms >= self._refresh_ms:
            return True
        return path_of(self._url) is not None and self._stamp_of_file() != self._stamp

    def _stamp_of_file(self) -> object:
        try:
            stat = os.stat(path_of(self._url) or "")
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _refresh(self, now_ms: int) -> None:
        if now_ms < self._retry_ms:
            return
        stamp = self._stamp_of_file() if path_of(self._url) is not None else None
        try:
            self._keys = parse_keys(self._read(self._url))
        except (WebError, ValueError) as problem:
            self._failures += 1
            pause_ms = min(self._backoff_ms << min(self._failures - 1, 20), self._backoff_ms_max)
            self._retry_ms = now_ms + pause_ms
            logger.warning("the keys of the identity provider cannot be read: %s", problem)
            return
        self._stamp, self._read_ms, self._failures, self._retry_ms = stamp, now_ms, 0, 0

    def __repr__(self) -> str:
        return f"<SigningKeys {len(self._keys)} of {self._url}>"


def parse_keys(data: bytes) -> dict[str | None, PyJWK]:
    """Keys that signatures can be checked with, by their ids; others in the set are left out. ValueError if none is."""
    from jwt import PyJWK  # noqa: PLC0415 (slow to import, and only for this mechanism)
    from jwt.exceptions import PyJWTError  # noqa: PLC0415

    document: Any = json.loads(data)
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("there is no list of keys in it")
    found: dict[str | None, PyJWK] = {}
    for row in rows[:KEYS_MAX]:
        if not isinstance(row, dict) or row.get("kty") == "oct" or row.get("use", "sig") != "sig":
            continue  # a shared secret proves nothing: whoever can check it could have signed it
        try:
            found[row.get("kid")] = PyJWK(row)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
    if not found:
        raise ValueError("none of its keys can check a signature")
    return found
