"""Lifecycle of a broker in a cluster: registration, metadata, replica fetchers, controlled shutdown (Kafka's
BrokerLifecycleManager).

Startup: register, find the controller, load the first image, open the logs, then fetch replicas and serve clients.
Shutdown: transfer leadership to other replicas (controlled shutdown), complete pending requests, and close the session
last, so that the cluster does not wait for a session timeout.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.controller_requests import ControllerRequests
from ottla.broker.cluster.forwarding import ForwardingManager
from ottla.broker.cluster.metadata_poller import MetadataPoller, wait_for_event
from ottla.broker.cluster.peers import CALL_TIMEOUT_MS, Peers, inter_broker_endpoint, probe
from ottla.broker.cluster.registration_check import RegistrationCheck
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.node import Node
from ottla.broker.replica_manager.alter_partition_manager import AlterPartitionManager
from ottla.broker.replica_manager.replica_fetchers import ReplicaFetcherManager
from ottla.broker.replica_manager.replication_quota import ReplicationQuotaManager
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.leader_rebalance import LeaderRebalancer
from ottla.controller.cluster.membership import ClusterMembership
from ottla.controller.image import NO_CONTROLLER, BrokerImage, MetadataImage
from ottla.controller.self_balancing.balancer import Balancer
from ottla.controller.self_balancing.heal_state import BrokerDisks, LogDir
from ottla.controller.self_balancing.heal_steps import ReplicaRebuild
from ottla.controller.self_balancing.healer import Healer
from ottla.controller.stores.store import StoreError, StoreUnusableError
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.network.peer import Authenticate, PeerError, PeerPoller
from ottla.network.tls_handshake import OutgoingTls
from ottla.protocol.messages.inter_broker import OfflineReplicas
from ottla.protocol.messages.topics import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.replication.replica_set import ReplicaSet
from ottla.security.zookeeper import ZooKeeperSecurityError, broker_security
from ottla.storage.broker_epoch_file import previous_broker_epoch, write_broker_epoch

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0
ELECTION_SECONDS_MAX: Final = 1.5
SHUTDOWN_TIMEOUT_MS: Final = 5000  # for one attempt of a controlled shutdown


class BrokerLifecycle:
    """The cluster components of one broker."""

    def __init__(
        self,
        connect: str,
        node: Node,
        replicas: ReplicaSet,
        publisher: BrokerMetadataPublisher,
        poller: PeerPoller,
        tls: OutgoingTls | None = None,
        log_in: Authenticate | None = None,
    ) -> None:
        """`tls` and `log_in` if the inter-broker listener requires them."""
        settings, live, images = node.settings, node.dynamic_config, node.images
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._settings = settings
        self._store_timeout_ms = settings.zookeeper_connection_timeout_ms or settings.zookeeper_session_timeout_ms
        self.store = make_store(connect, settings, node.clock)
        self.controller = ClusterController(self.store, node.clock, live, live.check_topic_configs, images=images)
        self.membership = ClusterMembership(self.store, node.clock, live, self.controller, images, self._probe)
        watches = self.membership.watches
        sync_ms = replicas.log_dirs.sync_times.slowest_ms
        self._upkeep = LeaderRebalancer(
            self.store, self.controller, images, watches, lambda: live.broker, node.clock, sync_ms
        )
        self.peers = Peers(settings, images, poller, tls, log_in)
        self.healing = Healer(
            self.store,
            self.controller,
            images,
            node.clock,
            lambda: live.broker,
            lambda id_: describe_disks(self.peers, id_),
            lambda id_, refills: request_replica_restores(self.peers, id_, refills),
        )
        self.balancing = Balancer(
            self.store,
            self.controller,
            images,
            node.clock,
            lambda: live.broker,
            lambda id_: describe_disks(self.peers, id_),
            self.healing,
        )
        link = ControllerChannel(node.id, self.peers, self.membership)
        self.controller_requests = ControllerRequests(node, self.controller, self.membership, link)
        self.forwarding = ForwardingManager(link, settings.request_timeout_ms)
        # the controller epoch in which the controller knows this broker's offline replicas
        self._reported_controller_epoch = -1
        self._poller: MetadataPoller | None = None
        self._registration_check: RegistrationCheck | None = None
        self.replica_fetchers: ReplicaFetcherManager | None = None
        self.alter_partition_manager: AlterPartitionManager | None = None

    async def _probe(self, broker: BrokerImage) -> bool:
        end = inter_broker_endpoint(broker, self._settings)
        return True if end is None else await probe(end.host, end.port)

    async def join(self, registration: BrokerImage, wait_for_settings: Callable[[], Awaitable[None]]) -> None:
        """Join the cluster; returns when there is an image. `wait_for_settings` waits for changed settings."""
        log_dirs = self._replicas.log_dirs
        registration = registration._replace(previous_epoch=previous_broker_epoch(log_dirs.dirs))
        self.membership.on_registered = lambda epoch: write_broker_epoch(log_dirs.dirs, epoch)
        self._node.dynamic_config.on_change(lambda _: self._reconsider_elections())
        self._poller = MetadataPoller(
            self.membership,
            self._node.images,
            self.peers,
            self._publisher.wait_until_applied,
            self._offline_replicas,
            log_dirs.sync_times.slowest_ms,
        )
        try:
            await self.membership.start(registration, log_dirs.cluster_id, self._store_timeout_ms)
            await self._follow_stored_settings()
            await wait_for_settings()
            self._poller.start()
            await self._wait_for_image()
        except StoreError:
            await self.leave()
            raise

    async def _follow_stored_settings(self) -> None:
        """Follow stored settings before the first image: they may contain the login for the controller."""
        path = tree.config_path(tree.BROKER_CONFIG, str(self._node.id))
        node = await self.store.get(path)
        try:
            own = tree.decode_config(path, node.data) if node is not None else {}
        except tree.DamagedNodeError:
            return  # the controller sends them
        if own:
            self._node.dynamic_config.apply_image(MetadataImage().with_broker_config(str(self._node.id), own))

    async def _wait_for_image(self) -> None:
        """Wait for the first image. Raises StoreUnusableError if ZooKeeper is unavailable or this broker too old."""
        while not self.membership.ready.is_set():
            await wait_for_event(self.membership.ready, CHECK_SECONDS)
            if self._poller is not None and self._poller.rejection is not None:
                raise StoreUnusableError(self._poller.rejection)
            silent_ms = self._node.clock.monotonic_ms() - self.store.last_contact_ms()
            if silent_ms > max(self._store_timeout_ms, self.store.session_timeout_ms):
                raise StoreUnusableError(
                    f"ZooKeeper ({self._settings.zookeeper_connect}) has not answered for {silent_ms} ms, and this "
                    "broker does not know the controller yet. Restart it when ZooKeeper answers."
                )

    def start_replication(self) -> None:
        """Start fetching from leaders and proposing ISR changes. All logs must be open."""
        node, replicas = self._node, self._replicas
        replicas.on_damage = self.report_offline_replicas
        if replicas.damaged_partitions:
            self.report_offline_replicas()
        self.replica_fetchers = ReplicaFetcherManager(node, replicas, self.membership, self.peers.open)
        self.alter_partition_manager = AlterPartitionManager(
            replicas, node.clock, self.controller_requests.alter_partitions, lambda: self.membership.broker_epoch
        )
        self.alter_partition_manager.start()
        self._registration_check = RegistrationCheck(
            node, self.membership, replicas, self._publisher.wait_until_applied
        )
        self._registration_check.start()
        node.images.add_listener(lambda old, new: drop_stopped_followers(replicas, old, new))
        node.images.add_listener(lambda _, new: self._report_after_election(new))
        self._report_after_election(node.image)

    @property
    def leader_quota(self) -> ReplicationQuotaManager | None:
        """The limit on what followers copy from this broker."""
        return self.replica_fetchers.leader_quota if self.replica_fetchers is not None else None

    def is_registration_in_doubt(self) -> bool:
        """Return whether other brokers may have become leaders of this broker's partitions."""
        return self._registration_check is not None and self._registration_check.is_pending()

    def _offline_replicas(self) -> list[OfflineReplicas]:
        return offline_replicas(self._replicas, self._node.image)

    def report_offline_replicas(self) -> None:
        """Report the offline replicas in failed log directories to the controller."""
        if self._poller is not None:
            self._poller.poll_now()
        if self.membership.is_controller:
            self.membership.start_task(self._report_to_itself())

    async def _report_to_itself(self) -> None:
        """Report offline replicas to this controller, which polls no other broker. Repeats until it takes effect."""
        while self.controller.was_activated:
            replicas = self._offline_replicas()
            told = frozenset((topic.topic_id, index) for topic in replicas for index in topic.partitions)
            try:
                await self.controller.set_offline_replicas(self._node.id, told)
            except KafkaError as problem:
                logger.warning("this broker still leads replicas in failed log directories: %s", problem)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def restore_replica(self, name: TopicPartition, path: str) -> bool:
        """Copy a replica of a failed log directory from its leader again, into another directory of `log.dirs`.

        Return False if the replica may still be in sync, or is not in a failed directory.
        """
        node, replicas, image = self._node, self._replicas, self._node.image
        state = image.partition(*name)
        if state is None or name not in replicas.offline_partitions or not self._is_known_as_offline(name):
            return False
        is_counted_on = node.id in (state.leader, *state.isr, *state.elr)
        if is_counted_on or node.id not in state.replicas or state.leader not in image.brokers:
            return False
        logger.info("%s is copied again into %s: its log directory has failed", name, path)
        replicas.offline_partitions.discard(name)
        replicas.log_dirs.maybe_update_preferred_log_dir(name, path)
        self._publisher.schedule_open(name)
        self.report_offline_replicas()
        return True

    def _is_known_as_offline(self, name: TopicPartition) -> bool:
        """Return whether the controller of the current image knew the replica as offline, outside the ISR."""
        topic_id, index = self._node.image.topics[name.topic].topic_id, name.partition
        if self.membership.is_controller:
            return self.controller.liveness.has_offline(self._node.id, topic_id, index)
        told = self._poller.reported if self._poller is not None else []
        return any(each.topic_id == topic_id and index in each.partitions for each in told)

    def _report_after_election(self, image: MetadataImage) -> None:
        """Report offline replicas after this broker is elected controller, which polls no other broker."""
        if self.membership.is_controller and image.controller_epoch != self._reported_controller_epoch:
            self._reported_controller_epoch = image.controller_epoch
            if self._offline_replicas():
                self.report_offline_replicas()

    def _reconsider_elections(self) -> None:
        """Elect leaders again if a default that affects elections has changed."""
        if self.membership.is_controller:
            self.membership.watches.enqueue("brokers")

    async def run_controlled_shutdown(self) -> None:
        """Transfer leadership to other brokers before requests are rejected."""
        settings = self._node.settings
        has_heirs = settings.controlled_shutdown_enable and not set(self._node.image.brokers) <= {self._node.id}
        if not self.membership.has_session():
            self.membership.is_candidate = False
            if has_heirs:
                logger.warning("stopping without a controlled shutdown: without ZooKeeper no leader can be elected")
            return
        await self.membership.resign_before_shutdown()  # even without successors: clients could not reach a closed port
        if not has_heirs:
            return
        for attempt in range(settings.controlled_shutdown_max_retries):
            if attempt and await wait_until_last_broker(
                self._node, settings.controlled_shutdown_retry_backoff_ms / 1000
            ):
                return
            try:
                remaining = await self._request_controlled_shutdown()
            except KafkaError as refusal:
                logger.warning("controlled shutdown failed: %s", refusal)
                continue
            if remaining is None:
                logger.info("no broker is left to become controller: all brokers are stopping")
                return
            if not remaining:
                logger.info("Controlled shutdown request returned successfully")
                return
            logger.warning("no other replica can lead %s", ", ".join(f"{name}" for name in remaining[:10]))
        logger.warning("Proceeding to do an unclean shutdown as all the controlled shutdown attempts failed")

    async def _request_controlled_shutdown(self) -> list[TopicPartition] | None:
        """Return the partitions that no other broker can lead, or None if no controller was elected in time."""
        call = tasks.spawn_awaited(
            self.controller_requests.controlled_shutdown(SHUTDOWN_TIMEOUT_MS), "controlled shutdown"
        )
        looks = 0
        while not call.done():
            await asyncio.wait((call,), timeout=CHECK_SECONDS)
            looks = looks + 1 if self.membership.controller_id == NO_CONTROLLER else 0
            if looks * CHECK_SECONDS > ELECTION_SECONDS_MAX:
                call.cancel()
                return None
        return call.result()

    async def stop(self) -> None:
        """Stop fetching, after fetched records have been appended."""
        if self._registration_check is not None:
            self._registration_check.close()
        if self.alter_partition_manager is not None:
            self.alter_partition_manager.stop()
        if self.replica_fetchers is not None:
            await self.replica_fetchers.stop()

    async def leave(self) -> None:
        """Close the session at the very end."""
        self._upkeep.stop()
        self.healing.stop()
        self.balancing.stop()
        if self._poller is not None:
            self._poller.stop()
        await self.membership.close()
        self.peers.close()


async def wait_until_last_broker(node: Node, seconds: float) -> bool:
    """Wait for this time, or until no other broker is registered because all of them are stopping."""
    deadline = asyncio.get_running_loop().time() + seconds
    while set(node.image.brokers) - {node.id}:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(CHECK_SECONDS)
    return True


def drop_stopped_followers(replicas: ReplicaSet, old: MetadataImage, new: MetadataImage) -> None:
    """Remove followers on brokers that stopped or restarted, so that they do not delay leaders."""
    if old.brokers is new.brokers:
        return
    gone = [
        id_ for id_, broker in old.brokers.items() if id_ not in new.brokers or new.brokers[id_].epoch != broker.epoch
    ]
    for partition in list(replicas.partitions.values()) if gone else ():
        for broker_id in gone:
            partition.reset_follower(broker_id)


def offline_replicas(replicas: ReplicaSet, image: MetadataImage) -> list[OfflineReplicas]:
    """Return the replicas of this broker in failed log directories, with damaged logs, or without disk space for
    leading.
    """
    found: dict[str, list[int]] = {}
    for name in sorted(replicas.offline_partitions | replicas.damaged_partitions | replicas.disk_full_partitions):
        partition = TopicPartition(*name)
        found.setdefault(partition.topic, []).append(partition.partition)
    topics = image.topics
    return [
        OfflineReplicas(topic_id=topics[name].topic_id, partitions=sorted(indexes))
        for name, indexes in found.items()
        if name in topics
    ]


async def describe_disks(peers: Peers, broker: int) -> BrokerDisks | None:
    """Return the disk usage and replica sizes of a broker (DescribeLogDirs); None if it does not respond or rejects the
    request.
    """
    try:
        answer = await peers.call(broker, DescribeLogDirsRequest(), DescribeLogDirsResponse, timeout_ms=CALL_TIMEOUT_MS)
    except PeerError as problem:
        logger.info("cannot read the disk usage of broker %d: %s", broker, problem)
        return None
    if answer.error_code != Error.NONE:
        logger.warning("cannot read the disk usage of broker %d: %s", broker, Error(answer.error_code).name)
        return None
    working = [folder for folder in answer.results if folder.error_code == Error.NONE]
    return BrokerDisks(
        tuple(
            LogDir(folder.total_bytes, folder.usable_bytes, folder.log_dir)
            for folder in working
            if not folder.is_cordoned
        ),
        {
            TopicPartition(topic.name, row.partition_index): row.partition_size
            for folder in working
            for topic in folder.topics
            for row in topic.partitions
            if not row.is_future_key
        },
    )


async def request_replica_restores(
    peers: Peers, broker: int, restores: list[ReplicaRebuild]
) -> frozenset[TopicPartition]:
    """Make a broker copy replicas of failed directories again (AlterReplicaLogDirs); returns the rejected ones. The
    oldest version rejects with KAFKA_STORAGE_ERROR. The result of a failed call is unknown.
    """
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=each.partition.topic, partitions=[each.partition.partition])
                    for each in restores
                    if each.path == path
                ],
            )
            for path in sorted({each.path for each in restores})
        ]
    )
    try:
        answer = await peers.call(broker, request, AlterReplicaLogDirsResponse, timeout_ms=CALL_TIMEOUT_MS)
    except PeerError as problem:
        logger.info("no answer from broker %d about its failed log directory: %s", broker, problem)
        return frozenset()
    refused = {
        TopicPartition(topic.topic_name, row.partition_index): Error(row.error_code).name
        for topic in answer.results
        for row in topic.partitions
        if row.error_code != Error.NONE
    }
    if refused:
        logger.info("broker %d refuses to copy replicas again: %s", broker, ", ".join(sorted(set(refused.values()))))
    return frozenset(refused)


def make_store(connect: str, settings: BrokerSettings, clock: Clock) -> ZooKeeperStore:
    """Return the metadata store of a cluster, not open yet. Raises StoreUnusableError if it does not support the
    security settings.
    """
    try:
        security = broker_security(settings, os.environ)
    except ZooKeeperSecurityError as problem:
        raise StoreUnusableError(str(problem)) from None
    return ZooKeeperStore(
        connect,
        settings.zookeeper_session_timeout_ms,
        clock,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        security=security,
    )
