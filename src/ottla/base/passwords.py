"""Passwords and tokens: how they are kept, compared and made; and how often somebody may try."""

from __future__ import annotations

import hashlib
import hmac
import secrets

N, R, P = 2**14, 8, 1  # scrypt: 16 MB and some 40 ms a try
SALT_BYTES = 16
PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MAX = 8, 1024
TRIES_FREE = 5
PAUSE_MS, PAUSE_MS_MAX = 1_000, 60_000
NAMES_MAX = 10_000


def new_password() -> str:
    return secrets.token_urlsafe(15)


def hash_password(password: str, salt: bytes | None = None) -> str:
    salt = salt or secrets.token_bytes(SALT_BYTES)
    digest = hashlib.scrypt(password.encode(), salt=salt, n=N, r=R, p=P)
    return f"scrypt${salt.hex()}${digest.hex()}"


def is_password(password: str, kept: str | None) -> bool:
    """None is the password of somebody who does not exist: to refuse him takes as long."""
    if kept is None:
        hash_password(password)
        return False
    _, salt, _ = kept.split("$")
    return hmac.compare_digest(hash_password(password, bytes.fromhex(salt)), kept)


def new_token() -> str:
    return f"ottla_{secrets.token_urlsafe(32)}"


def token_digest(token: str) -> str:
    """Tokens are long and random: one round is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


class Tries:
    """Failed sign-ins by name and by address: after some, the next must wait, twice as long each time. Pure."""

    def __init__(self) -> None:
        self.failures: dict[str, tuple[int, int]] = {}  # how many, and until when the next must wait

    def wait_ms(self, keys: tuple[str, ...], now_ms: int) -> int:
        return max((self.failures.get(key, (0, 0))[1] - now_ms for key in keys), default=0)

    def failed(self, keys: tuple[str, ...], now_ms: int) -> None:
        for key in keys:
            count = self.failures.pop(key, (0, 0))[0] + 1
            pause_ms = min(PAUSE_MS << max(0, count - TRIES_FREE), PAUSE_MS_MAX) if count >= TRIES_FREE else 0
            self.failures[key] = count, now_ms + pause_ms
        while len(self.failures) > NAMES_MAX:
            del self.failures[next(iter(self.failures))]

    def succeeded(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self.failures.pop(key, None)

    def __repr__(self) -> str:
        return f"<Tries {len(self.failures)}>"
