"""PushTelemetry (key 72), v0: receives metrics of a client (KIP-714). A worker thread parses them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.base.errors import KafkaError
from ottla.broker.handlers.get_telemetry_subscriptions import client_facts
from ottla.broker.telemetry.otlp import Point, read_metrics
from ottla.protocol.compression import decompress
from ottla.protocol.messages.telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

EXPANSION_MAX: Final = 16  # maximum expansion of a push, relative to telemetry.max.bytes


async def handle(request: PushTelemetryRequest, context: Context) -> PushTelemetryResponse:
    broker = context.broker
    bytes_max = broker.settings.telemetry_max_bytes
    try:
        instance = broker.client_metrics.check_push(
            request.client_instance_id,
            client_facts(request.client_instance_id, context),
            broker.image.client_metrics_configs,
            request,
            bytes_max,
            broker.clock.monotonic_ms(),
        )
        if request.metrics:
            points = await asyncio.get_running_loop().run_in_executor(
                broker.workers, read_push, request.compression_type, request.metrics, EXPANSION_MAX * bytes_max
            )
            broker.client_metrics.store_values(instance, points)
    except KafkaError as refusal:
        return PushTelemetryResponse(error_code=refusal.error)
    return PushTelemetryResponse()


def read_push(compression_type: int, data: bytes, bytes_max: int) -> list[Point]:
    return read_metrics(decompress(compression_type, data, bytes_max))
