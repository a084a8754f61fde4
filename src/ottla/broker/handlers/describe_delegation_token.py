"""DescribeDelegationToken (key 41), v1-3: visible tokens with their HMACs.

v2 flexible; v3 requesters (KIP-373). As in Kafka, an owner filter matches tokens that the user owns, renews or
requested. These users see the token. Others need Describe on the token, or DescribeTokens on its owner. Invisible
tokens are omitted.
"""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.broker.security.delegation_tokens import DelegationTokenManager, may_request_tokens
from ottla.protocol.messages.credentials import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedToken,
    TokenPrincipal,
)
from ottla.security.delegation_tokens import DelegationToken, principal_of, split_principal


async def handle(request: DescribeDelegationTokenRequest, context: Context) -> DescribeDelegationTokenResponse:
    if not may_request_tokens(context):
        return DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    tokens = context.broker.delegation_tokens
    if not tokens.is_enabled:
        return DescribeDelegationTokenResponse(error_code=Error.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {principal_of(each.principal_type, each.principal_name) async for each in in_slices(request.owners)}
    known = list(context.broker.image.delegation_tokens.values())
    return DescribeDelegationTokenResponse(
        tokens=[
            described(token, tokens)
            async for token in in_slices(known)
            if (owners is None or not owners.isdisjoint(token.related_principals)) and is_visible(token, context)
        ]
    )


def is_visible(token: DelegationToken, context: Context) -> bool:
    return (
        context.principal in token.related_principals
        or context.is_visible(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.is_visible(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def described(token: DelegationToken, tokens: DelegationTokenManager) -> DescribedToken:
    owner_type, owner_name = split_principal(token.owner)
    requester_type, requester_name = split_principal(token.token_requester)
    return DescribedToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
        renewers=[
            TokenPrincipal(principal_type=kind, principal_name=name)
            for kind, name in map(split_principal, token.renewers)
        ],
    )
