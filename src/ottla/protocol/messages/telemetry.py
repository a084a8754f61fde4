"""Client metrics: subscriptions, and the clients' pushes (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.schema import ZERO_UUID, Int8, Int16, Int32, message, wire


@message(api_key=71, versions="0", flexible=0)
class GetTelemetrySubscriptionsRequest:
    """GetTelemetrySubscriptions (key 71), v0. A client without an instance id gets one."""

    client_instance_id: UUID = ZERO_UUID


@message(api_key=71, versions="0", flexible=0)
class GetTelemetrySubscriptionsResponse:
    """GetTelemetrySubscriptions (key 71), v0. THROTTLING_QUOTA_EXCEEDED: a second request within the interval.

    No requested metrics: the client does not push, and repeats the request after the interval. One empty name: all
    metrics.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: UUID = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = wire(default_factory=list)
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = wire(default_factory=list)


@message(api_key=72, versions="0", flexible=0)
class PushTelemetryRequest:
    """PushTelemetry (key 72), v0: metrics as OTLP MetricsData, possibly compressed."""

    client_instance_id: UUID
    subscription_id: Int32
    terminating: bool  # the client's last push
    compression_type: Int8
    metrics: bytes


@message(api_key=72, versions="0", flexible=0)
class PushTelemetryResponse:
    """PushTelemetry (key 72), v0.

    INVALID_REQUEST: no instance id, or a push after the terminating one. THROTTLING_QUOTA_EXCEEDED: too early.
    UNKNOWN_SUBSCRIPTION_ID: get the subscription again. UNSUPPORTED_COMPRESSION_TYPE. TELEMETRY_TOO_LARGE: the push was
    dropped. INVALID_RECORD: the metrics cannot be parsed.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
