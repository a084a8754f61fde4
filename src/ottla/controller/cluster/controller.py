"""The controller of a cluster. Every broker has one; only that of the elected broker is active (membership.py).

The others return NOT_CONTROLLER. The active controller tracks the live brokers, sends them metadata changes (feed.py)
and processes their reports. The response to a change is sent when all brokers have applied it, or after a second. State
that is not in the image (brokers that shut down, offline replicas) is reported again by the brokers to the next
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast
from uuid import UUID

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.gc_pause import collector_pause
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster.broker_heartbeats import BrokerHeartbeatManager
from ottla.controller.cluster.feed import Feed
from ottla.controller.cluster.version_gate import BrokerVersionGate
from ottla.controller.decisions.broker_epochs import broker_epoch_bounds, updated_epoch_bounds
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.decision import Decision, has_changed, split_into_transactions
from ottla.controller.decisions.demoted_brokers import demoted_brokers, with_demotions
from ottla.controller.decisions.isr_changes import (
    IsrChange,
    IsrChangeResult,
    check_broker_epoch,
    decide_alter_partitions,
)
from ottla.controller.decisions.leader_election import (
    ElectionSummary,
    decide_broker_changes,
    decide_controlled_shutdown,
    decide_election,
)
from ottla.controller.decisions.leader_eligibility import (
    NO_EPOCH_BOUNDS,
    BrokerAvailability,
    ElectionRules,
    decide_cluster_min_isr,
    rules_from_settings,
)
from ottla.controller.decisions.ottla_version import cluster_level
from ottla.controller.decisions.reassignment import with_completed_reassignments
from ottla.controller.decisions.topic_changes import ConfigCheck
from ottla.controller.image import BrokerImage, MetadataCache, MetadataImage
from ottla.controller.image_loader import load_image_leniently
from ottla.controller.service import THREAD_SIZE_MIN, ControllerService, Decide, LiveSettings
from ottla.controller.stores.store import MetadataStore, Node, StoreError, StoreOperation
from ottla.protocol.messages.inter_broker import ClusterPollRequest, ClusterPollResponse, MetadataDelta

logger = logging.getLogger(__name__)

POLL_WAIT_MS_MAX: Final = 30_000
REGISTRATION_SECONDS_MAX: Final = 2.0  # how long a poll waits for the controller to process the registration
REGISTRATION_CHECK_SECONDS: Final = 0.02
ACKNOWLEDGE_SECONDS_MAX: Final = 1.0  # how long a response waits for brokers to apply the change
LOGGED_PATHS_MAX: Final = 20  # paths in one message
INLINE_NODES_MAX: Final = 300  # nodes; more are loaded in a worker thread: a hundred thousand take seconds

R = TypeVar("R")
T = TypeVar("T")


class RegisteredBrokers(NamedTuple):
    """The registered brokers, and the paths of registrations that cannot be read."""

    brokers: Mapping[int, BrokerImage]
    damaged: frozenset[str] = frozenset()


class ClusterController(ControllerService):
    """The controller of one broker; active while the broker is elected. All calls are made on the loop."""

    attempts_max: ClassVar[int] = 3  # another writer may have changed the nodes of a decision

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        live: LiveSettings,
        check_configs: ConfigCheck,
        random: Random | None = None,
        images: MetadataCache | None = None,
    ) -> None:
        super().__init__(store, clock, live, check_configs, random, images)
        self.feed = Feed()
        self.heartbeats = BrokerHeartbeatManager()
        self.versions = BrokerVersionGate()
        self.on_broker_unfenced: Callable[[], None] = lambda: None  # called when a broker may be unfenced or admitted
        self.liveness = BrokerAvailability()
        self.slow_brokers: frozenset[int] = frozenset()  # slow brokers (leader_rebalance.py)
        self.index = BrokerIndex(self._image)
        self._loads = 0  # the number of complete reads of the store
        self._reconciled_load = -1  # the last load after which all partitions were reconciled with the live brokers
        # An image is published only after this reconciliation: otherwise a broker that has lost records could lead.
        self._is_reconciled = False
        self.has_session: Callable[[], bool] = lambda: True  # without a store session no decisions are allowed
        self.on_deposed: Callable[[], None] = lambda: None
        self.read_tree: Callable[[], Awaitable[Mapping[str, Node]]] = lambda: store.subtree("/")

    @property
    def rules(self) -> ElectionRules:
        return rules_from_settings(self._live.broker)

    # ---- activation

    @property
    def is_active(self) -> bool:
        return self._is_active and self.has_session()

    @property
    def was_activated(self) -> bool:
        """Whether this broker was elected and has not resigned, with or without a store session."""
        return self._is_active

    def activate(
        self,
        image: MetadataImage,
        epoch_version: int,
        broker_epoch_bounds: Mapping[int, int] = NO_EPOCH_BOUNDS,
        index: BrokerIndex | None = None,
    ) -> None:
        """Become active after an election. `image` is the store's at the new epoch; `known` are its epoch bounds."""
        self.liveness = BrokerAvailability(broker_epoch_bounds=broker_epoch_bounds)
        self._epoch_version = epoch_version
        self._must_reload = False
        self._is_active = True
        self._is_reconciled = False
        self.feed.begin(image, image.controller_epoch)
        log_damaged_nodes(frozenset(), image.damaged)
        self._image = image
        self.index = index or BrokerIndex(image)
        self.index.update(image)
        self._loads += 1
        self.update_demoted()

    def resign(self) -> None:
        """Stop deciding: another controller may be elected. Changes in progress fail at the fence of the store."""
        self._is_active = False
        self.feed.end()

    def _on_deposed(self) -> None:
        self._is_active = False
        self.on_deposed()

    # ---- live brokers

    async def reconcile_brokers(self, read: Callable[[], Awaitable[RegisteredBrokers]]) -> ElectionSummary:
        """Read the registered brokers, and reconcile all partitions with those that are not fenced."""
        seen: dict[int, BrokerImage] = {}
        load = -1

        async def look() -> frozenset[str]:
            registered = await read()
            admitted = self.versions.admit(self._image, registered.brokers)
            seen.update(self.heartbeats.unfenced(admitted, self._clock.monotonic_ms()))
            for broker in log_broker_changes(self._image.brokers, seen):  # not in decide(), which may run in a thread
                self.forget_broker(broker)
            return registered.damaged

        def decide(image: MetadataImage, damaged: frozenset[str]) -> Decision[ElectionSummary]:
            nonlocal load
            load = self._loads
            others = frozenset(path for path in image.damaged if not path.startswith(tree.BROKER_IDS))
            if image.damaged != others | damaged:
                image = image.with_damaged(others | damaged)
            topics_of = self.index.topics_of if load == self._reconciled_load else None
            return decide_broker_changes(image, seen, self.liveness, self.rules, topics_of)

        election = await self.change_after_reading(look, decide)
        self._reconciled_load = load
        self.liveness = self.liveness._replace(
            broker_epoch_bounds=updated_epoch_bounds(seen, self.liveness.broker_epoch_bounds)
        )
        if not self._is_reconciled:
            self._is_reconciled = True
            super()._publish(self._image)
        log_election(election)
        return election

    def forget_broker(self, broker: int) -> None:
        """Discard the reports of a broker's previous registration."""
        self.feed.forget_broker(broker)
        liveness = self.liveness.with_offline(broker, frozenset())
        self.liveness = liveness._replace(shutting_down=liveness.shutting_down - {broker})

    async def reconcile_leaders(self, topics: Collection[str] | None = None) -> ElectionSummary:
        """Reconcile the leaders of all topics, or of some, with the live brokers and the settings."""
        election = await self.change(
            lambda image: decide_election(image, self.liveness, self.rules, topics=topics),
            size=self._image.partition_count if topics is None else self._image.count_partitions(topics),
            is_urgent=True,
        )
        log_election(election)
        return election

    async def set_cluster_min_isr(self) -> None:
        """Ensure a cluster-wide min.insync.replicas; the initial value is that of this broker's file (KIP-966)."""
        minimum = self._live.with_image(MetadataImage()).min_insync_replicas
        await self.change(lambda image: decide_cluster_min_isr(image, minimum), is_urgent=True)

    # ---- changes in a cluster

    async def change_after_reading(
        self, read: Callable[[], Awaitable[T]], decide: Callable[[MetadataImage, T], Decision[R]]
    ) -> R:
        """Read from the store and change it, without another change of this controller in between."""
        return (await self._shielded(self._run_reading_change(read, decide)))[0]

    async def _run_reading_change(
        self, read: Callable[[], Awaitable[T]], decide: Callable[[MetadataImage, T], Decision[R]]
    ) -> tuple[R, int]:
        async with self._change_lock:
            await self._reload_if_needed()
            try:
                found = await read()
            except StoreError as error:
                raise self._on_store_error(error) from error
            size = self._image.partition_count
            return await self._decide_and_commit(lambda image: decide(image, found), False, size)

    async def _decide(self, decide: Decide[R], size: int) -> Decision[R]:
        """Return a decision with its consequences in the same write: elections, completed reassignments, demotions."""
        old = self._image
        decision = await super()._decide(decide, size)
        liveness = self._availability_with(decision.image)
        decision = await self._with_election(old, decision, liveness)
        decision = with_completed_reassignments(old, decision, liveness, self.rules, self.index.moving_topics)
        decision = with_demotions(old, decision, liveness, self.rules)
        new = decision.image
        if new.count_partitions(new.changed_topics_since(old)) > THREAD_SIZE_MIN:
            await self.feed.prepare(new)
        return decision

    async def _with_election(
        self, old: MetadataImage, decision: Decision[R], liveness: BrokerAvailability
    ) -> Decision[R]:
        """Elect leaders if the decision changes settings of elections."""
        new = decision.image
        is_for_all = new.broker_configs is not old.broker_configs or new.features is not old.features
        if new.topic_configs is old.topic_configs and not is_for_all:
            return decision
        changed: Collection[str] = [
            name
            for name in new.changed_topics_since(old)
            if name in old.topics and new.topic_configs.get(name) != old.topic_configs.get(name)
        ]
        rules = self._rules_with(new)
        if is_for_all:
            if new.features is not old.features or rules != self._rules_with(old):
                changed = new.topics.keys()  # the default of all topics has changed
            else:
                changed = [*changed, *self.index.topics_of(liveness.demoted - self.liveness.demoted)]
        if new.count_partitions(changed) > THREAD_SIZE_MIN:
            settled = await asyncio.to_thread(decide_election, new, liveness, rules, topics=changed)
        else:
            settled = decide_election(new, liveness, rules, topics=changed)
        return decision._replace(operations=(*decision.operations, *settled.operations), image=settled.image)

    def _availability_with(self, image: MetadataImage) -> BrokerAvailability:
        """Return the availability of brokers under an image, whose settings contain the maintenance of brokers."""
        return self.liveness._replace(demoted=demoted_brokers(image, self._clock.now_ms(), self.slow_brokers))

    def update_demoted(self) -> frozenset[int]:
        """Update the demoted brokers by the settings and the clock; returns them."""
        self.liveness = self._availability_with(self._image)
        return self.liveness.demoted

    def _rules_with(self, image: MetadataImage) -> ElectionRules:
        """The default election rules under an image."""
        return rules_from_settings(self._live.with_image(image))

    def _is_change(self, decision: Decision[Any]) -> bool:
        """Return whether the image differs, including changes of live brokers and writes of other tools."""
        return bool(decision.operations) or has_changed(self._image, decision.image)

    def _transactions(self, operations: Sequence[StoreOperation]) -> Iterator[Sequence[StoreOperation]]:
        return split_into_transactions(operations)

    def _publish(self, image: MetadataImage) -> None:
        log_damaged_nodes(self._image.damaged, image.damaged)
        self.index.update(image)
        self.feed.publish(image)
        if cluster_level(image) != cluster_level(self._image):  # other brokers may be admitted now
            self.on_broker_unfenced()
        if self._is_reconciled:
            super()._publish(image)
        else:
            self._image = image
        self.update_demoted()

    def _sequence(self) -> int:
        return self.feed.sequence

    async def _await_acknowledged(self, sequence: int) -> None:
        await self.feed.acknowledged(sequence, ACKNOWLEDGE_SECONDS_MAX)

    async def reload(self) -> None:
        """Read the whole store again, because damaged nodes were restored."""
        self._must_reload = True
        await self.reconcile_leaders()

    async def _reload(self) -> None:
        nodes = await self.read_tree()
        self._must_reload = False
        self._loads += 1
        # The controller epoch is kept; if it is outdated the fence fails. The live brokers are also kept, until
        # take_brokers() handles all their changes: a restarted broker must not lead before that.
        image = (await load_in_thread(nodes, self._image)).image
        image = image.with_controller(self._live.broker.node_id, self._image.controller_epoch)
        self._publish(image.with_brokers(self._image.brokers))

    # ---- requests of brokers

    async def poll(self, request: ClusterPollRequest) -> ClusterPollResponse:
        """Handle ClusterPoll: return the deltas that the broker does not have, as soon as there are any."""
        if self.heartbeats.touch(request.broker_id, request.broker_epoch, self._clock.monotonic_ms()):
            logger.info("[Controller] broker %d polls again", request.broker_id)
            self.on_broker_unfenced()
        try:
            self._check_active()
            self.versions.check_poll(self._image, request.broker_id, request.level_max)
            await self._await_registration(request.broker_id, request.broker_epoch)
            self.heartbeats.sync_ms[request.broker_id] = request.sync_ms
            await self._note_offline_replicas(request)
        except KafkaError as refusal:
            return ClusterPollResponse(
                error_code=refusal.error, error_message=refusal.message, controller_epoch=self.feed.epoch
            )
        seconds = min(request.max_wait_ms, POLL_WAIT_MS_MAX) / 1000
        deltas = await self.feed.poll(request.broker_id, request.controller_epoch, request.sequence, seconds)
        if not self.is_active:
            return ClusterPollResponse(error_code=Error.NOT_CONTROLLER)
        # Some deltas are encoded already; feed.encoded() handles both forms.
        return ClusterPollResponse(controller_epoch=self.feed.epoch, deltas=cast("list[MetadataDelta]", deltas))

    async def alter_partitions(
        self, broker: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrChangeResult]:
        """Handle AlterPartition. Raises KafkaError(STALE_BROKER_EPOCH) or (NOT_CONTROLLER) for the whole request."""
        return await self.change(
            lambda image: decide_alter_partitions(image, broker, broker_epoch, changes, self.liveness, self.rules),
            size=len(changes),
            is_urgent=True,
        )

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """Handle ControlledShutdown; returns the partitions that no other broker can lead."""
        self._check_active()
        check_broker_epoch(self._image, broker, broker_epoch)
        self.liveness = self.liveness._replace(shutting_down=self.liveness.shutting_down | {broker})
        logger.info("[Controller] Shutting down broker %d", broker)
        return await self.change(
            lambda image: decide_controlled_shutdown(
                image, broker, self.liveness, self.rules, self.index.topics_of([broker])
            ),
            size=self._image.partition_count,
        )

    def _check_active(self) -> None:
        if not self.is_active:
            raise KafkaError(Error.NOT_CONTROLLER)

    async def _await_registration(self, broker: int, epoch: int) -> None:
        """Wait for the registration of a new broker, which may poll before the controller has processed it."""
        deadline = asyncio.get_running_loop().time() + REGISTRATION_SECONDS_MAX
        while True:
            self._check_active()
            known = self._image.brokers.get(broker)
            if known is not None and known.epoch == epoch and self._is_reconciled:
                return
            is_older = known is not None and epoch < known.epoch
            if is_older or epoch < 0 or asyncio.get_running_loop().time() > deadline:
                raise KafkaError(Error.STALE_BROKER_EPOCH)
            await asyncio.sleep(REGISTRATION_CHECK_SECONDS)

    async def _note_offline_replicas(self, request: ClusterPollRequest) -> None:
        reported = frozenset((topic.topic_id, index) for topic in request.offline for index in topic.partitions)
        if reported == self.liveness.offline_replicas.get(request.broker_id, frozenset()):
            return
        logger.info(
            "[Controller] broker %d has %d offline replicas (failed log directories, damage, full disks)",
            request.broker_id,
            len(reported),
        )
        await self.set_offline_replicas(request.broker_id, reported)

    async def set_offline_replicas(self, broker: int, replicas: frozenset[tuple[UUID, int]]) -> None:
        """Set the offline replicas of a broker (in failed log directories, damaged, or on full disks)."""
        before = self.liveness.offline_replicas.get(broker, frozenset())
        self.liveness = self.liveness.with_offline(broker, replicas)
        known = self._image.topics_by_id
        try:
            await self.reconcile_leaders(
                {known[topic_id].name for topic_id, _ in before ^ replicas if topic_id in known}
            )
        except BaseException:
            self.liveness = self.liveness.with_offline(
                broker, before
            )  # the broker reports it again, which must not be skipped as unchanged
            raise

    def __repr__(self) -> str:
        return f"<ClusterController {self.liveness} {self.feed!r}>"


# ---- log messages


def log_broker_changes(before: Mapping[int, BrokerImage], brokers: Mapping[int, BrokerImage]) -> list[int]:
    """Log changes of the live brokers as Kafka does; returns the brokers whose previous registration has ended."""
    new, dead, restarted = diff_brokers(before, brokers)
    if new or dead or restarted:
        logger.info(
            "[Controller] Newly added brokers: %s, deleted brokers: %s, bounced brokers: %s, all live brokers: %s",
            *(",".join(map(str, ids)) for ids in (new, dead, restarted, sorted(brokers))),
        )
    return [*dead, *restarted]


def log_damaged_nodes(old: frozenset[str], new: frozenset[str]) -> None:
    """Log each node once that cannot be read, or is readable again."""
    if new - old:
        logger.error(
            "[Controller] %d nodes of the store cannot be read: their last known contents stay in effect "
            "and cannot be changed until the nodes are restored: %s",
            len(new - old),
            ", ".join(sorted(new - old)[:LOGGED_PATHS_MAX]),
        )
    if old - new:
        readable = ", ".join(sorted(old - new)[:LOGGED_PATHS_MAX])
        logger.info("[Controller] nodes of the store that are readable again, or were deleted: %s", readable)


def log_election(election: ElectionSummary) -> None:
    if election.elected or election.leaderless:
        logger.info(
            "[Controller] %d partitions have a new leader or leader epoch, %d have none",
            election.elected,
            len(election.leaderless),
        )


def diff_brokers(
    before: Mapping[int, BrokerImage], after: Mapping[int, BrokerImage]
) -> tuple[list[int], list[int], list[int]]:
    """Return new, failed and restarted brokers."""
    new = [broker for broker in after if broker not in before]
    dead = [broker for broker in before if broker not in after]
    restarted = [id_ for id_ in after if id_ in before and before[id_].epoch != after[id_].epoch]
    return new, dead, restarted


# ---- loading


class LoadedMetadata(NamedTuple):
    """The state that a new controller starts with."""

    image: MetadataImage
    broker_epochs: Mapping[int, int]
    broker_index: BrokerIndex


async def load_in_thread(nodes: Mapping[str, Node], known: MetadataImage) -> LoadedMetadata:
    """Load the image and its differences from the known one, so the loop need not compare them."""
    return await in_thread_if_large(nodes, lambda: load_and_compare(nodes, known))


async def in_thread_if_large(nodes: Mapping[str, Node], work: Callable[[], T]) -> T:
    """Run work on these nodes, in a worker thread if there are many."""
    if len(nodes) <= INLINE_NODES_MAX:
        return work()
    with collector_pause:
        return await asyncio.to_thread(work)


def load_and_compare(nodes: Mapping[str, Node], known: MetadataImage) -> LoadedMetadata:
    image = load_image_leniently(nodes, known).as_successor_of(known)
    return LoadedMetadata(image, broker_epoch_bounds(nodes, image), BrokerIndex(image))
