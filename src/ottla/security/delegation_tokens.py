"""Delegation tokens (KIP-48): temporary credentials that authenticate as another principal. Pure.

The user name is the token's id. The password is the HMAC of that id with `delegation.token.secret.key`, in base64.
Stored or exchanged token data is therefore useless for a login: each broker computes the password from its own secret.
"""

from __future__ import annotations

import base64
import hmac
from typing import Final, NamedTuple

from ottla.base.security import SEPARATOR

HASH: Final = "sha512"
PRINCIPAL_TYPE: Final = "User"  # the only principal type that can log in


class DelegationToken(NamedTuple):
    """A token; principals have their types, as in "User:alice"."""

    token_id: str
    owner: str
    token_requester: str  # the principal that requested it; usually the owner
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int  # the token cannot be renewed beyond this time
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def can_be_renewed_by(self, principal: str) -> bool:
        """Return whether this principal may renew or expire the token.

        The requester may not, unless it is the owner.
        """
        return principal == self.owner or principal in self.renewers

    @property
    def related_principals(self) -> tuple[str, ...]:
        """The principals that may describe the token without further permissions."""
        return (self.owner, self.token_requester, *self.renewers)


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), HASH)


def password_of_hmac(token: bytes) -> str:
    """Return the password for a login with the token's id."""
    return base64.b64encode(token).decode()


def principal_of(principal_type: str, name: str) -> str:
    return f"{principal_type}{SEPARATOR}{name}"


def split_principal(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(SEPARATOR)
    return kind, name
