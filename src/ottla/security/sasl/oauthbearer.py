"""SASL/OAUTHBEARER (RFC 7628): the client shows a token that somebody else has signed.

A token that is no good is answered with a small JSON text, which the client confirms with one byte before it is
refused: so says the RFC, and clients wait for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from ottla.security.oauth.validation import TokenError, Validate
from ottla.security.sasl.mechanism import Identity, LoginError

MECHANISM: Final = "OAUTHBEARER"
SEPARATOR: Final = b"\x01"
EXTENSION_PREFIX: Final = "extension_"
_HEADER: Final = re.compile(r"n,(?:a=([^,\0\x01]+))?,\x01")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*) *", re.IGNORECASE)


class OAuthServer:
    """The broker's side."""

    is_quick = False  # the provider's keys may have to be read first

    def __init__(self, validate: Validate) -> None:
        self.identity: Identity | None = None
        self._validate = validate
        self._refusal: str | None = None

    def step(self, token: bytes) -> bytes:
        if self._refusal is not None:
            raise LoginError(self._refusal, refusal_text())
        authorization, bearer = parse_first(token)
        try:
            claims = self._validate(bearer)
        except TokenError as problem:
            self._refusal = str(problem)
            return refusal_text().encode()
        if authorization is not None and authorization != claims.subject:
            told = (
                "Authentication failed: Client requested an authorization id "
                "that is different from the token's principal name"
            )
            raise LoginError(f"the token of {claims.subject[:100]!r} for somebody else", told)
        self.identity = Identity(f"User:{claims.subject}", claims.expires_ms)
        return b""


class OAuthClient:
    """The side of whoever logs in."""

    is_quick = False  # the token may have to be asked for first

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str]) -> None:
        """`token` raises LoginError."""
        self.is_done = False
        self._token = token
        self._extensions = extensions

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token()}", **self._extensions}
        body = "".join(f"{name}={value}\x01" for name, value in pairs.items())
        return b"n,,\x01" + body.encode() + SEPARATOR

    def step(self, token: bytes) -> bytes:
        if not token:
            self.is_done = True
            return b""
        return SEPARATOR  # it does not like our token, and says so when it has this


def refusal_text() -> str:
    return json.dumps({"status": "invalid_token"}, separators=(",", ":"))


def parse_first(token: bytes) -> tuple[str | None, str]:
    """Who the client wants to be, if it says so, and its token. Raises LoginError."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise LoginError("the token is not UTF-8") from None
    header = _HEADER.match(text)
    if header is None or not text.endswith("\x01\x01"):
        raise LoginError("the message is not of OAUTHBEARER's form")
    pairs: dict[str, str] = {}
    for part in text[header.end() : -2].split("\x01"):
        match = _PAIR.fullmatch(part)
        if match is None:
            raise LoginError("the message is not of OAUTHBEARER's form")
        pairs[match[1]] = match[2]
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise LoginError("the message brings no bearer token")
    return header[1], bearer[1]
