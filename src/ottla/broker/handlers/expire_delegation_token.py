"""ExpireDelegationToken (key 40), v1-2: shortens the validity of a token, or removes it. v2 flexible.

Allowed for its owner and its renewers only.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.forwarding import forward_if_remote
from ottla.broker.context import Context
from ottla.broker.security.delegation_tokens import NO_TIMESTAMP, change_token, may_request_tokens
from ottla.controller.decisions.token_changes import decide_expire_token
from ottla.protocol.messages.credentials import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

logger = logging.getLogger(__name__)


async def handle(request: ExpireDelegationTokenRequest, context: Context) -> Any:
    if not may_request_tokens(context):
        return refuse(request, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    answer = await forward_if_remote(request, context)
    if answer is not None:
        return answer
    now_ms = context.broker.clock.now_ms()
    period_ms = request.expiry_time_period_ms
    try:
        token = await change_token(context, bytes(request.hmac), decide_expire_token, period_ms, now_ms)
    except KafkaError as refusal:
        return ExpireDelegationTokenResponse(error_code=refusal.error, expiry_timestamp_ms=0)  # as in Kafka
    said = "Updated expiry time for token" if period_ms >= 0 else "Token expired for token"
    logger.info("%s: %s for owner: %s", said, token.token_id, token.owner)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms if period_ms >= 0 else now_ms)


def refuse(
    _: ExpireDelegationTokenRequest, error: Error, __: str | None = None, ___: int = 0
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIMESTAMP)
