"""Authentication (Basic or Bearer) against a file of users, and authorization by subject.

    # name : secret : rights
    alice:scrypt$…:read=* write=orders-*,payments-*
    ci:sha256$…:read=*
    anonymous::read=public-*

Rules:
1. Without a file every request is allowed, from this machine only. With one, unlisted users are denied; `anonymous`, if
   listed, is every request without a login.
2. The right to write a subject includes reading it. Global settings and all modes need the right to write `*`.
3. Subjects that a user may not read are hidden: left out of lists and lookups by ID, and 403 if named.
4. Checking a password takes 40 ms of CPU, so it runs in a thread, once; a digest keyed per process is cached. After
   five failures further attempts must wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from ottla.base.clock import Clock, SystemClock
from ottla.base.passwords import PASSWORD_LENGTH_MAX, LoginBackoff, is_password, token_digest
from ottla.registry.errors import RegistryError
from ottla.web.credentials import VerifiedPasswords, basic_credentials, read_authorization

ANONYMOUS: Final = "anonymous"
EVERYTHING: Final = "*"
RIGHTS: Final = ("read", "write")
PASSWORD_CHECKS_MAX: Final = 20  # takes less than a second of one thread
USERS_MAX: Final = 10_000
PASSWORD, TOKEN = "scrypt$", "sha256$"


CanRead = Callable[[str], bool]


class AccessError(ValueError):
    """An invalid file of users; str() is one line."""


class User(NamedTuple):
    """A user; `reads` and `writes` are subject patterns with `*` and `?`."""

    name: str
    secret: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def may_read(self, subject: str) -> bool:
        return _matches(subject, self.reads) or _matches(subject, self.writes)

    def may_write(self, subject: str | None) -> bool:
        """`subject` is None for global settings."""
        return EVERYTHING in self.writes if subject is None else _matches(subject, self.writes)


def read_users(lines: Iterable[str]) -> dict[str, User]:
    """Parse a file of users. Raises AccessError."""
    users: dict[str, User] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        parts = [part.strip() for part in text.split(":", 2)]
        if len(parts) != 3 or not parts[0]:
            raise AccessError(f"line {number}: write NAME:SECRET:read=SUBJECTS write=SUBJECTS")
        name, secret, rights = parts
        if name in users:
            raise AccessError(f"line {number}: {name} is listed twice")
        if name != ANONYMOUS and not _is_secret(secret):
            raise AccessError(f"line {number}: the secret of {name} was not created by ottla registry --new-user")
        users[name] = _user(number, name, secret, rights)
        if len(users) > USERS_MAX:
            raise AccessError(f"more than {USERS_MAX} users")
    return users


class Authenticator:
    """Authenticates the requests of a node."""

    def __init__(self, users: Mapping[str, User], clock: Clock | None = None) -> None:
        self._users = users
        self._tokens = {user.secret: user for user in users.values() if user.secret.startswith(TOKEN)}
        self._clock = clock or SystemClock()
        self._failed_attempts = LoginBackoff()
        self._verified = VerifiedPasswords[User]()
        self.checks_in_progress = 0  # passwords in progress
        self._threads = ThreadPoolExecutor(1, "registry-passwords")

    def __repr__(self) -> str:
        return f"<Authenticator of {len(self._users)} users>"

    async def user_of(self, authorization: str) -> User:
        """The user of an Authorization header. Raises RegistryError."""
        if not authorization:
            found = self._users.get(ANONYMOUS)
            if found is None:
                raise unauthorized()
            return found
        scheme, text = read_authorization(authorization)
        if scheme == "bearer":
            found = self._tokens.get(f"{TOKEN}{token_digest(text)}")
            if found is None:
                raise unauthorized()
            return found
        credentials = basic_credentials(text) if scheme == "basic" else None
        if credentials is None or len(credentials[1]) > PASSWORD_LENGTH_MAX:
            raise unauthorized()
        return await self._log_in(*credentials)

    async def _log_in(self, name: str, password: str) -> User:
        user = self._users.get(name)
        if (verified := self._verified.find(name, password, self._clock.now_ms())) is not None:
            return verified
        if self._failed_attempts.wait_ms((name,), self._clock.now_ms()) > 0:
            raise RegistryError(429, "Too many wrong passwords: wait a moment")
        await asyncio.sleep(0)  # fails the fast path, which cannot wait
        if self.checks_in_progress >= PASSWORD_CHECKS_MAX:
            raise RegistryError(429, "Too many people log in at once: wait a moment")
        kept = user.secret if user is not None and user.secret.startswith(PASSWORD) else None
        self.checks_in_progress += 1
        try:
            is_right = await asyncio.get_running_loop().run_in_executor(self._threads, is_password, password, kept)
        finally:
            self.checks_in_progress -= 1
        if user is None or not is_right:
            self._failed_attempts.record_failure((name,), self._clock.now_ms())
            raise unauthorized()
        self._failed_attempts.record_success((name,))
        self._verified.add(name, password, user, self._clock.now_ms())
        return user


def unauthorized() -> RegistryError:
    return RegistryError(401, "Unauthorized")


def denied(user: User, what: str, subject: str | None) -> RegistryError:
    name = "the global settings" if subject is None else f"subject {subject}"
    return RegistryError(40301, f"User is denied operation: {user.name} may not {what} {name}")


def _user(number: int, name: str, secret: str, rights: str) -> User:
    found: dict[str, tuple[str, ...]] = {}
    for word in rights.split():
        right, is_given, patterns = word.partition("=")
        if right not in RIGHTS or not is_given or right in found:
            raise AccessError(f"line {number}: {word} is not a right: write read=SUBJECTS write=SUBJECTS")
        found[right] = tuple(pattern for pattern in patterns.split(",") if pattern)
    return User(name, secret, found.get("read", ()), found.get("write", ()))


def _is_secret(text: str) -> bool:
    if text.startswith(TOKEN):
        return _is_hex(text.removeprefix(TOKEN), 64)
    salt, _, digest = text.removeprefix(PASSWORD).partition("$")
    return text.startswith(PASSWORD) and _is_hex(salt, 32) and _is_hex(digest, 128)


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and all(each in "0123456789abcdef" for each in text)


def _matches(subject: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(subject, pattern) for pattern in patterns)


def reads_everything(_: str) -> bool:
    return True
