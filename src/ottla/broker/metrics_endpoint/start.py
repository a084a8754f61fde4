"""Starts the metrics endpoint if the settings enable it; imports its modules only then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.fetch_sessions import FetchSessionCache
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.node import Node
from ottla.broker.quota_manager import ClientQuotaManager
from ottla.broker.telemetry.client_metrics import ClientMetricsManager
from ottla.metrics.counters import BrokerCounters
from ottla.network.poller import Poller
from ottla.network.socket_server import SocketServer
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.cluster.broker_lifecycle import BrokerLifecycle
    from ottla.broker.metrics_endpoint.endpoint import MetricsEndpoint


class BrokerMetricsSources(NamedTuple):
    """The objects that the metrics of a broker are read from. They are never changed."""

    node: Node
    replicas: ReplicaSet
    publisher: BrokerMetadataPublisher
    flusher: Flusher
    fetch_sessions: FetchSessionCache
    counters: BrokerCounters
    client_metrics: ClientMetricsManager
    connections: SocketServer
    quotas: ClientQuotaManager
    poller: Poller
    lifecycle: BrokerLifecycle | None  # None: standalone broker


class MetricsAccessError(Exception):
    """The reason why the endpoint cannot be opened with these settings, in one line."""


async def start_monitor(observed: BrokerMetricsSources) -> MetricsEndpoint | None:
    """Start the endpoint if it is enabled. Raises OSError or, for an invalid certificate, MetricsAccessError."""
    if observed.node.settings.ottla_metrics_port < 0:
        return None
    from ottla.broker.metrics_endpoint.endpoint import MetricsEndpoint  # noqa: PLC0415 (most brokers in tests have none)

    monitor = MetricsEndpoint(observed)
    await monitor.start()
    return monitor
