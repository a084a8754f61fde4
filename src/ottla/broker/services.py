"""Components of one broker that handlers can reach; main.py builds them.

For handlers only: all other components get the few objects that they use, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster.controller_requests import ControllerRequests
from ottla.broker.cluster.forwarding import ForwardingManager
from ottla.broker.coordinator_service.coordinators import Coordinators
from ottla.broker.encoded_topics_cache import EncodedTopicsCache
from ottla.broker.fetch_sessions import FetchSessionCache
from ottla.broker.log_manager.checkpoints import CheckpointWriter
from ottla.broker.log_manager.log_dir_loader import IndexRebuilds
from ottla.broker.log_manager.log_dir_moves import LogDirMoves
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.node import Node
from ottla.broker.quota_manager import ClientQuotaManager
from ottla.broker.security.delegation_tokens import DelegationTokenManager
from ottla.broker.security.reconfiguration import SecurityReconfiguration
from ottla.broker.security.server_authenticator import ServerAuthenticator
from ottla.broker.served_api import ServedApi
from ottla.broker.telemetry.client_metrics import ClientMetricsManager
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.image import MetadataImage
from ottla.controller.service import ControllerService
from ottla.metrics.counters import BrokerCounters
from ottla.replication.replica_set import ReplicaSet
from ottla.security.authorizer import Authorizer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from ottla.broker.audit.trail import AuditTrail
    from ottla.broker.cluster.broker_lifecycle import BrokerLifecycle
    from ottla.broker.replica_manager.replication_quota import ReplicationQuotaManager
    from ottla.controller.cluster.membership import ClusterMembership


class BrokerServices:
    """One broker, as its handlers see it."""

    def __init__(
        self,
        node: Node,
        *,
        controller: ControllerService,
        control: ControllerRequests,
        replicas: ReplicaSet,
        publisher: BrokerMetadataPublisher,
        moves: LogDirMoves,
        checkpoints: CheckpointWriter,
        coordinators: Coordinators,
        fetch_sessions: FetchSessionCache,
        counters: BrokerCounters,
        client_metrics: ClientMetricsManager,
        index_rebuilds: IndexRebuilds,
        clustering: BrokerLifecycle | None,
    ) -> None:
        self.node = node
        self.controller = controller
        self.controller_requests = control
        self.replicas = replicas
        self.publisher = publisher
        self.log_dir_moves = moves
        self.checkpoints = checkpoints
        self.coordinators = coordinators
        self.fetch_sessions = fetch_sessions
        self.counters = counters
        self.client_metrics = client_metrics
        self.index_rebuilds = index_rebuilds
        self.encoded_topics_cache = EncodedTopicsCache()
        self.quotas = ClientQuotaManager(node)
        self.authenticator = ServerAuthenticator({}, node.clock, node.workers)
        self.security_changes: SecurityReconfiguration | None = None  # None: security settings cannot change
        self.delegation_tokens = DelegationTokenManager(
            node.settings.delegation_token_secret_key, node.images, node.clock
        )
        self.authorizer: Authorizer | None = None  # None: everything is allowed
        self.audit: AuditTrail | None = None  # None: auditing is off
        # None: standalone
        self.membership: ClusterMembership | None = clustering.membership if clustering is not None else None
        self.forwarding: ForwardingManager | None = clustering.forwarding if clustering is not None else None
        self._lifecycle = clustering
        self.apis: dict[int, ServedApi] = {}  # the served APIs, and their versions:
        self.served_apis: list[tuple[int, int, int]] = []  # key, lowest and highest version
        self.broker_apis: list[tuple[int, int, int]] = []  # the same for APIs that are advertised to brokers only

    # ---- the node

    @property
    def node_id(self) -> int:
        return self.node.id

    @property
    def settings(self) -> BrokerSettings:
        return self.node.dynamic_config.broker

    @property
    def clock(self) -> Clock:
        return self.node.clock

    @property
    def workers(self) -> ThreadPoolExecutor:
        return self.node.workers

    @property
    def image(self) -> MetadataImage:
        return self.node.images.image

    # ---- shared by several handlers

    @property
    def leader_quota(self) -> ReplicationQuotaManager | None:
        """The limit on what followers copy from this broker, if there is one."""
        return self._lifecycle.leader_quota if self._lifecycle is not None else None

    @property
    def must_check_leadership(self) -> bool:
        """Whether other brokers may have become leaders or coordinators of this broker's partitions."""
        return self._lifecycle is not None and self._lifecycle.is_registration_in_doubt()

    def election_state(self) -> tuple[BrokerAvailability, ElectionRules]:
        """Liveness of brokers as the controller sees it, and the default rules of topics."""
        if self.membership is not None:
            return self.membership.controller.liveness, self.membership.controller.rules
        return BrokerAvailability(), ElectionRules(
            self.settings.min_insync_replicas, self.settings.unclean_leader_election_enable
        )

    def restore_replica(self, name: TopicPartition, path: str) -> bool:
        """Start copying a replica of a failed log directory into this one; False if that is impossible."""
        return self._lifecycle is not None and self._lifecycle.restore_replica(name, path)

    def error_for_missing_partition(self, topic: str, index: int) -> KafkaError:
        """Return the error for a partition that this broker does not serve (yet)."""
        if self.image.partition(topic, index) is None:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic, index) in self.publisher.failed or (topic, index) in self.replicas.offline_partitions:
            return KafkaError(Error.KAFKA_STORAGE_ERROR)
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
