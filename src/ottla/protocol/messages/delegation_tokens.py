"""Delegation tokens: make, renew, expire and describe them (KIP-48; owners that are not the requester, KIP-373)."""

from __future__ import annotations

from ottla.protocol.schema import Int16, Int32, Int64, message, part, wire


@part
class TokenPrincipal:
    """A renewer of a token, or an owner whose tokens are asked for."""

    principal_type: str
    principal_name: str


@message(api_key=38, versions="1-3", flexible=2)
class CreateDelegationTokenRequest:
    """CreateDelegationToken (key 38), v1-3.  v2 flexible; v3 an owner that is not the requester (KIP-373)."""

    owner_principal_type: str | None = wire(since=3, nullable=3, default="")
    owner_principal_name: str | None = wire(since=3, nullable=3, default="")  # null or empty: whoever asks
    renewers: list[TokenPrincipal] = wire(default_factory=list)
    max_lifetime_ms: Int64  # what is not positive stands for delegation.token.max.lifetime.ms


@message(api_key=38, versions="1-3", flexible=2)
class CreateDelegationTokenResponse:
    """CreateDelegationToken (key 38), v1-3. Errors: DELEGATION_TOKEN_AUTH_DISABLED, _REQUEST_NOT_ALLOWED (made from a
    token, or over a listener that knows nobody), _AUTHORIZATION_FAILED (for somebody else), INVALID_PRINCIPAL_TYPE, and
    those of the controller.
    """

    error_code: Int16 = 0
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire(since=3, default="")
    token_requester_principal_name: str = wire(since=3, default="")
    issue_timestamp_ms: Int64  # -1, as the other times, with an error
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32 = 0


@message(api_key=39, versions="1-2", flexible=2)
class RenewDelegationTokenRequest:
    """RenewDelegationToken (key 39), v1-2.  v2 flexible."""

    hmac: bytes
    renew_period_ms: Int64  # delegation.token.expiry.time.ms at most, and if it is not positive


@message(api_key=39, versions="1-2", flexible=2)
class RenewDelegationTokenResponse:
    """RenewDelegationToken (key 39), v1-2. Errors: DELEGATION_TOKEN_AUTH_DISABLED, _REQUEST_NOT_ALLOWED, _NOT_FOUND,
    _OWNER_MISMATCH, _EXPIRED, and those of the controller.
    """

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


@message(api_key=40, versions="1-2", flexible=2)
class ExpireDelegationTokenRequest:
    """ExpireDelegationToken (key 40), v1-2.  v2 flexible."""

    hmac: bytes
    expiry_time_period_ms: Int64  # negative: the token is gone at once


@message(api_key=40, versions="1-2", flexible=2)
class ExpireDelegationTokenResponse:
    """ExpireDelegationToken (key 40), v1-2. Errors as those of RenewDelegationToken."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


@message(api_key=41, versions="1-3", flexible=2)
class DescribeDelegationTokenRequest:
    """DescribeDelegationToken (key 41), v1-3.  v2 flexible; v3 requesters (KIP-373). Null owners: all; none: none."""

    owners: list[TokenPrincipal] | None = wire(nullable=0, default=None)


@part
class DescribedToken:
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire(since=3, default="")
    token_requester_principal_name: str = wire(since=3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: list[TokenPrincipal] = wire(default_factory=list)


@message(api_key=41, versions="1-3", flexible=2)
class DescribeDelegationTokenResponse:
    """DescribeDelegationToken (key 41), v1-3. Errors: DELEGATION_TOKEN_AUTH_DISABLED, _REQUEST_NOT_ALLOWED. Tokens that
    may not be seen are left out.
    """

    error_code: Int16 = 0
    tokens: list[DescribedToken] = wire(default_factory=list)
    throttle_time_ms: Int32 = 0
