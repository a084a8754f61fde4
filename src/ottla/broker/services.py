"""What handlers can reach: the parts of one broker, put together by main.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.cluster.control import Control
from ottla.broker.cluster.controller_link import ControllerLink
from ottla.broker.cluster.forwarding import Forwarding
from ottla.broker.cluster.peers import Peers
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.logs.checkpointing import CheckpointWriter
from ottla.broker.logs.flusher import Flusher
from ottla.broker.logs.index_rebuilds import IndexRebuilds
from ottla.broker.logs.moving import Moves
from ottla.broker.metadata_topics import MetadataTopics
from ottla.broker.publisher import Publisher
from ottla.broker.served_api import ServedApi
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import ControllerService
from ottla.metrics.counters import BrokerCounters
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.replicas.isr_changes import IsrChanges
    from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
    from ottla.broker.replicas.replication_quota import ReplicationQuota
    from ottla.controller.cluster.membership import Membership


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
        self.cluster: Membership | None = None  # None: this broker is alone, on its embedded store
        self.peers: Peers | None = None
        self.forwarding: Forwarding | None = None
        self.replica_fetchers: ReplicaFetchers | None = None
        self.isr_changes: IsrChanges | None = None
        self.leader_quota: ReplicationQuota | None = None
        self.control = Control(self)
        self.coordinators = Coordinators(self)
        self.served_apis: list[tuple[int, int, int]] = []  # key, lowest and highest version
        self.broker_apis: list[tuple[int, int, int]] = []  # the same for what only brokers of the cluster are told
        self.apis: dict[int, ServedApi] = {}  # the table that is served

    def join(self, cluster: Membership, peers: Peers) -> None:
        """This broker is one of several: what only the controller can do is asked of it from now on."""
        self.cluster = cluster
        self.peers = peers
        link = ControllerLink(self.node_id, peers, cluster)
        self.forwarding = Forwarding(link, self.settings.request_timeout_ms)

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

    def election_facts(self) -> tuple[Liveness, Rules]:
        """What the controller knows of brokers beside the image, and the rules of topics without their own."""
        if self.cluster is not None:
            return self.cluster.controller.liveness, self.cluster.controller.rules
        return Liveness(), Rules(self.settings.min_insync_replicas, self.settings.unclean_leader_election_enable)

    def why_not_here(self, topic: str, index: int) -> KafkaError:
        """The error for a partition that this broker does not serve (yet)."""
        if self.image.partition(topic, index) is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic, index) in self.publisher.failed or (topic, index) in self.replicas.offline:
            return KafkaError(Error.KAFKA_STORAGE_ERROR)
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
