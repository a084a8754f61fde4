"""Puts the parts of a broker together that need no socket: everybody gets what he uses, and nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.audit.trail import AuditTrail
from ottla.broker.audit.writer import AuditWriter
from ottla.broker.cluster.control import Control
from ottla.broker.cluster.peers import PurposeCalls
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.internal_topics import InternalTopics
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.logs.checkpointing import CheckpointWriter
from ottla.broker.logs.flusher import Flusher
from ottla.broker.logs.index_rebuilds import IndexRebuilds
from ottla.broker.logs.moving import Moves
from ottla.broker.monitoring.observed import Observed
from ottla.broker.node import Node
from ottla.broker.parts import BrokerParts
from ottla.broker.publisher import Publisher
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.controller.service import ControllerService
from ottla.metrics.counters import BrokerCounters
from ottla.network.listener import ConnectionSet
from ottla.network.poller import Poller
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.cluster.clustering import Clustering


class Assembly(NamedTuple):
    """What main.py starts, and stops in the other order: what handlers see, and what they do not."""

    parts: BrokerParts
    flusher: Flusher
    calls: PurposeCalls
    clustering: Clustering | None  # None: this broker is alone
    audit: AuditWriter

    def observed(self, connections: ConnectionSet, poller: Poller) -> Observed:
        """What its metrics are read from."""
        parts = self.parts
        return Observed(
            parts.node,
            parts.replicas,
            parts.publisher,
            self.flusher,
            parts.fetch_sessions,
            parts.counters,
            parts.client_metrics,
            connections,
            parts.quotas,
            poller,
            self.clustering,
        )

    def close(self) -> None:
        """Nobody is coordinated from here any more."""
        self.parts.coordinators.close()
        self.calls.close()


def assemble(
    node: Node,
    replicas: ReplicaSet,
    publisher: Publisher,
    flusher: Flusher,
    controller: ControllerService,
    clustering: Clustering | None,
) -> Assembly:
    control = clustering.control if clustering is not None else Control(node, controller)
    calls = PurposeCalls(clustering.peers if clustering is not None else None)
    checkpoints = CheckpointWriter(replicas, node.workers)
    coordinators = Coordinators(
        node,
        replicas,
        InternalTopics(node, control.create_topics, publisher.settled, is_alone=clustering is None),
        calls.call,
        clustering.must_check_leadership if clustering is not None else None,
    )
    fetch_sessions = FetchSessions(
        node.settings.max_incremental_fetch_session_cache_slots,
        first_id=random.randrange(1, 2**30),  # noqa: S311 (so that a restart does not repeat ids; no secret)
    )
    parts = BrokerParts(
        node,
        controller=controller,
        control=control,
        replicas=replicas,
        publisher=publisher,
        moves=Moves(replicas, node.live, node.clock, checkpoints, flusher, node.workers),
        checkpoints=checkpoints,
        coordinators=coordinators,
        fetch_sessions=fetch_sessions,
        counters=BrokerCounters(),
        client_metrics=ClientMetrics(),
        index_rebuilds=IndexRebuilds(node.workers),
        clustering=clustering,
    )
    counters = parts.counters.audit
    parts.audit = AuditTrail(node, counters)
    topics = InternalTopics(node, control.create_topics, publisher.settled, is_alone=clustering is None)
    audit = AuditWriter(node, parts.audit, replicas, topics, calls.call, counters)
    return Assembly(parts, flusher, calls, clustering, audit)
