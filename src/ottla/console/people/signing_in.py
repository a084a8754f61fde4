"""Who asks: found by cookie, by HTTP Basic or by a token; or nobody needs to, where only this machine can ask.

Rules:
1. Sign-in is off only if the console listens on a loopback address and nobody asked for it: then everybody is `local`.
2. A name that does not exist takes as long to refuse as a wrong password; after some failures the next must wait.
3. A password that comes with every request (Basic) is hashed once a minute at most.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from starlette.requests import Request

from ottla.base.clock import Clock
from ottla.base.passwords import PASSWORD_LENGTH_MAX, Tries, is_password, token_digest
from ottla.console.api.call import Caller
from ottla.console.api.errors import ApiError, Sentence
from ottla.console.people.rights import EVERYTHING, Grant
from ottla.console.people.sessions import LIFE_MS, Sessions
from ottla.console.store import Person, Store, Tables

COOKIE = "ottla_session"
LOCAL = "local"
NOBODY = ""
BASIC_KEPT_MS = 60_000
BASIC_KEPT_MAX = 1_000
NAME_LENGTH_MAX = 100  # of those whose failures are counted; nobody has a longer one


class SigningIn:
    """Callers by what their requests show."""

    def __init__(self, store: Store, clock: Clock, *, is_needed: bool, is_secure: bool) -> None:
        self.store = store
        self.clock = clock
        self.is_needed = is_needed
        self.is_secure = is_secure  # over TLS: the cookie goes nowhere else
        self.sessions = Sessions()
        self.tries = Tries()
        self.proving = asyncio.Lock()
        self.key = secrets.token_bytes(32)
        self.proven: dict[bytes, tuple[int, str]] = {}  # passwords that were right lately, as digests

    def __repr__(self) -> str:
        return f"<SigningIn is_needed={self.is_needed} {self.sessions}>"

    async def caller_of(self, request: Request) -> Caller:
        """Whoever asks; without grants if he has not signed in."""
        address = request.client.host if request.client else ""
        if not self.is_needed:
            return Caller(LOCAL, EVERYTHING, address)
        scheme, _, word = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            return await self._basic(word, address)
        if scheme.lower() == "bearer":
            return await self._bearer(word.strip(), address)
        session = self.sessions.find(request.cookies.get(COOKIE, ""), self.clock.now_ms())
        if session is None:
            return Caller(NOBODY, (), address)
        return Caller(session.person, session.grants, address, session)

    async def sign_in(self, name: str, password: str, address: str) -> str:
        """Begin a session: the value of its cookie."""
        person = await self.prove(name, password, address)
        return self.sessions.begin(person.name, person.grants, self.clock.now_ms())

    def cookie(self, value: str, life_ms: int = LIFE_MS) -> str:
        words = [f"{COOKIE}={value}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={life_ms // 1000}"]
        return "; ".join([*words, "Secure"] if self.is_secure else words)

    def forget(self, person: str) -> None:
        """His password or rights have changed: whatever he has proven counts no more."""
        self.sessions.end_all_of(person)
        self.proven = {digest: item for digest, item in self.proven.items() if item[1] != person}

    def refusal(self) -> ApiError:
        return ApiError(401, "UNAUTHENTICATED", "sign in first")

    async def grants_of(self, name: str) -> Sequence[Grant]:
        found = [person for person in await self.store.run(Tables.people) if person.name == name]
        return found[0].grants if found else ()

    async def prove(self, name: str, password: str, address: str) -> Person:
        async with self.proving:  # one after the other: the failures of those before count
            return await self._prove(name, password, address)

    async def _prove(self, name: str, password: str, address: str) -> Person:
        keys = (f"name {name[:NAME_LENGTH_MAX]}", f"address {address[:NAME_LENGTH_MAX]}")
        wait_ms = self.tries.wait_ms(keys, self.clock.monotonic_ms())
        if wait_ms > 0:
            seconds = -(-wait_ms // 1000)
            words = Sentence("too many wrong passwords: try again in {0} s", seconds)
            raise ApiError(429, "TOO_MANY_TRIES", words, {"Retry-After": str(seconds)})
        person = next((each for each in await self.store.run(Tables.people) if each.name == name), None)
        kept = person.password if person is not None else None
        is_right = await asyncio.to_thread(is_password, password[:PASSWORD_LENGTH_MAX], kept)
        if person is None or not is_right:
            self.tries.failed(keys, self.clock.monotonic_ms())
            raise ApiError(401, "WRONG_PASSWORD", "this name and password do not belong together")
        self.tries.succeeded(keys)
        return person

    async def _basic(self, word: str, address: str) -> Caller:
        try:
            name, _, password = base64.b64decode(word, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise ApiError(401, "UNAUTHENTICATED", "this is not HTTP Basic authentication") from None
        digest = hmac.new(self.key, f"{name}:{password}".encode(), hashlib.sha256).digest()
        now_ms = self.clock.monotonic_ms()
        self.proven = {each: item for each, item in self.proven.items() if now_ms - item[0] < BASIC_KEPT_MS}
        if digest not in self.proven:
            async with self.proving:
                if digest not in self.proven:  # meanwhile, by another request
                    await self._prove(name, password, address)
                    if len(self.proven) < BASIC_KEPT_MAX:
                        self.proven[digest] = now_ms, name
        return await self._once(name, address)

    async def _bearer(self, word: str, address: str) -> Caller:
        digest = token_digest(word)
        for token in await self.store.run(Tables.tokens):
            if hmac.compare_digest(token.digest, digest):
                return await self._once(token.person, address, digest)
        raise ApiError(401, "UNAUTHENTICATED", "this token is not known")

    async def _once(self, name: str, address: str, token: str = "") -> Caller:
        """Somebody who proves himself with each request."""
        grants = await self.grants_of(name)
        return Caller(name, grants, address, self.sessions.of_request(name, grants, self.clock.now_ms(), token))
