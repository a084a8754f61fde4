"""What handlers can reach: the parts of one broker, put together by main.py.

Handlers only: whatever else a broker consists of gets the few parts that it uses, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster.control import Control
from ottla.broker.cluster.forwarding import Forwarding
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.logs.checkpointing import CheckpointWriter
from ottla.broker.logs.index_rebuilds import IndexRebuilds
from ottla.broker.logs.moving import Moves
from ottla.broker.metadata_topics import MetadataTopics
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.broker.quota_gate import QuotaGate
from ottla.broker.security.changes import SecurityChanges
from ottla.broker.security.logins import Logins
from ottla.broker.security.tokens import Tokens
from ottla.broker.served_api import ServedApi
from ottla.broker.telemetry.client_metrics import ClientMetrics
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.image import MetadataImage
from ottla.controller.service import ControllerService
from ottla.metrics.counters import BrokerCounters
from ottla.replication.replica_set import ReplicaSet
from ottla.security.authorizer import Authorizer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from ottla.broker.audit.trail import AuditTrail
    from ottla.broker.cluster.clustering import Clustering
    from ottla.broker.replicas.replication_quota import ReplicationQuota
    from ottla.controller.cluster.membership import Membership


class BrokerParts:
    """One broker, as its handlers see it."""

    def __init__(
        self,
        node: Node,
        *,
        controller: ControllerService,
        control: Control,
        replicas: ReplicaSet,
        publisher: Publisher,
        moves: Moves,
        checkpoints: CheckpointWriter,
        coordinators: Coordinators,
        fetch_sessions: FetchSessions,
        counters: BrokerCounters,
        client_metrics: ClientMetrics,
        index_rebuilds: IndexRebuilds,
        clustering: Clustering | None,
    ) -> None:
        self.node = node
        self.controller = controller
        self.control = control
        self.replicas = replicas
        self.publisher = publisher
        self.moves = moves
        self.checkpoints = checkpoints
        self.coordinators = coordinators
        self.fetch_sessions = fetch_sessions
        self.counters = counters
        self.client_metrics = client_metrics
        self.index_rebuilds = index_rebuilds
        self.metadata_topics = MetadataTopics()
        self.quotas = QuotaGate(node)
        self.logins = Logins({}, node.clock, node.workers)
        self.security_changes: SecurityChanges | None = None  # None: nothing of it can change
        self.tokens = Tokens(node.settings.delegation_token_secret_key, node.images, node.clock)
        self.authorizer: Authorizer | None = None  # None: everybody may do everything
        self.audit: AuditTrail | None = None  # None: nobody wants to know
        self.cluster: Membership | None = clustering.membership if clustering is not None else None  # None: alone
        self.forwarding: Forwarding | None = clustering.forwarding if clustering is not None else None
        self._clustering = clustering
        self.apis: dict[int, ServedApi] = {}  # the table that is served, and its versions:
        self.served_apis: list[tuple[int, int, int]] = []  # key, lowest and highest version
        self.broker_apis: list[tuple[int, int, int]] = []  # the same for what only brokers of the cluster are told

    # ---- the node

    @property
    def node_id(self) -> int:
        return self.node.id

    @property
    def settings(self) -> BrokerSettings:
        return self.node.live.broker

    @property
    def clock(self) -> Clock:
        return self.node.clock

    @property
    def workers(self) -> ThreadPoolExecutor:
        return self.node.workers

    @property
    def image(self) -> MetadataImage:
        return self.node.images.image

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    # ---- what several handlers ask

    @property
    def leader_quota(self) -> ReplicationQuota | None:
        """What followers may copy from here, if that is limited."""
        return self._clustering.leader_quota if self._clustering is not None else None

    @property
    def must_check_leadership(self) -> bool:
        """Whether others may lead and coordinate by now what we believe to."""
        return self._clustering is not None and self._clustering.must_check_leadership()

    def election_facts(self) -> tuple[Liveness, Rules]:
        """What the controller knows of brokers beside the image, and the rules of topics without their own."""
        if self.cluster is not None:
            return self.cluster.controller.liveness, self.cluster.controller.rules
        return Liveness(), Rules(self.settings.min_insync_replicas, self.settings.unclean_leader_election_enable)

    def have_anew(self, name: TopicPartition, path: str) -> bool:
        """Whether a replica in a failed folder can be copied again into this one; then that has begun."""
        return self._clustering is not None and self._clustering.have_anew(name, path)

    def why_not_here(self, topic: str, index: int) -> KafkaError:
        """The error for a partition that this broker does not serve (yet)."""
        if self.image.partition(topic, index) is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic, index) in self.publisher.failed or (topic, index) in self.replicas.offline:
            return KafkaError(Error.KAFKA_STORAGE_ERROR)
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
