"""Hashing, comparison and generation of passwords and tokens, and the back-off after failed sign-ins."""

from __future__ import annotations

import hashlib
import hmac
import secrets

N, R, P = 2**14, 8, 1  # scrypt: 16 MB and about 40 ms per attempt
SALT_BYTES = 16
PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MAX = 8, 1024
FREE_FAILURES = 5
FREE_ADDRESS_FAILURES = 50  # of one address, for whatever names: many may share it
PAUSE_MS, PAUSE_MS_MAX = 1_000, 60_000
PAUSES_MAX = 20  # that differ: more would only make large numbers
NAMES_MAX = 10_000


def new_password() -> str:
    return secrets.token_urlsafe(15)


def hash_password(password: str, salt: bytes | None = None) -> str:
    salt = salt or secrets.token_bytes(SALT_BYTES)
    digest = hashlib.scrypt(password.encode(), salt=salt, n=N, r=R, p=P)
    return f"scrypt${salt.hex()}${digest.hex()}"


def is_password(password: str, stored_hash: str | None) -> bool:
    """`stored_hash` is None for an unknown user; the refusal takes as long, and timing reveals no user names."""
    if stored_hash is None:
        hash_password(password)
        return False
    _, salt, _ = stored_hash.split("$")
    return hmac.compare_digest(hash_password(password, bytes.fromhex(salt)), stored_hash)


def new_token() -> str:
    return f"ottla_{secrets.token_urlsafe(32)}"


def new_link_token() -> str:
    """Short enough for a link on one line of a terminal; as random as it needs to be (192 bits)."""
    return secrets.token_urlsafe(24)


def token_digest(token: str) -> str:
    """Tokens are long and random, so one hash round is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


class LoginBackoff:
    """Failed sign-ins by key: after some failures, the wait doubles with each one. Pure.

    A key that strangers can fill, such as a name alone, lets them lock out its owner.
    """

    def __init__(self) -> None:
        self.failures: dict[str, tuple[int, int]] = {}  # number of failures, and end of the wait

    def wait_ms(self, keys: tuple[str, ...], now_ms: int) -> int:
        return max((self.failures.get(key, (0, 0))[1] - now_ms for key in keys), default=0)

    def record_failure(self, keys: tuple[str, ...], now_ms: int, free: int = FREE_FAILURES) -> None:
        for key in keys:
            count = self.failures.pop(key, (0, 0))[0] + 1
            pause_ms = min(PAUSE_MS << min(count - free, PAUSES_MAX), PAUSE_MS_MAX) if count >= free else 0
            self.failures[key] = count, now_ms + pause_ms
        while len(self.failures) > NAMES_MAX:
            del self.failures[next(iter(self.failures))]

    def record_success(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self.failures.pop(key, None)

    def __repr__(self) -> str:
        return f"<LoginBackoff {len(self.failures)}>"
