"""The interface of SASL mechanisms, on both sides of a connection: tokens in, tokens out, no socket.

Rules:
1. An exchange belongs to one login. `step` takes a token of the peer and returns the next one to send.
2. A step that reads files or calls other servers has `is_non_blocking = False`: a worker thread runs it.
3. Every failure raises LoginError. The message for the client never reveals whether the name or the password was wrong;
   the reason for the log may.
4. An exchange returns the user whose secret its next step checks, before the check: failing logins are throttled by
   user (security/login_throttle.py).
"""

from __future__ import annotations

from typing import Protocol


class LoginError(Exception):
    """A failed login. `client_message` is sent to the client, the exception's own text is logged."""

    def __init__(self, reason: str, client_message: str = "Authentication failed") -> None:
        super().__init__(reason)
        self.client_message = client_message


class Identity:
    """The authenticated principal, and the expiry of the login."""

    def __init__(self, principal: str, expires_ms: int | None = None, *, is_delegated: bool = False) -> None:
        """`principal` has its type, as in Kafka: `User:alice`; `expires_ms` is wall-clock time."""
        self.principal = principal
        self.expires_ms = expires_ms
        self.is_delegated = is_delegated  # through a delegation token, which cannot create further tokens

    def __repr__(self) -> str:
        return f"<Identity {self.principal}>"


class ServerExchange(Protocol):
    """The broker's side of one login."""

    @property
    def is_non_blocking(self) -> bool:
        """Whether the next step does not block."""
        ...

    @property
    def is_refused(self) -> bool:
        """Whether the login has failed, although the last step returned a token to send:

        the next step raises LoginError.
        """
        ...

    identity: Identity | None  # set after a successful login; the last token is still sent

    def claimed_user(self, token: bytes) -> str | None:
        """Return the user whose secret `step` would check with this token; None if there is none. Never raises."""
        ...

    def step(self, token: bytes) -> bytes: ...


class ClientExchange(Protocol):
    """The client's side of one login: a tool, or a broker that connects to another one."""

    is_non_blocking: bool
    is_done: bool  # no further token is expected from the broker

    def first(self) -> bytes: ...

    def step(self, token: bytes) -> bytes: ...
