"""Who may what: people of a file, who log in with a password (Basic) or a token (Bearer), and rights by subject.

    # name : secret : rights
    alice:scrypt$…:read=* write=orders-*,payments-*
    ci:sha256$…:read=*
    anonymous::read=public-*

Rules:
1. Without a file everybody may do everything, on this machine alone. With one, who is not in it may do nothing;
   `anonymous`, if it is there, is whoever does not log in.
2. Who may write a subject may read it. Settings of everything, and all modes, are changed by who may write `*`.
3. What somebody may not read is not there for him: not in lists, not by id (403 where he names it).
4. A password costs 40 ms of a core: it is checked in a thread, once, and remembered as a digest with a key of this
   process. After five wrong ones the next must wait.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from ottla.base.clock import Clock, SystemClock
from ottla.base.passwords import PASSWORD_LENGTH_MAX, Tries, is_password, token_digest
from ottla.registry.errors import RegistryError

ANONYMOUS: Final = "anonymous"
EVERYTHING: Final = "*"
RIGHTS: Final = ("read", "write")
REMEMBERED_MAX: Final = 1_000
CHECKING_MAX: Final = 20  # less than a second of one thread
USERS_MAX: Final = 10_000
PASSWORD, TOKEN = "scrypt$", "sha256$"


Sees = Callable[[str], bool]


class AccessError(ValueError):
    """A file of users that makes no sense; str() is one line."""


class User(NamedTuple):
    """`reads` and `writes` are patterns of subjects with `*` and `?`."""

    name: str
    secret: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def may_read(self, subject: str) -> bool:
        return _fits(subject, self.reads) or _fits(subject, self.writes)

    def may_write(self, subject: str | None) -> bool:
        """None is everything."""
        return EVERYTHING in self.writes if subject is None else _fits(subject, self.writes)


def read_users(lines: Iterable[str]) -> dict[str, User]:
    """Raises AccessError."""
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
            raise AccessError(f"line {number}: {name} is there twice")
        if name != ANONYMOUS and not _is_secret(secret):
            raise AccessError(f"line {number}: the secret of {name} is not one that ottla registry --new-user makes")
        users[name] = _user(number, name, secret, rights)
        if len(users) > USERS_MAX:
            raise AccessError(f"more than {USERS_MAX} users")
    return users


class Access:
    """One for all requests of a node."""

    def __init__(self, users: Mapping[str, User], clock: Clock | None = None) -> None:
        self._users = users
        self._tokens = {user.secret: user for user in users.values() if user.secret.startswith(TOKEN)}
        self._clock = clock or SystemClock()
        self._tries = Tries()
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, User] = {}
        self.checking = 0  # passwords
        self._threads = ThreadPoolExecutor(1, "registry-passwords")

    def __repr__(self) -> str:
        return f"<Access of {len(self._users)} users>"

    async def user_of(self, authorization: str) -> User:
        """Who sends this header; raises RegistryError."""
        if not authorization:
            found = self._users.get(ANONYMOUS)
            if found is None:
                raise unauthorized()
            return found
        kind, _, rest = authorization.partition(" ")
        if kind.lower() == "bearer":
            found = self._tokens.get(f"{TOKEN}{token_digest(rest.strip())}")
            if found is None:
                raise unauthorized()
            return found
        if kind.lower() != "basic":
            raise unauthorized()
        return await self._log_in(*_credentials(rest))

    async def _log_in(self, name: str, password: str) -> User:
        user = self._users.get(name)
        digest = hashlib.blake2b(f"{name}\0{password}".encode(), key=self._key).digest()
        if (remembered := self._remembered.get(digest)) is not None:
            return remembered
        if self._tries.wait_ms((name,), self._clock.now_ms()) > 0:
            raise RegistryError(429, "Too many wrong passwords: wait a moment")
        await asyncio.sleep(0)  # whoever wants an answer at once learns here that he has to wait
        if self.checking >= CHECKING_MAX:
            raise RegistryError(429, "Too many people log in at once: wait a moment")
        kept = user.secret if user is not None and user.secret.startswith(PASSWORD) else None
        self.checking += 1
        try:
            is_right = await asyncio.get_running_loop().run_in_executor(self._threads, is_password, password, kept)
        finally:
            self.checking -= 1
        if user is None or not is_right:
            self._tries.failed((name,), self._clock.now_ms())
            raise unauthorized()
        self._tries.succeeded((name,))
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[digest] = user
        return user


def unauthorized() -> RegistryError:
    return RegistryError(401, "Unauthorized")


def denied(user: User, what: str, subject: str | None) -> RegistryError:
    name = "the global settings" if subject is None else f"subject {subject}"
    return RegistryError(40301, f"User is denied operation: {user.name} may not {what} {name}")


def _credentials(text: str) -> tuple[str, str]:
    try:
        name, is_pair, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise unauthorized() from None
    if not is_pair or len(password) > PASSWORD_LENGTH_MAX:
        raise unauthorized()
    return name, password


def _user(number: int, name: str, secret: str, rights: str) -> User:
    found: dict[str, tuple[str, ...]] = {}
    for word in rights.split():
        right, is_given, patterns = word.partition("=")
        if right not in RIGHTS or not is_given or right in found:
            raise AccessError(f"line {number}: {word} is no right: write read=SUBJECTS write=SUBJECTS")
        found[right] = tuple(pattern for pattern in patterns.split(",") if pattern)
    return User(name, secret, found.get("read", ()), found.get("write", ()))


def _is_secret(text: str) -> bool:
    if text.startswith(TOKEN):
        return _is_hex(text.removeprefix(TOKEN), 64)
    salt, _, digest = text.removeprefix(PASSWORD).partition("$")
    return text.startswith(PASSWORD) and _is_hex(salt, 32) and _is_hex(digest, 128)


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and all(each in "0123456789abcdef" for each in text)


def _fits(subject: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(subject, pattern) for pattern in patterns)


def sees_everything(_: str) -> bool:
    return True
