"""A TLS context that follows its files and settings while connections go on.

Rules:
1. Connections that are open keep the context that they were made with; new ones get the newest that is good.
2. A change that cannot be used is told once, with its cause, and the old context stays.
3. As with Kafka, a renewed certificate bears the same name and at least the same hosts, unless ssl.allow.dn.changes or
   ssl.allow.san.changes say otherwise: a file that was swapped by mistake is noticed before anybody trusts it.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable

from ottla.base.broker_keys.tls import TlsKeys
from ottla.security.certificates import Certificate
from ottla.security.tls import TlsContext, TlsError, watched_files

logger = logging.getLogger(__name__)

EXPIRY_WARNING_DAYS = 30.0
Stamp = tuple[tuple[int, int, int] | None, ...]


class LiveContext:
    """`refresh` runs in a worker, whoever makes connections asks `context` at any time."""

    def __init__(self, name: str, keys: TlsKeys, make: Callable[[TlsKeys], TlsContext]) -> None:
        """Raises TlsError."""
        self.name = name
        self._keys = keys
        self._make = make
        self._stamp = _stamp(keys)
        self._made = make(keys)
        self.reloads = 0
        self.refusals = 0

    def context(self) -> ssl.SSLContext:
        return self._made.context

    @property
    def certificate(self) -> Certificate | None:
        """Ours, if we show one."""
        return self._made.certificate

    def refresh(self, keys: TlsKeys, is_asked: bool = False) -> None:
        """Make a new context if files or settings have changed, or if somebody asks for it."""
        stamp = _stamp(keys)
        if stamp == self._stamp and dict(keys.texts) == dict(self._keys.texts) and not is_asked:
            return
        self._stamp, self._keys = stamp, keys
        try:
            self._made = self._renewed(keys)
        except TlsError as problem:
            self.refusals += 1
            logger.warning("%s: new certificates are not used: %s; the old ones stay in force", self.name, problem)
        else:
            self.reloads += 1
            logger.info("%s: new certificates are in force", self.name)

    def check(self, keys: TlsKeys) -> None:
        """Whether `refresh` would use these. Raises TlsError."""
        self._renewed(keys)

    def _renewed(self, keys: TlsKeys) -> TlsContext:
        made = self._make(keys)
        before, after = self._made.certificate, made.certificate
        if before is not None and after is not None:
            problem = _change_problem(before, after, keys)
            if problem is not None:
                raise TlsError(problem)
        return made

    def __repr__(self) -> str:
        return f"<LiveContext {self.name}, {self.reloads} reloads>"


def _change_problem(before: Certificate, after: Certificate, keys: TlsKeys) -> str | None:
    if before.subject != after.subject and not keys.ssl_allow_dn_changes:
        return (
            f"Keystore DistinguishedName does not match: existing {before.subject}, new {after.subject} "
            "(ssl.allow.dn.changes=true allows it)"
        )
    missing = before.alternative_names - after.alternative_names
    if missing and not keys.ssl_allow_san_changes:
        names = ", ".join(
            sorted(value.decode("utf-8", "replace") if kind != 7 else _address(value) for kind, value in missing)
        )
        return f"Keystore SubjectAltNames do not match: {names} is missing (ssl.allow.san.changes=true allows it)"
    return None


def _address(packed: bytes) -> str:
    return ".".join(map(str, packed)) if len(packed) == 4 else packed.hex(":", 2)


def _stamp(keys: TlsKeys) -> Stamp:
    """Another one whenever a file was written anew."""
    found: list[tuple[int, int, int] | None] = []
    for path in watched_files(keys):
        try:
            status = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
