"""CreateDelegationToken (key 38), v1-3: creates a token for the requester or another owner.

v2 flexible; v3 other owners, with CreateTokens permission for that user (KIP-373). The receiving broker checks whether
the client may request tokens, because only it knows the listener; the controller does the rest.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import ANONYMOUS, Operation, ResourceType
from ottla.broker.cluster.forwarding import forward_if_remote
from ottla.broker.context import Context
from ottla.broker.security.delegation_tokens import NO_TIMESTAMP, check_enabled, may_request_tokens
from ottla.controller import tree
from ottla.controller.decisions.token_changes import decide_create_token
from ottla.protocol.messages.credentials import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.schema import INT64_MAX
from ottla.security.delegation_tokens import PRINCIPAL_TYPE, DelegationToken, principal_of, split_principal

logger = logging.getLogger(__name__)

RENEWERS_MAX: Final = 1_000  # one node of ZooKeeper holds all of them, at most a megabyte


async def handle(request: CreateDelegationTokenRequest, context: Context) -> Any:
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = principal_of(request.owner_principal_type or "", request.owner_principal_name)
    if not may_request_tokens(context):
        return refused(Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not context.is_authorized(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return refused(Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    answer = await forward_if_remote(request, context)
    if answer is not None:
        return answer
    try:
        return await create(request, owner, context)
    except KafkaError as refusal:
        return refused(refusal.error, owner, requester)


async def create(request: CreateDelegationTokenRequest, owner: str, context: Context) -> CreateDelegationTokenResponse:
    broker = context.broker
    check_enabled(broker.delegation_tokens)
    if len(request.renewers) > RENEWERS_MAX:
        raise KafkaError(Error.INVALID_REQUEST)
    kinds = {split_principal(owner)[0], *(renewer.principal_type for renewer in request.renewers)}
    if kinds != {PRINCIPAL_TYPE}:
        raise KafkaError(Error.INVALID_PRINCIPAL_TYPE)
    settings, now_ms = broker.settings, broker.clock.now_ms()
    lifetime_ms = settings.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    wanted = DelegationToken(
        tree.encode_uuid(broker.controller.new_uuid()),
        owner,
        context.principal,
        tuple(principal_of(renewer.principal_type, renewer.principal_name) for renewer in request.renewers),
        now_ms,
        min(INT64_MAX, now_ms + lifetime_ms),
        min(INT64_MAX, now_ms + min(lifetime_ms, settings.delegation_token_expiry_time_ms)),
    )
    count = len(broker.image.delegation_tokens)
    token = await broker.controller.change(lambda image: decide_create_token(image, wanted), size=count)
    logger.info("Created a delegation token: %s for owner: %s", token.token_id, token.owner)
    response = refused(Error.NONE, token.owner, token.token_requester)
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issue_ms, token.max_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.token_id, response.hmac = token.token_id, broker.delegation_tokens.hmac_of(token.token_id)
    return response


def refused(error: Error, owner: str, requester: str) -> CreateDelegationTokenResponse:
    owner_type, owner_name = split_principal(owner)
    requester_type, requester_name = split_principal(requester)
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        token_id="",
        hmac=b"",
    )


def refuse(_: CreateDelegationTokenRequest, error: Error, __: str | None, ___: int) -> CreateDelegationTokenResponse:
    return refused(error, ANONYMOUS, ANONYMOUS)
