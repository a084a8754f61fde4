"""GetTelemetrySubscriptions (key 71), v0: the metrics that a client should push, and their interval (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from ottla.base.errors import KafkaError
from ottla.broker.telemetry.client_metrics import ACCEPTED_COMPRESSION
from ottla.controller.tree import encode_uuid
from ottla.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
from ottla.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.context import Context


def handle(request: GetTelemetrySubscriptionsRequest, context: Context) -> GetTelemetrySubscriptionsResponse:
    broker = context.broker
    instance_id = uuid4() if request.client_instance_id == ZERO_UUID else request.client_instance_id
    try:
        instance = broker.client_metrics.get_subscription(
            instance_id,
            client_facts(instance_id, context),
            broker.image.client_metrics_configs,
            broker.clock.monotonic_ms(),
        )
    except KafkaError as refusal:
        return GetTelemetrySubscriptionsResponse(error_code=refusal.error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=broker.settings.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def client_facts(instance_id: UUID, context: Context) -> dict[str, str]:
    """Return the attributes that subscriptions match on."""
    client = context.client
    return {
        "client_instance_id": encode_uuid(instance_id),
        "client_id": context.client_id or "",
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.host,
        "client_source_port": str(client.port) if client.port else "",
    }
