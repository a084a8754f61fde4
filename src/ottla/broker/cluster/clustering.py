"""What a broker of a cluster has and one alone has not, put together: its place in the cluster, its way to the others.

The order of a start: register, learn who the controller is, get the first image; logs are opened; then replicas are
fetched and clients served. A stop goes the other way round: leaders move away first (controlled shutdown), clients are
answered, and at the end the session is closed, so that nobody has to find out that this broker is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster.control import Control
from ottla.broker.cluster.controller_link import ControllerLink
from ottla.broker.cluster.disk_question import ask_disks, tell_refills
from ottla.broker.cluster.forwarding import Forwarding
from ottla.broker.cluster.leadership_check import LeadershipCheck
from ottla.broker.cluster.peers import Peers, inter_broker_endpoint, probe
from ottla.broker.cluster.poll_loop import PollLoop, wait_for_event
from ottla.broker.cluster.zookeeper import make_store
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.broker.replicas.isr_changes import IsrChanges
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.broker.replicas.replication_quota import ReplicationQuota
from ottla.controller import tree
from ottla.controller.cluster.balancing import Balancing
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.healing import Healing
from ottla.controller.cluster.membership import Membership
from ottla.controller.cluster.upkeep import Upkeep
from ottla.controller.image import NO_CONTROLLER, BrokerImage, MetadataImage
from ottla.controller.stores.store import StoreError, StoreUnusableError
from ottla.network.peer import LogIn
from ottla.network.peer_error import Rounds
from ottla.network.tls_handshake import OutgoingTls
from ottla.protocol.messages.cluster_poll import OfflineReplicas
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.broker_epoch_file import note_life, previous_life

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 1.0
ELECTION_SECONDS_MAX: Final = 1.5
SHUTDOWN_MS_MAX: Final = 5000  # for one attempt to hand everything over


class Clustering:
    """One a broker of a cluster."""

    def __init__(
        self,
        connect: str,
        node: Node,
        replicas: ReplicaSet,
        publisher: Publisher,
        poller: Rounds,
        tls: OutgoingTls | None = None,
        log_in: LogIn | None = None,
    ) -> None:
        """`tls` and `log_in` if the listener that brokers use among themselves asks for them."""
        settings, live, images = node.settings, node.live, node.images
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._settings = settings
        self._patience_ms = settings.zookeeper_connection_timeout_ms or settings.zookeeper_session_timeout_ms
        self._store = make_store(connect, settings, node.clock)
        self.controller = ClusterController(self._store, node.clock, live, live.check_topic_configs, images=images)
        self.membership = Membership(self._store, node.clock, live, self.controller, images, self._probe)
        watches = self.membership.watches
        sync_ms = replicas.log_dirs.sync_times.slowest_ms
        self._upkeep = Upkeep(self._store, self.controller, images, watches, lambda: live.broker, node.clock, sync_ms)
        self.peers = Peers(settings, images, poller, tls, log_in)
        self.healing = Healing(
            self._store,
            self.controller,
            images,
            node.clock,
            lambda: live.broker,
            lambda id_: ask_disks(self.peers, id_),
            lambda id_, refills: tell_refills(self.peers, id_, refills),
        )
        self.balancing = Balancing(
            self._store,
            self.controller,
            images,
            node.clock,
            lambda: live.broker,
            lambda id_: ask_disks(self.peers, id_),
            self.healing,
        )
        link = ControllerLink(node.id, self.peers, self.membership)
        self.control = Control(node, self.controller, self.membership, link)
        self.forwarding = Forwarding(link, settings.request_timeout_ms)
        self._told_epoch = -1  # of the election after which the controller knows what is offline here
        self._polls: PollLoop | None = None
        self._leadership_check: LeadershipCheck | None = None
        self.replica_fetchers: ReplicaFetchers | None = None
        self.isr_changes: IsrChanges | None = None

    async def _probe(self, broker: BrokerImage) -> bool:
        end = inter_broker_endpoint(broker, self._settings)
        return True if end is None else await probe(end.host, end.port)

    async def join(self, me: BrokerImage, in_force: Callable[[], Awaitable[None]]) -> None:
        """Become a member of the cluster; on return there is an image. `in_force` waits for changed settings."""
        log_dirs = self._replicas.log_dirs
        me = me._replace(previous_epoch=previous_life(log_dirs.dirs))
        self.membership.on_registered = lambda epoch: note_life(log_dirs.dirs, epoch)
        self._node.live.on_change(lambda _: self._settle())
        self._polls = PollLoop(
            self.membership,
            self._node.images,
            self.peers,
            self._publisher.settled,
            self._offline_replicas,
            log_dirs.sync_times.slowest_ms,
        )
        try:
            await self.membership.start(me, log_dirs.cluster_id, self._patience_ms)
            await self._follow_stored_settings()
            await in_force()
            self._polls.start()
            await self._await_image()
        except StoreError:
            await self.leave()
            raise

    async def _follow_stored_settings(self) -> None:
        """How this broker logs in at the controller may have been changed while it ran: the image comes only after."""
        path = tree.config_path(tree.BROKER_CONFIG, str(self._node.id))
        node = await self._store.get(path)
        try:
            own = tree.decode_config(path, node.data) if node is not None else {}
        except tree.DamagedNodeError:
            return  # the controller tells of it
        if own:
            self._node.live.follow(MetadataImage().with_broker_config(str(self._node.id), own))

    async def _await_image(self) -> None:
        """The first one; StoreUnusableError if ZooKeeper is silent, or this broker too old for the controller."""
        while not self.membership.ready.is_set():
            await wait_for_event(self.membership.ready, LOOK_SECONDS)
            if self._polls is not None and self._polls.refusal is not None:
                raise StoreUnusableError(self._polls.refusal)
            silent_ms = self._node.clock.monotonic_ms() - self._store.last_contact_ms()
            if silent_ms > max(self._patience_ms, self._store.session_timeout_ms):
                raise StoreUnusableError(
                    f"ZooKeeper ({self._settings.zookeeper_connect}) has not answered for {silent_ms} ms, and this "
                    "broker does not know the controller yet. Start it again when ZooKeeper answers."
                )

    def serve(self) -> None:
        """All logs are open: begin to copy what others lead, and to tell who keeps up with what we lead."""
        node, replicas = self._node, self._replicas
        replicas.on_damage = self.tell_offline
        if replicas.damaged:
            self.tell_offline()
        self.replica_fetchers = ReplicaFetchers(node, replicas, self.membership, self.peers.open)
        self.isr_changes = IsrChanges(
            replicas, node.clock, self.control.alter_partitions, lambda: self.membership.broker_epoch
        )
        self.isr_changes.start()
        self._leadership_check = LeadershipCheck(node, self.membership, replicas, self._publisher.settled)
        self._leadership_check.start()
        node.images.on_image(lambda old, new: forget_the_dead(replicas, old, new))
        node.images.on_image(lambda _, new: self._tell_after_election(new))
        self._tell_after_election(node.image)

    @property
    def leader_quota(self) -> ReplicationQuota | None:
        """What followers may copy from here."""
        return self.replica_fetchers.leader_quota if self.replica_fetchers is not None else None

    def must_check_leadership(self) -> bool:
        """Whether others may lead by now what we believe to."""
        return self._leadership_check is not None and self._leadership_check.is_pending()

    def _offline_replicas(self) -> list[OfflineReplicas]:
        return offline_replicas(self._replicas, self._node.image)

    def tell_offline(self) -> None:
        """Folders have failed: the controller must know which replicas are gone."""
        if self._polls is not None:
            self._polls.nudge()
        if self.membership.is_controller:
            self.membership.begin(self._tell_itself())

    async def _tell_itself(self) -> None:
        """The controller polls nobody, so nobody tells it again: until it has had an effect."""
        while self.controller.was_activated:
            replicas = self._offline_replicas()
            told = frozenset((topic.topic_id, index) for topic in replicas for index in topic.partitions)
            try:
                await self.controller.take_offline(self._node.id, told)
            except KafkaError as problem:
                logger.warning("replicas in failed folders are still led from here: %s", problem)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def have_anew(self, name: TopicPartition, path: str) -> bool:
        """Copy a replica that lies in a failed folder once more from its leader, into another folder of `log.dirs`.

        False: others still count on what it had, for all that is known here, or it is not of that kind.
        """
        node, replicas, image = self._node, self._replicas, self._node.image
        state = image.partition(*name)
        if state is None or name not in replicas.offline or not self._is_known_as_offline(name):
            return False
        is_counted_on = node.id in (state.leader, *state.isr, *state.eligible)
        if is_counted_on or node.id not in state.replicas or state.leader not in image.brokers:
            return False
        logger.info("%s is copied anew into %s: the folder that it was in has failed", name, path)
        replicas.offline.discard(name)
        replicas.log_dirs.prefer(name, path)
        self._publisher.open_soon(name)
        self.tell_offline()
        return True

    def _is_known_as_offline(self, name: TopicPartition) -> bool:
        """Whether the controller knew it when it told what the image says: then nobody has been taken in since."""
        topic_id, index = self._node.image.topics[name.topic].topic_id, name.partition
        if self.membership.is_controller:
            return self.controller.liveness.has_offline(self._node.id, topic_id, index)
        told = self._polls.told if self._polls is not None else []
        return any(each.topic_id == topic_id and index in each.partitions for each in told)

    def _tell_after_election(self, image: MetadataImage) -> None:
        """A broker that has just become the controller polls nobody: it tells itself what the others tell it."""
        if self.membership.is_controller and image.controller_epoch != self._told_epoch:
            self._told_epoch = image.controller_epoch
            if self._offline_replicas():
                self.tell_offline()

    def _settle(self) -> None:
        """A default that decides about leaders may have changed."""
        if self.membership.is_controller:
            self.membership.watches.want("brokers")

    async def hand_over(self) -> None:
        """Controlled shutdown: others lead what we lead before we stop serving."""
        settings = self._node.settings
        has_heirs = settings.controlled_shutdown_enable and not set(self._node.image.brokers) <= {self._node.id}
        if not self.membership.is_in_touch():
            self.membership.is_standing = False
            if has_heirs:
                logger.warning("stopping without a controlled shutdown: without ZooKeeper nobody can be elected")
            return
        await self.membership.step_down()  # also if nobody is there: whoever comes could not reach a closed port
        if not has_heirs:
            return
        for attempt in range(settings.controlled_shutdown_max_retries):
            if attempt and await is_left_alone(self._node, settings.controlled_shutdown_retry_backoff_ms / 1000):
                return
            try:
                remaining = await self._ask_to_stop()
            except KafkaError as refusal:
                logger.warning("controlled shutdown failed: %s", refusal)
                continue
            if remaining is None:
                logger.info("nobody stands for election: all brokers stop, and there is nobody to hand over to")
                return
            if not remaining:
                logger.info("Controlled shutdown request returned successfully")
                return
            logger.warning("nobody else can lead %s", ", ".join(f"{name}" for name in remaining[:10]))
        logger.warning("Proceeding to do an unclean shutdown as all the controlled shutdown attempts failed")

    async def _ask_to_stop(self) -> list[TopicPartition] | None:
        """What nobody else can lead; None if there has been no controller for longer than an election takes."""
        call = tasks.ask(self.control.controlled_shutdown(SHUTDOWN_MS_MAX), "controlled shutdown")
        looks = 0
        while not call.done():
            await asyncio.wait((call,), timeout=LOOK_SECONDS)
            looks = looks + 1 if self.membership.controller_id == NO_CONTROLLER else 0
            if looks * LOOK_SECONDS > ELECTION_SECONDS_MAX:
                call.cancel()
                return None
        return call.result()

    async def stop(self) -> None:
        """No more copying: what was fetched is in the log."""
        if self._leadership_check is not None:
            self._leadership_check.close()
        if self.isr_changes is not None:
            self.isr_changes.stop()
        if self.replica_fetchers is not None:
            await self.replica_fetchers.stop()

    async def leave(self) -> None:
        """The last thing: end the session."""
        self._upkeep.stop()
        self.healing.stop()
        self.balancing.stop()
        if self._polls is not None:
            self._polls.stop()
        await self.membership.close()
        self.peers.close()


async def is_left_alone(node: Node, seconds: float) -> bool:
    """Wait so long, or until no other broker is there: all of them were told to stop, and there are no heirs."""
    deadline = asyncio.get_running_loop().time() + seconds
    while set(node.image.brokers) - {node.id}:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def forget_the_dead(replicas: ReplicaSet, old: MetadataImage, new: MetadataImage) -> None:
    """Brokers that are gone, or have begun a new life, hold no leader up any more."""
    if old.brokers is new.brokers:
        return
    gone = [
        id_ for id_, broker in old.brokers.items() if id_ not in new.brokers or new.brokers[id_].epoch != broker.epoch
    ]
    for partition in list(replicas.partitions.values()) if gone else ():
        for broker_id in gone:
            partition.forget_follower(broker_id)


def offline_replicas(replicas: ReplicaSet, image: MetadataImage) -> list[OfflineReplicas]:
    """The replicas of this broker that lie in failed folders, are damaged, or have no room to lead."""
    found: dict[str, list[int]] = {}
    for name in sorted(replicas.offline | replicas.damaged | replicas.full):
        partition = TopicPartition(*name)
        found.setdefault(partition.topic, []).append(partition.partition)
    topics = image.topics
    return [
        OfflineReplicas(topic_id=topics[name].topic_id, partitions=sorted(indexes))
        for name, indexes in found.items()
        if name in topics
    ]
