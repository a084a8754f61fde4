"""What the Authorization header of a request contains, and the passwords that were right lately."""

from __future__ import annotations

import base64
import hashlib
import math
import secrets
from typing import Final, Generic, TypeVar

T = TypeVar("T")
VERIFIED_MAX: Final = 1_000


def read_authorization(header: str) -> tuple[str, str]:
    """The scheme in lower case, and the credentials."""
    scheme, _, credentials = header.partition(" ")
    return scheme.lower(), credentials.strip()


def basic_credentials(text: str) -> tuple[str, str] | None:
    """Name and password of HTTP Basic; None if this is something else."""
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except ValueError:  # not base64, or not UTF-8
        return None
    return (name, password) if colon else None


class VerifiedPasswords(Generic[T]):
    """Passwords that were right, with the values of their users: to hash one takes 40 ms of CPU.

    They are kept as digests under a key of this process.
    """

    def __init__(self, kept_ms: float = math.inf) -> None:
        self._kept_ms = kept_ms
        self._key = secrets.token_bytes(32)
        self._found: dict[bytes, tuple[int, str, T]] = {}  # by digest: time, name, value

    def __repr__(self) -> str:
        return f"<VerifiedPasswords {len(self._found)}>"

    def find(self, name: str, password: str, now_ms: int) -> T | None:
        found = self._found.get(self._digest(name, password))
        return found[2] if found is not None and now_ms - found[0] < self._kept_ms else None

    def add(self, name: str, password: str, value: T, now_ms: int) -> None:
        while len(self._found) >= VERIFIED_MAX:
            del self._found[next(iter(self._found))]
        self._found[self._digest(name, password)] = now_ms, name, value

    def discard(self, name: str) -> None:
        self._found = {digest: item for digest, item in self._found.items() if item[1] != name}

    def _digest(self, name: str, password: str) -> bytes:
        return hashlib.blake2b(f"{name}\0{password}".encode(), key=self._key).digest()
