"""SaslAuthenticate (key 36), v0-2: a token of the mechanism that SaslHandshake has named (KIP-152).

v1 tells how long the login is good for (KIP-368); v2 flexible. SASL_AUTHENTICATION_FAILED is the end of the connection.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import Context
from ottla.protocol.messages.sasl import SaslAuthenticateRequest


def handle(request: SaslAuthenticateRequest, context: Context) -> Any:
    return context.broker.logins.authenticate(bytes(request.auth_bytes), context)
