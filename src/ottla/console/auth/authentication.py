"""Authentication of requests: by cookie, HTTP Basic or token.

Rules:
1. Sign-in is off only if the console listens on a loopback address and was not started with --sign-in. Then there is
   one user, `local`, identified by the token of the console's link (local_link.py). The loopback address proves
   nothing, because a proxy on the same host also connects from it.
2. Refusing an unknown name takes as long as refusing a wrong password. After some failures, further attempts for that
   name from that address are delayed; after many, all attempts from that address.
3. A password sent with every request (Basic) is hashed at most once a minute.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request

from ottla.base.clock import Clock
from ottla.base.passwords import FREE_ADDRESS_FAILURES, PASSWORD_LENGTH_MAX, LoginBackoff, is_password, token_digest
from ottla.console.api.call import Caller
from ottla.console.api.errors import ApiError, Sentence
from ottla.console.auth.rights import FULL_GRANTS, Grant
from ottla.console.auth.sessions import LIFETIME_MS, Session, Sessions
from ottla.console.store import Person, Store, Tables
from ottla.web.credentials import VerifiedPasswords, basic_credentials, read_authorization

COOKIE_NAME = "ottla_session"  # plus the port: browsers send a cookie to all ports of a host
LOCAL_USER = "local"
ANONYMOUS = ""
BASIC_KEPT_MS = 60_000
NAME_LENGTH_MAX = 100  # longer names are cut for counting failures; real names are shorter
# Headers that proxies add; also all headers with the prefix.
FORWARDED: Final = frozenset({"forwarded", "via", "x-real-ip"})
FORWARDED_PREFIX: Final = "x-forwarded"
BEARER_HEADERS: Final = {"WWW-Authenticate": "Bearer"}
NEEDS_LINK = (
    "this console serves only the user who started it: open the link that it printed at start-up (ottla console link "
    "prints it again); programs send its token as Authorization: Bearer"
)
WRONG_LINK = "this is not the token of this console, which changes at each start: ottla console link prints it"
BEHIND_PROXY = (
    "this request comes through a proxy, and this console serves only the user who started it: start it with "
    "--sign-in, or send its token"
)


class Authenticator:
    """Authenticates requests and manages sessions."""

    def __init__(
        self, store: Store, clock: Clock, *, is_needed: bool, is_secure: bool, port: int = 0, local_token: str = ""
    ) -> None:
        assert is_needed or local_token
        self.store = store
        self.clock = clock
        self.is_needed = is_needed
        self.is_secure = is_secure  # adds the Secure attribute to cookies
        self.cookie_name = f"{COOKIE_NAME}_{port}"
        self.local_digest = token_digest(local_token)  # comparing digests reveals nothing, not even the length
        self.sessions = Sessions()
        self.tries = LoginBackoff()
        self.password_lock = asyncio.Lock()
        self.verified_passwords = VerifiedPasswords[bool](BASIC_KEPT_MS)

    def __repr__(self) -> str:
        return f"<Authenticator is_needed={self.is_needed} {self.sessions}>"

    async def caller_of(self, request: Request) -> Caller:
        """The caller; without grants if the request is not authenticated."""
        address = request.client.host if request.client else ""
        scheme, word = read_authorization(request.headers.get("authorization", ""))
        if not self.is_needed and scheme == "bearer":
            return self._local_caller(word, address)
        if self.is_needed and scheme == "basic":
            return await self._basic_caller(word, address)
        if scheme == "bearer":
            return await self._bearer_caller(word, address)
        session = self._session_of(request)
        if session is None:
            return Caller(ANONYMOUS, (), address)
        return Caller(session.person, session.grants, address, session)

    def _session_of(self, request: Request) -> Session | None:
        return self.sessions.find(request.cookies.get(self.cookie_name, ""), self.clock.now_ms())

    # ---- without sign-in: the local user

    def _local_caller(self, token: str, address: str) -> Caller:
        if not self.is_local_token(token):
            raise ApiError(401, "UNAUTHENTICATED", WRONG_LINK, BEARER_HEADERS)
        return Caller(LOCAL_USER, FULL_GRANTS, address)

    def is_local_token(self, token: str) -> bool:
        return not self.is_needed and hmac.compare_digest(token_digest(token), self.local_digest)

    def start_local_session(self, request: Request) -> str:
        """Start a session after a valid token; returns the cookie value.

        An existing session is extended instead, because its end would close the streams of other tabs.
        """
        now_ms = self.clock.now_ms()
        session = self._session_of(request)
        if session is None:
            return self.sessions.start(LOCAL_USER, FULL_GRANTS, now_ms)
        session.expires_ms = now_ms + LIFETIME_MS
        return request.cookies[self.cookie_name]

    def check_not_proxied(self, request: Request) -> None:
        """Without sign-in, proxied requests need the token, because a proxy serves others. Raises ApiError."""
        if self.is_needed or not any(_is_proxy_header(name) for name in request.headers):
            return
        scheme, word = read_authorization(request.headers.get("authorization", ""))
        has_token = scheme == "bearer" and self.is_local_token(word)
        if not has_token and self._session_of(request) is None:
            raise ApiError(403, "BEHIND_PROXY", BEHIND_PROXY)

    async def sign_in(self, name: str, password: str, address: str) -> str:
        """Start a session; returns the cookie value."""
        person = await self.verify_password(name, password, address)
        return self.sessions.start(person.name, person.grants, self.clock.now_ms())

    def cookie_header(self, value: str, lifetime_ms: int = LIFETIME_MS) -> str:
        words = [
            f"{self.cookie_name}={value}",
            "Path=/",
            "HttpOnly",
            "SameSite=Strict",
            f"Max-Age={lifetime_ms // 1000}",
        ]
        return "; ".join([*words, "Secure"] if self.is_secure else words)

    def end_sessions(self, person: str) -> None:
        """End all sessions of a person whose password or rights have changed."""
        self.sessions.end_all(person)
        self.verified_passwords.discard(person)

    def unauthenticated_error(self) -> ApiError:
        if self.is_needed:
            return ApiError(401, "UNAUTHENTICATED", "sign in first")
        return ApiError(401, "UNAUTHENTICATED", NEEDS_LINK, BEARER_HEADERS)

    async def grants_of(self, name: str) -> Sequence[Grant]:
        found = [person for person in await self.store.run(Tables.people) if person.name == name]
        return found[0].grants if found else ()

    async def verify_password(self, name: str, password: str, address: str) -> Person:
        async with self.password_lock:  # one at a time, so that earlier failures are counted
            return await self._verify_password(name, password, address)

    async def _verify_password(self, name: str, password: str, address: str) -> Person:
        place = f"address {address[:NAME_LENGTH_MAX]}"
        person_there = f"{place} name {name[:NAME_LENGTH_MAX]}"  # with the name alone, others could lock its owner out
        wait_ms = self.tries.wait_ms((place, person_there), self.clock.monotonic_ms())
        if wait_ms > 0:
            seconds = -(-wait_ms // 1000)
            words = Sentence("too many wrong passwords: try again in {0} s", seconds)
            raise ApiError(429, "TOO_MANY_TRIES", words, {"Retry-After": str(seconds)})
        person = next((each for each in await self.store.run(Tables.people) if each.name == name), None)
        kept = person.password if person is not None else None
        is_right = await asyncio.to_thread(is_password, password[:PASSWORD_LENGTH_MAX], kept)
        if person is None or not is_right:
            self.tries.record_failure((person_there,), self.clock.monotonic_ms())
            self.tries.record_failure((place,), self.clock.monotonic_ms(), FREE_ADDRESS_FAILURES)
            raise ApiError(401, "WRONG_PASSWORD", "wrong name or password")
        self.tries.record_success((place, person_there))
        return person

    async def _basic_caller(self, word: str, address: str) -> Caller:
        credentials = basic_credentials(word)
        if credentials is None:
            raise ApiError(401, "UNAUTHENTICATED", "this is not HTTP Basic authentication")
        name, password = credentials
        now_ms, verified = self.clock.monotonic_ms(), self.verified_passwords
        if not verified.find(name, password, now_ms):
            async with self.password_lock:
                if not verified.find(name, password, now_ms):  # verified by another request meanwhile
                    await self._verify_password(name, password, address)
                    verified.add(name, password, True, now_ms)
        return await self._request_caller(name, address)

    async def _bearer_caller(self, word: str, address: str) -> Caller:
        digest = token_digest(word)
        for token in await self.store.run(Tables.tokens):
            if hmac.compare_digest(token.digest, digest):
                return await self._request_caller(token.person, address, digest)
        raise ApiError(401, "UNAUTHENTICATED", "this token is not known")

    async def _request_caller(self, name: str, address: str, token: str = "") -> Caller:
        """The caller of a request with its own credentials."""
        grants = await self.grants_of(name)
        return Caller(name, grants, address, self.sessions.start_for_request(name, grants, self.clock.now_ms(), token))


def _is_proxy_header(header: str) -> bool:
    return header in FORWARDED or header.startswith(FORWARDED_PREFIX)
