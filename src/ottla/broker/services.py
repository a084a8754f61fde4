"""What handlers can reach: the parts of one broker, put together by main.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.checkpointing import CheckpointWriter
from ottla.broker.client_metrics import ClientMetrics
from ottla.broker.coordinators import Coordinators
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.flusher import Flusher
from ottla.broker.index_rebuilds import IndexRebuilds
from ottla.broker.live_settings import LiveSettings
from ottla.broker.metadata_topics import MetadataTopics
from ottla.broker.moving import Moves
from ottla.broker.publisher import Publisher
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import ControllerService
from ottla.metrics.counters import BrokerCounters
from ottla.replication.replica_set import ReplicaSet


class Authorizer(Protocol):
    """Decides who may do what; a broker without one lets everybody do everything."""

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool: ...


class Services:
    """One broker, as its handlers see it."""

    def __init__(
        self,
        *,
        node_id: int,
        live: LiveSettings,
        clock: Clock,
        images: ImageHolder,
        controller: ControllerService,
        replicas: ReplicaSet,
        publisher: Publisher,
        flusher: Flusher,
        fetch_sessions: FetchSessions,
        workers: ThreadPoolExecutor,
    ) -> None:
        self.node_id = node_id
        self.live = live
        self.clock = clock
        self.images = images
        self.controller = controller
        self.replicas = replicas
        self.publisher = publisher
        self.flusher = flusher
        self.fetch_sessions = fetch_sessions
        self.workers = workers
        self.authorizer: Authorizer | None = None
        self.metadata_topics = MetadataTopics()
        self.index_rebuilds = IndexRebuilds(workers)
        self.checkpoints = CheckpointWriter(replicas, workers)
        self.moves = Moves(replicas, live, clock, self.checkpoints, flusher, workers)
        self.counters = BrokerCounters()
        self.client_metrics = ClientMetrics()
        self.coordinators = Coordinators(self)
        self.served_apis: list[tuple[int, int, int]] = []  # key, lowest and highest version

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force now."""
        return self.live.broker

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def image(self) -> MetadataImage:
        return self.images.image

    def why_not_here(self, topic: str, index: int) -> KafkaError:
        """The error for a partition that this broker does not serve (yet)."""
        if self.image.partition(topic, index) is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic, index) in self.publisher.failed or (topic, index) in self.replicas.offline:
            return KafkaError(Error.KAFKA_STORAGE_ERROR)
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
