"""SASL: agree on a mechanism, then exchange its tokens."""

from __future__ import annotations

from ottla.protocol.schema import Int16, Int64, message, wire


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """SaslHandshake (key 17), v0-1. After v0 the tokens follow bare, after v1 inside SaslAuthenticate (KIP-152)."""

    mechanism: str


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """SaslHandshake (key 17), v0-1: the mechanisms that the broker has on this listener."""

    error_code: Int16 = 0
    mechanisms: list[str] = wire(default_factory=list)


@message(api_key=36, versions="0-2", flexible=2)
class SaslAuthenticateRequest:
    """SaslAuthenticate (key 36), v0-2 (KIP-152). v2 flexible."""

    auth_bytes: bytes


@message(api_key=36, versions="0-2", flexible=2)
class SaslAuthenticateResponse:
    """SaslAuthenticate (key 36), v0-2. v1 when to authenticate again (KIP-368); v2 flexible."""

    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    auth_bytes: bytes
    session_lifetime_ms: Int64 = wire(since=1, default=0)
