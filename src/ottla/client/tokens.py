"""Delegation tokens: make, renew, expire and list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import ClientError, refusal
from ottla.protocol.messages import delegation_tokens as wire
from ottla.security.delegation_tokens import DelegationToken, principal_of, split_principal, token_password

OWNER_VERSION = 3  # the first in which somebody else can own a token; older brokers would give it to us


class KnownToken(NamedTuple):
    """A token with its password."""

    token: DelegationToken
    hmac: bytes

    @property
    def password(self) -> str:
        return token_password(self.hmac)

    def __repr__(self) -> str:
        return f"<KnownToken {self.token.token_id} of {self.token.owner}>"


def create_token(
    client: Client, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_ms: int = -1
) -> KnownToken:
    """Principals with their types, as in "User:alice"; without an owner whoever asks owns the token."""
    kind, name = split_principal(owner) if owner is not None else (None, None)
    request = wire.CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[_principal(each) for each in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None and client.version_of(wire.CreateDelegationTokenRequest) < OWNER_VERSION:
        raise ClientError("this cluster makes tokens only for whoever asks for them", Error.UNSUPPORTED_VERSION)
    answer = client.call(request, wire.CreateDelegationTokenResponse)
    if answer.error_code:
        raise refusal(answer.error_code)
    made_for = principal_of(answer.principal_type, answer.principal_name)
    requester = principal_of(answer.token_requester_principal_type, answer.token_requester_principal_name)
    token = DelegationToken(
        answer.token_id,
        made_for,
        requester if answer.token_requester_principal_name else made_for,
        tuple(renewers),
        answer.issue_timestamp_ms,
        answer.max_timestamp_ms,
        answer.expiry_timestamp_ms,
    )
    return KnownToken(token, bytes(answer.hmac))


def renew_token(client: Client, hmac: bytes, period_ms: int = -1) -> int:
    """Until when the token is good now."""
    request = wire.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return _expiry_of(client.call(request, wire.RenewDelegationTokenResponse))


def expire_token(client: Client, hmac: bytes, period_ms: int = -1) -> int:
    """The same; with a negative period the token is gone at once."""
    request = wire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return _expiry_of(client.call(request, wire.ExpireDelegationTokenResponse))


def _expiry_of(answer: wire.RenewDelegationTokenResponse | wire.ExpireDelegationTokenResponse) -> int:
    if answer.error_code:
        raise refusal(answer.error_code)
    return answer.expiry_timestamp_ms


def describe_tokens(client: Client, owners: Sequence[str] | None = None) -> list[KnownToken]:
    """Those that we may see, of these owners or of anybody."""
    wanted = [_principal(each) for each in owners] if owners is not None else None
    answer = client.call(wire.DescribeDelegationTokenRequest(owners=wanted), wire.DescribeDelegationTokenResponse)
    if answer.error_code:
        raise refusal(answer.error_code)
    return [_known(row) for row in answer.tokens]


def _principal(principal: str) -> wire.TokenPrincipal:
    kind, name = split_principal(principal)
    return wire.TokenPrincipal(principal_type=kind, principal_name=name)


def _known(row: wire.DescribedToken) -> KnownToken:
    owner = principal_of(row.principal_type, row.principal_name)
    requester = principal_of(row.token_requester_principal_type, row.token_requester_principal_name)
    token = DelegationToken(
        row.token_id,
        owner,
        requester if row.token_requester_principal_name else owner,
        tuple(principal_of(each.principal_type, each.principal_name) for each in row.renewers),
        row.issue_timestamp,
        row.max_timestamp,
        row.expiry_timestamp,
    )
    return KnownToken(token, bytes(row.hmac))
