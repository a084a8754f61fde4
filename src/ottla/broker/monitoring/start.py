"""Starts the metrics endpoint if the settings ask for one; its modules are imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.monitoring.observed import Observed

if TYPE_CHECKING:
    from ottla.broker.monitoring.monitor import Monitor


class MetricsAccessError(Exception):
    """Why the endpoint cannot be opened as the settings say: one line."""


async def start_monitor(observed: Observed) -> Monitor | None:
    """Raises OSError if the endpoint's address cannot be had, MetricsAccessError for a bad certificate."""
    if observed.node.settings.ottla_metrics_port < 0:
        return None
    from ottla.broker.monitoring.monitor import Monitor  # noqa: PLC0415 (most brokers in tests have none)

    monitor = Monitor(observed)
    await monitor.start()
    return monitor
