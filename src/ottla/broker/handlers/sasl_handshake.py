"""SaslHandshake (key 17), v0-1: a client names the mechanism that it logs in with.

After v0 its tokens follow as bare frames, after v1 inside SaslAuthenticate (KIP-152). UNSUPPORTED_SASL_MECHANISM comes
with the mechanisms of this listener, and is the end of the connection. ILLEGAL_SASL_STATE: this listener asks for no
login, or there was one that need not be repeated (KIP-368).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import Context
from ottla.protocol.messages.sasl import SaslHandshakeRequest


def handle(request: SaslHandshakeRequest, context: Context) -> Any:
    return context.broker.logins.handshake(request.mechanism, context)
