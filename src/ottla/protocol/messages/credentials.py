"""SASL logins, delegation tokens (KIP-48, KIP-373) and SCRAM credentials (KIP-554)."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, Int64, message, part, wire


# SASL: select a mechanism, then exchange its tokens.
@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """SaslHandshake (key 17), v0-1. Tokens follow without headers after v0, in SaslAuthenticate after v1 (KIP-152)."""

    mechanism: str


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """SaslHandshake (key 17), v0-1: the mechanisms of this listener."""

    error_code: Int16 = 0
    mechanisms: list[str] = wire(default_factory=list)


@message(api_key=36, versions="0-2", flexible=2)
class SaslAuthenticateRequest:
    """SaslAuthenticate (key 36), v0-2 (KIP-152). v2 flexible."""

    auth_bytes: bytes


@message(api_key=36, versions="0-2", flexible=2)
class SaslAuthenticateResponse:
    """SaslAuthenticate (key 36), v0-2. v1 session lifetime (KIP-368); v2 flexible."""

    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    auth_bytes: bytes
    session_lifetime_ms: Int64 = wire(since=1, default=0)


@part
class TokenPrincipal:
    """A renewer of a token, or an owner in a query."""

    principal_type: str
    principal_name: str


@message(api_key=38, versions="1-3", flexible=2)
class CreateDelegationTokenRequest:
    """CreateDelegationToken (key 38), v1-3.  v2 flexible; v3 an owner that is not the requester (KIP-373)."""

    owner_principal_type: str | None = wire(since=3, nullable=3, default="")
    owner_principal_name: str | None = wire(since=3, nullable=3, default="")  # null or empty: the requester
    renewers: list[TokenPrincipal] = wire(default_factory=list)
    max_lifetime_ms: Int64  # zero and negative: delegation.token.max.lifetime.ms


@message(api_key=38, versions="1-3", flexible=2)
class CreateDelegationTokenResponse:
    """CreateDelegationToken (key 38), v1-3. Errors: DELEGATION_TOKEN_AUTH_DISABLED, _REQUEST_NOT_ALLOWED (the requester
    is anonymous or used a token to authenticate), _AUTHORIZATION_FAILED (for another owner), INVALID_PRINCIPAL_TYPE,
    and those of the controller.
    """

    error_code: Int16 = 0
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire(since=3, default="")
    token_requester_principal_name: str = wire(since=3, default="")
    issue_timestamp_ms: Int64  # with an error all times are -1
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32 = 0


@message(api_key=39, versions="1-2", flexible=2)
class RenewDelegationTokenRequest:
    """RenewDelegationToken (key 39), v1-2.  v2 flexible."""

    hmac: bytes
    renew_period_ms: Int64  # at most delegation.token.expiry.time.ms, which is also the value for zero and negative


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
    expiry_time_period_ms: Int64  # negative: the token expires at once


@message(api_key=40, versions="1-2", flexible=2)
class ExpireDelegationTokenResponse:
    """ExpireDelegationToken (key 40), v1-2. Errors as those of RenewDelegationToken."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0


@message(api_key=41, versions="1-3", flexible=2)
class DescribeDelegationTokenRequest:
    """DescribeDelegationToken (key 41), v1-3. v2 flexible; v3 requesters (KIP-373). Null owners: all; empty: none."""

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
    the requester must not see are omitted.
    """

    error_code: Int16 = 0
    tokens: list[DescribedToken] = wire(default_factory=list)
    throttle_time_ms: Int32 = 0


# SCRAM credentials of users: describe, set and delete them (KIP-554).
@part
class ScramUserName:
    name: str


@message(api_key=50, versions="0", flexible=0)
class DescribeUserScramCredentialsRequest:
    """DescribeUserScramCredentials (key 50), v0. Null or empty users mean all of them."""

    users: list[ScramUserName] | None = wire(nullable=0, default=None)


@part
class ScramCredentialInfo:
    mechanism: Int8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: Int32


@part
class ScramUserResult:
    user: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    credential_infos: list[ScramCredentialInfo] = wire(default_factory=list)


@message(api_key=50, versions="0", flexible=0)
class DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials (key 50), v0. Passwords are never sent."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    results: list[ScramUserResult] = wire(default_factory=list)


@part
class ScramCredentialDeletion:
    name: str
    mechanism: Int8


@part
class ScramCredentialUpsertion:
    """A credential that the client has salted: the broker never gets the password itself."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


@message(api_key=51, versions="0", flexible=0)
class AlterUserScramCredentialsRequest:
    """AlterUserScramCredentials (key 51), v0."""

    deletions: list[ScramCredentialDeletion] = wire(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = wire(default_factory=list)


@part
class ScramAlterationResult:
    user: str
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)


@message(api_key=51, versions="0", flexible=0)
class AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials (key 51), v0."""

    throttle_time_ms: Int32 = 0
    results: list[ScramAlterationResult] = wire(default_factory=list)
