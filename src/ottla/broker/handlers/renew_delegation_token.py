"""RenewDelegationToken (key 39), v1-2: extends the validity of a token. v2 flexible.

Allowed for its owner and its renewers only.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.forwarding import forward_if_remote
from ottla.broker.context import Context
from ottla.broker.security.delegation_tokens import NO_TIMESTAMP, change_token, may_request_tokens
from ottla.controller.decisions.token_changes import decide_renew_token
from ottla.protocol.messages.credentials import RenewDelegationTokenRequest, RenewDelegationTokenResponse

logger = logging.getLogger(__name__)


async def handle(request: RenewDelegationTokenRequest, context: Context) -> Any:
    if not may_request_tokens(context):
        return refuse(request, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    answer = await forward_if_remote(request, context)
    if answer is not None:
        return answer
    now_ms = context.broker.clock.now_ms()
    period_ms = context.broker.settings.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    try:
        token = await change_token(context, bytes(request.hmac), decide_renew_token, period_ms, now_ms)
    except KafkaError as refusal:
        return RenewDelegationTokenResponse(error_code=refusal.error, expiry_timestamp_ms=0)  # as in Kafka
    logger.info("Delegation token renewed for token: %s for owner: %s", token.token_id, token.owner)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)


def refuse(
    _: RenewDelegationTokenRequest, error: Error, __: str | None = None, ___: int = 0
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIMESTAMP)
