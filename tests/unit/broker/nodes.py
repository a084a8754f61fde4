"""A real Node, and real BrokerParts, for what is tested without a broker around it."""

from collections.abc import Mapping
from typing import Any

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.broker.cluster.peers import PurposeCalls
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.internal_topics import InternalTopics
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.node import Node
from ottla.broker.parts import BrokerParts
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.metrics.counters import BrokerCounters
from ottla.replication.replica_set import ReplicaSet
from virtual_time import LoopClock


def node(
    settings: BrokerSettings | Mapping[str, str] | None = None,
    *,
    id_: int = 1,
    image: MetadataImage | None = None,
    images: ImageHolder | None = None,
    clock: Clock | None = None,
) -> Node:
    """Its work for threads is done where the loop of the test does such work."""
    if not isinstance(settings, BrokerSettings):
        settings = BrokerSettings({"node.id": str(id_), **(settings or {})})
    images = images or ImageHolder()
    if image is not None:
        images.publish(image)
    workers: Any = None
    return Node(id_, LiveSettings(settings), clock or LoopClock(), images, workers)


def parts(me: Node) -> BrokerParts:
    """Of a broker that has neither folders nor a controller: compiled code takes nothing else for its parts."""
    missing: Any = None
    replicas = ReplicaSet(me.id, missing, missing, missing)
    topics = InternalTopics(me, missing, missing, is_alone=True)
    return BrokerParts(
        me,
        controller=missing,
        control=missing,
        replicas=replicas,
        publisher=missing,
        moves=missing,
        checkpoints=missing,
        coordinators=Coordinators(me, replicas, topics, PurposeCalls(None).call, None),
        fetch_sessions=FetchSessions(10, first_id=1),
        counters=BrokerCounters(),
        client_metrics=ClientMetrics(),
        index_rebuilds=missing,
        clustering=None,
    )
