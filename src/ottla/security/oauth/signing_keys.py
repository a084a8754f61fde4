"""The public keys of an identity provider (JWKS, RFC 7517), cached and refreshed. Used by worker threads.

Rules:
1. Keys are valid for `refresh_ms`. If a refresh fails, the old ones stay valid: the provider may be down.
2. A token with an unknown key causes an early refresh, because the provider may have a new key; but at most once per
UNKNOWN_KEY_REFRESH_MS, regardless of requests.
3. After a failure the next attempt follows after `backoff_ms`, which doubles up to `backoff_ms_max`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.base.clock import Clock
from ottla.security.oauth.http_fetch import FetchError, fetch, path_of

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

UNKNOWN_KEY_REFRESH_MS: Final = 10_000
KEYS_MAX: Final = 1_000


class JwksCache:
    """The keys at one URL."""

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
        self._read_ms: int | None = None  # time of the last successful refresh
        self._retry_ms = 0  # time of the next attempt
        self._failures = 0
        self._file_stamp: object = None  # identity of a key file

    def find(self, key_id: str | None) -> PyJWK | None:
        """Return the key with this id; without an id, the only key."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._is_old(now_ms):
                self._refresh(now_ms)
            found = self._lookup(key_id)
            if found is None and self._read_ms is not None and now_ms - self._read_ms >= UNKNOWN_KEY_REFRESH_MS:
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
        return path_of(self._url) is not None and self._stamp_of_file() != self._file_stamp

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
        except (FetchError, ValueError) as problem:
            self._failures += 1
            pause_ms = min(self._backoff_ms << min(self._failures - 1, 20), self._backoff_ms_max)
            self._retry_ms = now_ms + pause_ms
            logger.warning("cannot read the keys of the identity provider: %s", problem)
            return
        self._file_stamp, self._read_ms, self._failures, self._retry_ms = stamp, now_ms, 0, 0

    def __repr__(self) -> str:
        return f"<JwksCache {len(self._keys)} of {self._url}>"


def parse_keys(data: bytes) -> dict[str | None, PyJWK]:
    """Return the keys for verification, by id; other keys in the set are ignored.

    Raises ValueError if there is none.
    """
    from jwt import PyJWK  # noqa: PLC0415 (slow to import, and only for this mechanism)
    from jwt.exceptions import PyJWTError  # noqa: PLC0415

    document: Any = json.loads(data)
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError("the document has no list of keys")
    found: dict[str | None, PyJWK] = {}
    for row in rows[:KEYS_MAX]:
        if not isinstance(row, dict) or row.get("kty") == "oct" or row.get("use", "sig") != "sig":
            continue  # a shared secret proves nothing: every verifier could have signed the token
        try:
            found[row.get("kid")] = PyJWK(row)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
    if not found:
        raise ValueError("none of the keys can verify a signature")
    return found
