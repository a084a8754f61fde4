"""SaslAuthenticate (key 36), v0-2: a token of the mechanism selected by SaslHandshake (KIP-152).

v1 validity of the login (KIP-368); v2 flexible. After SASL_AUTHENTICATION_FAILED the connection is closed.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import Context
from ottla.protocol.messages.credentials import SaslAuthenticateRequest


def handle(request: SaslAuthenticateRequest, context: Context) -> Any:
    return context.broker.authenticator.authenticate(bytes(request.auth_bytes), context)
