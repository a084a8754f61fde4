"""Delegation tokens: create, renew, expire and list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import ClientError, raise_for_error
from ottla.protocol.messages import credentials as wire
from ottla.security.delegation_tokens import DelegationToken, password_of_hmac, principal_of, split_principal

OWNER_VERSION = 3  # the first with other owners; an older broker would create the token for the requester


class TokenWithHmac(NamedTuple):
    """A token with its password."""

    token: DelegationToken
    hmac: bytes

    @property
    def password(self) -> str:
        return password_of_hmac(self.hmac)

    def __repr__(self) -> str:
        return f"<TokenWithHmac {self.token.token_id} of {self.token.owner}>"


def create_token(
    client: Client, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_ms: int = -1
) -> TokenWithHmac:
    """Principals include their types, as in "User:alice"; the default owner is the requester."""
    kind, name = split_principal(owner) if owner is not None else (None, None)
    request = wire.CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[_principal(each) for each in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None and client.version_of(wire.CreateDelegationTokenRequest) < OWNER_VERSION:
        raise ClientError("this cluster creates tokens only for the requesting user", Error.UNSUPPORTED_VERSION)
    answer = client.call(request, wire.CreateDelegationTokenResponse)
    raise_for_error(answer.error_code)
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
    return TokenWithHmac(token, bytes(answer.hmac))


def renew_token(client: Client, hmac: bytes, period_ms: int = -1) -> int:
    """Returns the new expiry time."""
    request = wire.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return _expiry_of(client.call(request, wire.RenewDelegationTokenResponse))


def expire_token(client: Client, hmac: bytes, period_ms: int = -1) -> int:
    """Returns the new expiry time; with a negative period the token expires at once."""
    request = wire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return _expiry_of(client.call(request, wire.ExpireDelegationTokenResponse))


def _expiry_of(answer: wire.RenewDelegationTokenResponse | wire.ExpireDelegationTokenResponse) -> int:
    raise_for_error(answer.error_code)
    return answer.expiry_timestamp_ms


def describe_tokens(client: Client, owners: Sequence[str] | None = None) -> list[TokenWithHmac]:
    """The visible tokens of these owners, or of all."""
    wanted = [_principal(each) for each in owners] if owners is not None else None
    answer = client.call(wire.DescribeDelegationTokenRequest(owners=wanted), wire.DescribeDelegationTokenResponse)
    raise_for_error(answer.error_code)
    return [_known(row) for row in answer.tokens]


def _principal(principal: str) -> wire.TokenPrincipal:
    kind, name = split_principal(principal)
    return wire.TokenPrincipal(principal_type=kind, principal_name=name)


def _known(row: wire.DescribedToken) -> TokenWithHmac:
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
    return TokenWithHmac(token, bytes(row.hmac))
