"""What the metrics of a broker are read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.logs.flusher import Flusher
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.broker.quota_gate import QuotaGate
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.metrics.counters import BrokerCounters
from ottla.network.listener import ConnectionSet
from ottla.network.poller import Poller
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.cluster.clustering import Clustering


class Observed(NamedTuple):
    """Looked at, and never changed."""

    node: Node
    replicas: ReplicaSet
    publisher: Publisher
    flusher: Flusher
    fetch_sessions: FetchSessions
    counters: BrokerCounters
    client_metrics: ClientMetrics
    connections: ConnectionSet
    quotas: QuotaGate
    poller: Poller
    clustering: Clustering | None  # None: this broker is alone
