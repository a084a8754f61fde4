"""Who belongs to the cluster: a broker that will not come back is taken off its list."""

from __future__ import annotations

from ottla.protocol.schema import Int16, Int32, message, wire


@message(api_key=64, versions="0", flexible=0)
class UnregisterBrokerRequest:
    """UnregisterBroker (key 64), v0 (KIP-500)."""

    broker_id: Int32


@message(api_key=64, versions="0", flexible=0)
class UnregisterBrokerResponse:
    """UnregisterBroker (key 64), v0. BROKER_ID_NOT_REGISTERED if the cluster knows no such broker."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
