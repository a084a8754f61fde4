"""SASL/PLAIN (RFC 4616): a name and a password in clear text. Use it with TLS."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from ottla.security.sasl.exchange import Identity, LoginError

MECHANISM: Final = "PLAIN"
USER_PREFIX: Final = "user_"
INVALID_CREDENTIALS: Final = "Authentication failed: Invalid username or password"


def users_in(options: Mapping[str, str]) -> dict[str, bytes]:
    """Return names and passwords in a login module's options: `user_alice="secret"`."""
    return {
        name.removeprefix(USER_PREFIX): password.encode()
        for name, password in options.items()
        if name.startswith(USER_PREFIX)
    }


class PlainServer:
    """The broker side."""

    is_non_blocking = True
    is_refused = False

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self.identity: Identity | None = None

    def claimed_user(self, token: bytes) -> str | None:
        parts = token.split(b"\0", 2)
        return parts[1].decode("utf-8", "replace") or None if len(parts) == 3 else None

    def step(self, token: bytes) -> bytes:
        assert self.identity is None, "an exchange is used once"
        parts = token.split(b"\0")
        if len(parts) != 3:
            told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise LoginError("the token is not a valid PLAIN message", told)
        try:
            authorization, name = parts[0].decode(), parts[1].decode()
            parts[2].decode()
        except UnicodeDecodeError:
            raise LoginError("the token is not UTF-8", INVALID_CREDENTIALS) from None
        if not name:
            raise LoginError("no name", "Authentication failed: username not specified")
        if not parts[2]:
            raise LoginError("no password", "Authentication failed: password not specified")
        expected = self._users.get(name)
        # The check of an unknown name takes as long as that of a wrong password.
        is_right = hmac.compare_digest(expected if expected is not None else parts[2] + b"\0", parts[2])
        if not is_right or not expected:
            raise LoginError(f"wrong password, or unknown user {name[:100]!r}", INVALID_CREDENTIALS)
        if authorization and authorization != name:
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginError(f"{name!r} sent another authorization id", told)
        self.identity = Identity(f"User:{name}")
        return b""


class PlainClient:
    """The client side."""

    is_non_blocking = True

    def __init__(self, name: str, password: str) -> None:
        self._name = name
        self._password = password
        self.is_done = False

    def first(self) -> bytes:
        return b"\0" + self._name.encode() + b"\0" + self._password.encode()

    def step(self, token: bytes) -> bytes:
        self.is_done = True
        if token:
            raise LoginError("the broker sent a token for PLAIN")
        return b""
