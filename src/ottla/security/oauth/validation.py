"""Whether a token is good, and whose it is.

Rules:
1. Only tokens that are signed with a key of the identity provider count. `alg=none` is for a broker of a developer, who
   has named Kafka's class for it (UNSECURED); nobody gets it by leaving something out.
2. Subject, issue and expiry times must be there; issuer and audience are compared if the broker expects certain ones.
3. What the client is told is `invalid_token`; the log says why, and never the token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from jwt import PyJWK

UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
TOKEN_BYTES_MAX: Final = 64 * 1024


class TokenError(Exception):
    """Why a token is refused, for the log."""


class Claims(NamedTuple):
    """What a good token says."""

    subject: str
    expires_ms: int
    scopes: frozenset[str]


class Keys(Protocol):
    """Where the provider's keys are."""

    def find(self, key_id: str | None) -> PyJWK | None: ...


class Expectations(NamedTuple):
    """What a broker wants of tokens."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    scopes: frozenset[str] = frozenset()
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_seconds: int = 30


Validate = Callable[[str], Claims]
"""Takes a token. Raises TokenError."""


def validate_signed(token: str, keys: Keys, wanted: Expectations) -> Claims:
    import jwt  # noqa: PLC0415 (slow to import, and only for this mechanism)

    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise TokenError(f"signed with {str(algorithm)[:20]!r}, which proves nothing")
        key_id = header.get("kid")
        key = keys.find(key_id)
        if key is None:
            raise TokenError(f"signed with a key that is not known: {str(key_id)[:100]!r}")
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
    return checked_claims(claims, wanted)


def validate_unsecured(token: str, now_ms: Callable[[], int], wanted: Expectations) -> Claims:
    """For developers: nothing proves that the token says the truth."""
    import jwt  # noqa: PLC0415

    try:
        if jwt.get_unverified_header(token).get("alg") != "none":
            raise TokenError("signed, where only unsecured tokens are expected")
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as problem:
        raise TokenError(f"{type(problem).__name__}: {problem}") from None
    found = checked_claims(claims, wanted)
    if found.expires_ms + wanted.skew_seconds * 1000 <= now_ms():
        raise TokenError("the token has expired")
    return found


def checked_claims(claims: Mapping[str, Any], wanted: Expectations) -> Claims:
    subject = claims.get(wanted.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenError(f"the claim {wanted.subject_claim} names nobody")
    expires = claims.get("exp")
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise TokenError("the claim exp is no time")
    scopes = scopes_of(claims.get(wanted.scope_claim))
    missing = wanted.scopes - scopes
    if missing:
        raise TokenError(f"the scope lacks {', '.join(sorted(missing))}")
    return Claims(subject.strip(), int(expires * 1000), scopes)


def scopes_of(value: object) -> frozenset[str]:
    """A text with spaces, or a list."""
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    raise TokenError("the scope is neither a text nor a list of texts")
