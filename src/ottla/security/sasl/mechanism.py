"""What a SASL mechanism is, on both sides of a connection: tokens go in, tokens come out, nobody touches a socket.

Rules:
1. An exchange is made for one login and used once. `step` takes what the other side has sent and returns what to send.
2. A step that reads files or asks other servers says so (`is_quick = False`): a worker runs it, never the event loop.
3. Whatever is wrong with a login raises LoginError. What the client is told never says whether the name or the
   password was wrong; the reason for the log may.
"""

from __future__ import annotations

from typing import Protocol


class LoginError(Exception):
    """A login that failed. `told` goes to the client, the exception's own text into the log."""

    def __init__(self, reason: str, told: str = "Authentication failed") -> None:
        super().__init__(reason)
        self.told = told


class Identity:
    """Who has logged in, and until when that is good."""

    def __init__(self, principal: str, expires_ms: int | None = None, *, is_delegated: bool = False) -> None:
        """`principal` as Kafka writes it, with its type: `User:alice`; `expires_ms` by the wall clock."""
        self.principal = principal
        self.expires_ms = expires_ms
        self.is_delegated = is_delegated  # by a delegation token: it is good for anything but tokens

    def __repr__(self) -> str:
        return f"<Identity {self.principal}>"


class ServerExchange(Protocol):
    """The broker's side of one login."""

    @property
    def is_quick(self) -> bool:
        """Of the next step."""
        ...

    identity: Identity | None  # when the login has succeeded; the last token still goes out

    def step(self, token: bytes) -> bytes: ...


class ClientExchange(Protocol):
    """The side of whoever logs in: a tool, or a broker at another one."""

    is_quick: bool
    is_done: bool  # nothing more is expected from the other side

    def first(self) -> bytes: ...

    def step(self, token: bytes) -> bytes: ...
