"""Delegation tokens (KIP-48): a name and a password that stand for somebody else, for a while. Pure.

The name is the token's id, the password the HMAC of that id under `delegation.token.secret.key`, in base64. So nothing
that is kept or told between brokers is good for a login: each of them makes the password of the secret that it has.
"""

from __future__ import annotations

import base64
import hmac
from typing import Final, NamedTuple

from ottla.base.security import SEPARATOR

HASH: Final = "sha512"
PRINCIPAL_TYPE: Final = "User"  # the only one that logs in


class DelegationToken(NamedTuple):
    """What is known of a token; principals with their types, as in "User:alice"."""

    token_id: str
    owner: str
    requester: str  # who has asked for it; mostly the owner
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int  # nobody can renew it past this time
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whoever may renew a token may expire it, too. The requester is not among them, unless he is the owner."""
        return principal == self.owner or principal in self.renewers

    @property
    def people(self) -> tuple[str, ...]:
        """Who sees it without a right to."""
        return (self.owner, self.requester, *self.renewers)


def token_hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), HASH)


def token_password(token: bytes) -> str:
    """What a client logs in with, beside the token's id."""
    return base64.b64encode(token).decode()


def principal_of(principal_type: str, name: str) -> str:
    return f"{principal_type}{SEPARATOR}{name}"


def split_principal(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(SEPARATOR)
    return kind, name
