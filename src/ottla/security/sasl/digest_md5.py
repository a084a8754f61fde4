"""SASL/DIGEST-MD5 (RFC 2831), the client side: ZooKeeper's login with a name and a password. Pure.

The password is not sent, but an eavesdropper can test guesses against the messages: use it with TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

from ottla.security.sasl.exchange import LoginError

MECHANISM: Final = "DIGEST-MD5"
COUNT: Final = b"00000001"  # nonce count: each nonce is used once
QUALITY: Final = b"auth"
_DIRECTIVE: Final = re.compile(rb'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",]*))\s*(?:,|$)', re.DOTALL)


class DigestMd5Client:
    """`first` is empty, because the server sends the first message; both sides prove that they know the password."""

    is_non_blocking = True

    def __init__(self, name: str, password: str, service: str, host: str, random_hex: Callable[[], str]) -> None:
        self._name = name
        self._password = password
        self._uri = f"{service}/{host}".encode()
        self._random_hex = random_hex
        self._expected: bytes | None = None
        self.is_done = False

    def first(self) -> bytes:
        return b""

    def step(self, token: bytes) -> bytes:
        directives = parse_directives(token)
        if self._expected is None:
            return self._answer(directives)
        if not hmac.compare_digest(directives.get("rspauth", b""), self._expected):
            raise LoginError("the server failed to prove that it knows the password")
        self.is_done = True
        return b""

    def _answer(self, challenge: dict[str, bytes]) -> bytes:
        nonce = challenge.get("nonce")
        if not nonce:
            raise LoginError("the server does not offer DIGEST-MD5 (it has no section Server in its JAAS file)")
        if QUALITY not in re.split(rb"[,\s]+", challenge.get("qop", QUALITY)):
            raise LoginError("the server requires the encryption of DIGEST-MD5, which is not safe: use TLS")
        is_utf8 = challenge.get("charset", b"").lower() == b"utf-8"
        realm, own_nonce = challenge.get("realm", b""), self._random_hex().encode()
        name, password = _encoded(self._name, is_utf8), _encoded(self._password, is_utf8)
        # RFC 2831: text that fits into Latin-1 is hashed as Latin-1, even with UTF-8.
        hashed_name, hashed_password = (_latin1(text) if is_utf8 else text for text in (name, password))
        secret = bytes.fromhex(_hex(b":".join((hashed_name, realm, hashed_password))).decode())
        proof = _hex(b":".join((secret, nonce, own_nonce)))

        def response(method: bytes) -> bytes:
            return _hex(b":".join((proof, nonce, COUNT, own_nonce, QUALITY, _hex(method + b":" + self._uri))))

        self._expected = response(b"")
        parts = [b"charset=utf-8"] if is_utf8 else []
        parts += [b'username="%s"' % _escaped(name), b'realm="%s"' % _escaped(realm), b'nonce="%s"' % _escaped(nonce)]
        parts += [b"nc=" + COUNT, b'cnonce="%s"' % own_nonce, b'digest-uri="%s"' % _escaped(self._uri)]
        parts += [b"maxbuf=65536", b"response=" + response(b"AUTHENTICATE"), b"qop=" + QUALITY]
        return b",".join(parts)


def parse_directives(token: bytes) -> dict[str, bytes]:
    """Parse `name=value,name="value"`; the first invalid part ends the list."""
    found: dict[str, bytes] = {}
    position = 0
    while match := _DIRECTIVE.match(token, position):
        quoted, bare = match[2], match[3]
        value = re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL) if quoted is not None else bare.strip()
        found.setdefault(match[1].decode("ascii").lower(), value)
        position = match.end()
    return found


def _encoded(text: str, is_utf8: bool) -> bytes:
    try:
        return text.encode("utf-8" if is_utf8 else "latin-1")
    except UnicodeEncodeError:
        raise LoginError("the server does not support these characters in names and passwords") from None


def _latin1(encoded: bytes) -> bytes:
    try:
        return encoded.decode().encode("latin-1")
    except UnicodeEncodeError:
        return encoded


def _hex(data: bytes) -> bytes:
    """Return an MD5 hash, which is part of the mechanism; TLS must provide the protection."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest().encode()


def _escaped(value: bytes) -> bytes:
    return re.sub(rb'(["\\])', rb"\\\1", value)
