"""SASL/OAUTHBEARER (RFC 7628): the client sends a signed token of an identity provider.

An invalid token gets a JSON error, which the client confirms with one byte before the login fails, as the RFC requires.

Rules:
1. Only tokens with a signature of the identity provider are accepted. `alg=none` requires a broker with Kafka's class
   for it (UNSECURED); it is never a default.
2. Subject, issue time and expiry are required; issuer and audience are compared if the broker has expected values.
3. The client only gets `invalid_token`; the log has the reason, and never the token.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.security.sasl.exchange import Identity, LoginError

if TYPE_CHECKING:
    from ottla.security.oauth.signing_keys import JwksCache


UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
TOKEN_BYTES_MAX: Final = 64 * 1024


class TokenError(Exception):
    """The reason why a token is rejected, for the log."""


class Claims(NamedTuple):
    """The claims of a valid token."""

    subject: str
    expires_ms: int


class TokenRequirements(NamedTuple):
    """A broker's requirements of tokens."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    scopes: frozenset[str] = frozenset()
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_seconds: int = 30


Validate = Callable[[str], Claims]
"""Takes a token. Raises TokenError."""


def validate_signed(token: str, keys: JwksCache, wanted: TokenRequirements) -> Claims:
    import jwt  # noqa: PLC0415 (slow to import, and only for this mechanism)

    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise TokenError(f"signed with {str(algorithm)[:20]!r}, which is not accepted")
        key_id = header.get("kid")
        key = keys.find(key_id)
        if key is None:
            raise TokenError(f"signed with an unknown key: {str(key_id)[:100]!r}")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            issuer=wanted.issuer,
            audience=list(wanted.audiences) or None,
            leeway=wanted.skew_seconds,
            options={"require": ["exp", "iat"], "verify_aud": bool(wanted.audiences), "verify_sub": False},
        )
    except (jwt.PyJWTError, ValueError, TypeError) as problem:
        raise TokenError(f"{type(problem).__name__}: {problem}"[:300]) from None
    return validate_claims(claims, wanted)


def claimed_subject(token: str, subject_claim: str) -> str | None:
    """Return the subject of a token, without verification."""
    parts = token.split(".", 2)
    if len(token) > TOKEN_BYTES_MAX or len(parts) < 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    subject = claims.get(subject_claim) if isinstance(claims, dict) else None
    return subject.strip() or None if isinstance(subject, str) else None


def validate_unsecured(token: str, now_ms: Callable[[], int], wanted: TokenRequirements) -> Claims:
    """Return the claims of a token without verification, for developers."""
    import jwt  # noqa: PLC0415 (slow to import, and only for this mechanism)

    try:
        if jwt.get_unverified_header(token).get("alg") != "none":
            raise TokenError("signed, where only unsecured tokens are expected")
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as problem:
        raise TokenError(f"{type(problem).__name__}: {problem}") from None
    found = validate_claims(claims, wanted)
    if found.expires_ms + wanted.skew_seconds * 1000 <= now_ms():
        raise TokenError("the token has expired")
    return found


def validate_claims(claims: Mapping[str, Any], wanted: TokenRequirements) -> Claims:
    subject = claims.get(wanted.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenError(f"the claim {wanted.subject_claim} has no subject")
    expires = claims.get("exp")
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise TokenError("the claim exp is not a time")
    missing = wanted.scopes - scopes_of(claims.get(wanted.scope_claim))
    if missing:
        raise TokenError(f"the scope lacks {', '.join(sorted(missing))}")
    return Claims(subject.strip(), int(expires * 1000))


def scopes_of(value: object) -> frozenset[str]:
    """Return the scopes in a space-separated text or a list."""
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    raise TokenError("the scope is neither a text nor a list of texts")


MECHANISM: Final = "OAUTHBEARER"
SEPARATOR: Final = b"\x01"
EXTENSION_PREFIX: Final = "extension_"
_HEADER: Final = re.compile(r"n,(?:a=([^,\0\x01]+))?,\x01")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*) *", re.IGNORECASE)


class OAuthServer:
    """The broker side."""

    is_non_blocking = False  # the provider's keys may have to be fetched first

    def __init__(self, validate: Validate, subject_claim: str = "sub") -> None:
        self.identity: Identity | None = None
        self._validate = validate
        self._subject_claim = subject_claim
        self._refusal: str | None = None

    @property
    def is_refused(self) -> bool:
        return self._refusal is not None

    def claimed_user(self, token: bytes) -> str | None:
        """Return the subject of the token before its verification."""
        if self._refusal is not None:
            return None
        try:
            return claimed_subject(parse_first(token)[1], self._subject_claim)
        except LoginError:
            return None

    def step(self, token: bytes) -> bytes:
        if self._refusal is not None:
            raise LoginError(self._refusal, invalid_token_response())
        authorization, bearer = parse_first(token)
        try:
            claims = self._validate(bearer)
        except TokenError as problem:
            self._refusal = str(problem)
            return invalid_token_response().encode()
        if authorization is not None and authorization != claims.subject:
            told = (
                "Authentication failed: Client requested an authorization id "
                "that is different from the token's principal name"
            )
            raise LoginError(f"the token of {claims.subject[:100]!r} with another authorization id", told)
        self.identity = Identity(f"User:{claims.subject}", claims.expires_ms)
        return b""


class OAuthClient:
    """The client side."""

    is_non_blocking = False  # the token may have to be requested first

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
        return SEPARATOR  # the broker rejects the token, and sends its error after this byte


def invalid_token_response() -> str:
    return json.dumps({"status": "invalid_token"}, separators=(",", ":"))


def parse_first(token: bytes) -> tuple[str | None, str]:
    """Return the authorization id, if any, and the token. Raises LoginError."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise LoginError("the token is not UTF-8") from None
    header = _HEADER.match(text)
    if header is None or not text.endswith("\x01\x01"):
        raise LoginError("the message is not a valid OAUTHBEARER message")
    pairs: dict[str, str] = {}
    for part in text[header.end() : -2].split("\x01"):
        match = _PAIR.fullmatch(part)
        if match is None:
            raise LoginError("the message is not a valid OAUTHBEARER message")
        pairs[match[1]] = match[2]
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise LoginError("the message has no bearer token")
    return header[1], bearer[1]
