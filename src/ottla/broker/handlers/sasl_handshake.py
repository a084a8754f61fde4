"""SaslHandshake (key 17), v0-1: selects the SASL mechanism.

After v0 the tokens follow as bare frames, after v1 inside SaslAuthenticate (KIP-152). UNSUPPORTED_SASL_MECHANISM
contains the mechanisms of this listener; the connection is closed. ILLEGAL_SASL_STATE: this listener needs no login, or
the client is logged in and need not repeat it (KIP-368).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import Context
from ottla.protocol.messages.credentials import SaslHandshakeRequest


def handle(request: SaslHandshakeRequest, context: Context) -> Any:
    return context.broker.authenticator.handshake(request.mechanism, context)
