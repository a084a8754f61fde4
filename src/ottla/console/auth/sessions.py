"""Sessions in memory, of at most twelve hours. The end of a session ends its streams.

A request with its own credentials (Basic, token) has a session for its duration: its stream ends when the token or the
rights change.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from weakref import WeakSet

from ottla.console.auth.rights import Grant

LIFETIME_MS = 12 * 3600 * 1000
SESSIONS_MAX = 10_000


class Session:
    """An authenticated person; `ended` is set at the end of the session."""

    def __init__(self, person: str, grants: Sequence[Grant], expires_ms: int, token: str = "") -> None:
        self.person = person
        self.token = token  # the digest of the token, if there is one
        self.grants = grants
        self.expires_ms = expires_ms
        self.ended = asyncio.Event()

    def has_ended(self, now_ms: int) -> bool:
        return self.ended.is_set() or self.expires_ms <= now_ms

    def __repr__(self) -> str:
        return f"<Session {self.person}>"


class Sessions:
    """Sessions by the secret in their cookie."""

    def __init__(self) -> None:
        self.by_secret: dict[str, Session] = {}
        self.per_request: WeakSet[Session] = WeakSet()  # sessions of single requests

    def __repr__(self) -> str:
        return f"<Sessions {len(self.by_secret)}>"

    def start(self, person: str, grants: Sequence[Grant], now_ms: int) -> str:
        self._expire(now_ms)
        while len(self.by_secret) >= SESSIONS_MAX:
            self.end(next(iter(self.by_secret)))
        secret = secrets.token_urlsafe(32)
        self.by_secret[secret] = Session(person, grants, now_ms + LIFETIME_MS)
        return secret

    def start_for_request(self, person: str, grants: Sequence[Grant], now_ms: int, token: str = "") -> Session:
        session = Session(person, grants, now_ms + LIFETIME_MS, token)
        self.per_request.add(session)
        return session

    def find(self, secret: str, now_ms: int) -> Session | None:
        session = self.by_secret.get(secret)
        if session is not None and session.expires_ms <= now_ms:
            self.end(secret)
            return None
        return session

    def end(self, secret: str) -> None:
        session = self.by_secret.pop(secret, None)
        if session is not None:
            session.ended.set()

    def end_all(self, person: str) -> None:
        """End all sessions of a person: the password or the rights changed, or the person was removed."""
        for secret in [secret for secret, session in self.by_secret.items() if session.person == person]:
            self.end(secret)
        for session in [session for session in self.per_request if session.person == person]:
            session.ended.set()

    def change_grants(self, person: str, grants: Sequence[Grant]) -> None:
        """Apply new grants to running sessions, when a person edits their own."""
        for session in self.by_secret.values():
            if session.person == person:
                session.grants = grants

    def end_token(self, token: str) -> None:
        for session in [session for session in self.per_request if session.token == token]:
            session.ended.set()

    def _expire(self, now_ms: int) -> None:
        for secret in [secret for secret, session in self.by_secret.items() if session.expires_ms <= now_ms]:
            self.end(secret)
