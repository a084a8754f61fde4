"""A real Node and real BrokerParts for tests without a whole broker."""

from collections.abc import Mapping
from typing import Any

from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.broker.cluster.peers import InterBrokerCalls
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.coordinator_service.coordinators import Coordinators
from ottla.broker.coordinator_service.internal_topics import InternalTopicCreator
from ottla.broker.fetch_sessions import FetchSessionCache
from ottla.broker.node import Node
from ottla.broker.services import BrokerServices
from ottla.broker.telemetry.client_metrics import ClientMetricsManager
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.metrics.counters import BrokerCounters
from ottla.replication.replica_set import ReplicaSet


def node(
    settings: BrokerSettings | Mapping[str, str] | None = None,
    *,
    id_: int = 1,
    image: MetadataImage | None = None,
    images: MetadataCache | None = None,
    clock: Clock | None = None,
) -> Node:
    """Its worker threads are those of the test's event loop."""
    if not isinstance(settings, BrokerSettings):
        settings = BrokerSettings({"node.id": str(id_), **(settings or {})})
    images = images or MetadataCache()
    if image is not None:
        images.publish(image)
    workers: Any = None
    return Node(id_, DynamicBrokerConfig(settings), clock or LoopClock(), images, workers)


def parts(me: Node) -> BrokerServices:
    """The parts of a broker without log directories and controller: compiled code accepts no fake."""
    missing: Any = None
    replicas = ReplicaSet(me.id, missing, missing, missing)
    topics = InternalTopicCreator(me, missing, missing, is_standalone=True)
    return BrokerServices(
        me,
        controller=missing,
        control=missing,
        replicas=replicas,
        publisher=missing,
        moves=missing,
        checkpoints=missing,
        coordinators=Coordinators(me, replicas, topics, InterBrokerCalls(None).call, None),
        fetch_sessions=FetchSessionCache(10, first_id=1),
        counters=BrokerCounters(),
        client_metrics=ClientMetricsManager(),
        index_rebuilds=missing,
        clustering=None,
    )
