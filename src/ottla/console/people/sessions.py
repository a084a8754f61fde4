"""Who is signed in. Sessions live in memory, twelve hours at most; signing out ends what runs under one.

Whoever proves himself with each request has a session for as long as that is answered: a stream ends with the token or
the rights under which it began.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from weakref import WeakSet

from ottla.console.people.rights import Grant

LIFE_MS = 12 * 3600 * 1000
SESSIONS_MAX = 10_000


class Session:
    """Somebody who has proven who he is; `ended` is set when that is over."""

    def __init__(self, person: str, grants: Sequence[Grant], until_ms: int, token: str = "") -> None:
        self.person = person
        self.token = token  # its digest, if that is how he has proven it
        self.grants = grants
        self.until_ms = until_ms
        self.ended = asyncio.Event()

    def is_over(self, now_ms: int) -> bool:
        return self.ended.is_set() or self.until_ms <= now_ms

    def __repr__(self) -> str:
        return f"<Session {self.person}>"


class Sessions:
    """Sessions by the secret in their cookie."""

    def __init__(self) -> None:
        self.by_secret: dict[str, Session] = {}
        self.passing: WeakSet[Session] = WeakSet()  # of single requests

    def __repr__(self) -> str:
        return f"<Sessions {len(self.by_secret)}>"

    def begin(self, person: str, grants: Sequence[Grant], now_ms: int) -> str:
        self._expire(now_ms)
        while len(self.by_secret) >= SESSIONS_MAX:
            self.end(next(iter(self.by_secret)))
        secret = secrets.token_urlsafe(32)
        self.by_secret[secret] = Session(person, grants, now_ms + LIFE_MS)
        return secret

    def of_request(self, person: str, grants: Sequence[Grant], now_ms: int, token: str = "") -> Session:
        session = Session(person, grants, now_ms + LIFE_MS, token)
        self.passing.add(session)
        return session

    def find(self, secret: str, now_ms: int) -> Session | None:
        session = self.by_secret.get(secret)
        if session is not None and session.until_ms <= now_ms:
            self.end(secret)
            return None
        return session

    def end(self, secret: str) -> None:
        session = self.by_secret.pop(secret, None)
        if session is not None:
            session.ended.set()

    def end_all_of(self, person: str) -> None:
        """His password or his rights have changed, or he is gone."""
        for secret in [secret for secret, session in self.by_secret.items() if session.person == person]:
            self.end(secret)
        for session in [session for session in self.passing if session.person == person]:
            session.ended.set()

    def change_grants(self, person: str, grants: Sequence[Grant]) -> None:
        """Somebody has changed his own, and stays signed in."""
        for session in self.by_secret.values():
            if session.person == person:
                session.grants = grants

    def end_token(self, token: str) -> None:
        for session in [session for session in self.passing if session.token == token]:
            session.ended.set()

    def _expire(self, now_ms: int) -> None:
        for secret in [secret for secret, session in self.by_secret.items() if session.until_ms <= now_ms]:
            self.end(secret)
