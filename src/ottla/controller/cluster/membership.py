"""A broker's membership in its cluster: session, registration and controller election.

Rules:
1. The broker epoch is the id of the transaction that created the broker's node, so every registration has a new epoch.
2. A broker becomes the controller by creating /controller and raising /controller_epoch in one transaction. All its
   later writes check that epoch, which fences a deposed controller.
3. A controller that got no response from the store for a session timeout, by its own monotonic clock, stops acting:
   another one may be elected already.
4. A refused connection proves that a broker has failed before its session expires. A wrong guess is harmless: a live
   broker whose node is missing registers again, and a deposed controller becomes a candidate again.
5. A registered broker that does not poll is fenced. A controller that no broker polls resigns, and lets another broker
   be elected before it becomes a candidate again (broker_heartbeats.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.cluster.controller import ClusterController, in_thread_if_large, load_in_thread
from ottla.controller.cluster.registration import (
    BrokerRegistration,
    Probe,
    decode_or_none,
    find_dead_brokers,
    is_broker_dead,
    remove_registration,
)
from ottla.controller.cluster.store_watches import StoreWatches
from ottla.controller.cluster.version_gate import is_too_old
from ottla.controller.decisions import external_changes
from ottla.controller.decisions.decision import split_into_transactions
from ottla.controller.decisions.standalone import controller_epoch_operation
from ottla.controller.image import NO_CONTROLLER, BrokerImage, MetadataCache, MetadataImage
from ottla.controller.service import LiveSettings
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    SessionState,
    SessionStore,
    SetNode,
    StoreAwayError,
    StoreError,
    StoreOperation,
    StoreUnusableError,
    TransactionRefusedError,
)
from ottla.controller.work_queue import WorkQueue
from ottla.protocol.messages.inter_broker import ClusterPollRequest, ClusterPollResponse

logger = logging.getLogger(__name__)

NOT_REGISTERED: Final = -1
ATTEMPTS_MAX: Final = 20
TICK_SECONDS: Final = 0.25
SUSPICION_MS: Final = 30_000
CANDIDACY_DELAY_MS: Final = 2_000  # the delay before an isolated controller becomes a candidate again
CLUSTER_ROOTS: Final = (*tree.TOPS, *acl_nodes.ROOTS, token_nodes.TOKENS)


class ClusterMembership:
    """The membership of one broker. All calls are made on the loop."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        live: LiveSettings,
        controller: ClusterController,
        images: MetadataCache,
        probe: Probe,
    ) -> None:
        self.store = store
        self.controller = controller
        self.broker_epoch = NOT_REGISTERED
        self.last_epoch = NOT_REGISTERED  # the last epoch of this process, registered or not
        self.on_registered: Callable[[int], None] = lambda _: None  # called with the epoch in a worker thread
        self.controller_id = NO_CONTROLLER
        self.controller_node: tuple[int, int] | None = None  # controller id and version of the epoch node
        self.is_leaving = False
        self.is_candidate = True  # whether this broker is a candidate when there is no controller
        self._candidate_from_ms = 0
        self.ready = asyncio.Event()  # set when the first image is available
        self.controller_changed = asyncio.Event()
        self._clock = clock
        self._live = live
        self._images = images
        self._probe = probe
        self._registration = BrokerRegistration(store, clock, probe, controller.new_uuid)
        self._registered_broker: BrokerImage | None = None
        self._session_id = 0
        self._ticker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._probing: set[int] = set()
        self._unreadable = UnreadableController()
        self._suspected = (NOT_REGISTERED, 0)  # the epoch of a controller that was assumed dead, and the time
        self._work_queue = WorkQueue("membership")
        self._work_queue.add_handler("registration", self._check_registration)
        self._work_queue.add_handler("controller", self._check_controller)
        self.watches = StoreWatches(
            store, controller, clock, iter(controller.new_uuid, None), lambda: live.broker.delete_topic_enable
        )
        self.watches.add(tree.config_path(tree.BROKER_CONFIG, ""), controller.set_cluster_min_isr)
        controller.has_session = self.has_session
        controller.on_deposed = self._on_deposed
        controller.read_tree = self.read_tree
        controller.on_broker_unfenced = lambda: self.watches.enqueue("brokers")

    @property
    def node_id(self) -> int:
        return self._live.broker.node_id

    @property
    def is_controller(self) -> bool:
        return self.controller.is_active

    def has_session(self) -> bool:
        """Return whether the session is certainly alive, by this broker's clock."""
        return self.store_idle_ms() < self.store.session_timeout_ms

    def store_idle_ms(self) -> int:
        return self._clock.monotonic_ms() - self.store.last_contact_ms()

    def no_controller_message(self) -> str:
        """Return the message for requests that need the controller."""
        silent_ms = self.store_idle_ms()
        if silent_ms < self.store.session_timeout_ms:
            return "There is no controller at the moment: one is being elected."
        return (
            f"There is no controller: broker {self.node_id} has had no response from ZooKeeper for "
            f"{silent_ms // 1000} s. Records can still be written and read; topics, leaders and settings cannot be "
            "changed until ZooKeeper is available."
        )

    # ---- start and end

    async def start(self, broker: BrokerImage, cluster_id: str | None, timeout_ms: int = 0) -> None:
        """Join the cluster, or raise StoreUnusableError. The first image becomes available later (`ready`).

        If the open store stops responding, this waits for `timeout_ms`, at least one session timeout.
        """
        await self.store.open()
        self._registered_broker = broker
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            try:
                self._session_id = self.store.session_id
                await self._registration.prepare_tree(cluster_id)
                await self._register(is_start=True)
                break
            except StoreAwayError as away:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise StoreUnusableError(f"{away}. Start the broker again when it does.") from away
                await asyncio.sleep(TICK_SECONDS)
        self.store.on_session(self._on_session)
        self.store.watch_node(tree.CONTROLLER, lambda _: self._work_queue.enqueue("controller"))
        self.store.watch_node(tree.broker_path(broker.id), lambda _: self._work_queue.enqueue("registration"))
        self._work_queue.start()
        self._work_queue.enqueue("controller")
        self._ticker = tasks.spawn_restarting(self._tick, "membership")

    async def resign_before_shutdown(self) -> None:
        """Resign before a shutdown, while this broker still serves requests."""
        self.is_candidate = False
        if self.controller.was_activated:
            await self._resign_and_release()

    async def _resign_and_release(self) -> None:
        """Resign and remove /controller, so that another broker is elected at once."""
        before = self.controller_node
        self._resign()
        try:
            node, epoch = await asyncio.gather(self.store.get(tree.CONTROLLER), self.store.get(tree.CONTROLLER_EPOCH))
            elected = decode_controller_id(node) if node is not None else None
            if elected is None and epoch is not None and before == (self.node_id, epoch.version):
                elected = self.node_id  # the epoch is still ours, so the damaged node is ours, too
            if node is not None and elected == self.node_id:
                await self._remove_controller(node, epoch, is_offered=self.controller.versions.has_refused)
        except StoreError as problem:
            logger.warning("broker %d could not remove its /controller node: %s", self.node_id, problem)
        self._work_queue.enqueue("controller")

    async def close(self) -> None:
        """Leave the cluster: the session ends, and its ephemeral nodes are deleted."""
        self.is_leaving = True
        self._work_queue.stop()
        self.watches.stop()
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._tasks:
            task.cancel()
        self.controller.resign()
        await self.controller.close()

    async def _tick(self) -> None:
        """Check by the clock whether the session has ended, which is not reported while the store is unreachable."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.controller.was_activated and not self.has_session():
                logger.warning(
                    "[Controller id=%d] Resigned: the store has not answered for %d ms",
                    self.node_id,
                    self._clock.monotonic_ms() - self.store.last_contact_ms(),
                )
                self._resign()
                self._work_queue.enqueue("controller")
            elif self.controller.is_active:
                await self._check_heartbeats()

    async def _check_heartbeats(self) -> None:
        """Check for brokers that do not poll. One that fails before its first poll has no connection to lose."""
        broker_liveness, now_ms = self.controller.heartbeats, self._clock.monotonic_ms()
        if broker_liveness.check(now_ms):
            await self._on_heartbeats_missed()
        for broker_id in broker_liveness.overdue(now_ms):
            self.suspect_broker(broker_id)

    async def _on_heartbeats_missed(self) -> None:
        broker_liveness = self.controller.heartbeats
        if not broker_liveness.is_isolated:
            logger.warning(
                "[Controller] brokers that have not polled for a session timeout, and are fenced until they do: %s",
                ",".join(map(str, sorted(broker_liveness.fenced))),
            )
            self.watches.enqueue("brokers")
            return
        logger.warning("[Controller id=%d] Resigned: no majority of the registered brokers polls it", self.node_id)
        self._candidate_from_ms = self._clock.monotonic_ms() + CANDIDACY_DELAY_MS
        await self._resign_and_release()
        asyncio.get_running_loop().call_later(CANDIDACY_DELAY_MS / 1000, self._work_queue.enqueue, "controller")

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._resign()
            self.broker_epoch = NOT_REGISTERED
        elif state is SessionState.CONNECTED:
            if self.store.session_id != self._session_id:
                self._session_id = self.store.session_id
                self._resign()
                self.broker_epoch = NOT_REGISTERED
            self._work_queue.enqueue("registration")
            self._work_queue.enqueue("controller")

    # ---- the tree

    async def read_tree(self) -> dict[str, Node]:
        """Return all nodes of the cluster, without those of other programs in the same store."""
        parts = await asyncio.gather(*map(self.store.subtree, CLUSTER_ROOTS))
        return {path: node for part in parts for path, node in part.items()}

    # ---- registration

    def check_registration(self) -> None:
        """Check the registration of this broker, which the controller does not know."""
        self._work_queue.enqueue("registration")

    async def _check_registration(self) -> None:
        if self._registered_broker is not None and self.is_candidate and not self.is_leaving:
            await self._register(is_start=False)

    async def _register(self, *, is_start: bool) -> None:
        assert self._registered_broker is not None
        me = self._registered_broker
        if self.last_epoch >= 0:  # only the session has ended: this process has lost no records
            me = me._replace(previous_epoch=self.last_epoch)
        epoch = await self._registration.register(me, self.broker_epoch, is_start=is_start)
        if epoch != self.broker_epoch:
            self.broker_epoch = self.last_epoch = epoch
            await asyncio.to_thread(self.on_registered, epoch)

    # ---- the controller

    async def _check_controller(self) -> None:
        """Follow the elected controller; without one, try to be elected."""
        for _ in range(ATTEMPTS_MAX):
            if self.is_leaving or self.broker_epoch == NOT_REGISTERED:
                return
            node, epoch = await asyncio.gather(self.store.get(tree.CONTROLLER), self.store.get(tree.CONTROLLER_EPOCH))
            elected = decode_controller_id(node) if node is not None else NO_CONTROLLER
            if node is None or elected == NO_CONTROLLER or await self._must_replace(elected):
                if not self.is_candidate or self._clock.monotonic_ms() < self._candidate_from_ms:
                    # This broker shuts down or was isolated: another one will be elected, if there is one.
                    self.controller_node, self.controller_id = None, NO_CONTROLLER
                    return
                if await self._elect(epoch, node):
                    return
                continue
            if elected is None:
                if self._is_in_grace_period(node):
                    return
                await self._remove_controller(node, epoch)
                continue
            if elected == self.node_id and self.is_candidate and not self.controller.was_activated:
                # The node of an earlier term (resigned by the clock, or a previous registration): start a new term.
                await self._remove_controller(node, epoch)
                continue
            self._follow(elected, epoch.version if epoch is not None else 0)
            return
        raise StoreError("no controller was elected: too many concurrent elections")

    async def _must_replace(self, elected: int | None) -> bool:
        return elected not in (None, self.node_id) and await is_too_old(self.store, elected)

    def _is_in_grace_period(self, node: Node) -> bool:
        """Return whether a damaged node is in its grace period; then it is checked again at the end of it."""
        left_ms = self._unreadable.grace_ms(node, self._clock.monotonic_ms(), self.store.session_timeout_ms)
        if left_ms:
            asyncio.get_running_loop().call_later(left_ms / 1000, self._work_queue.enqueue, "controller")
        return left_ms > 0

    def _follow(self, elected: int, epoch_version: int) -> None:
        if elected != self.node_id and self.controller.was_activated:
            self._resign()
        if self.controller_node != (elected, epoch_version):
            self.controller_node = (elected, epoch_version)
            self.controller_id = elected
            logger.info("broker %d is the controller", elected)
            self._notify_controller_changed()

    def _notify_controller_changed(self) -> None:
        self.controller_changed.set()
        self.controller_changed = asyncio.Event()

    async def _elect(self, epoch_node: Node | None, deposed: Node | None = None) -> bool:
        """Try to be elected, possibly in place of a controller that must be deposed."""
        before = await self._epoch_before(epoch_node) if epoch_node is not None else 0
        operations = election_operations(self.node_id, self._clock.now_ms(), epoch_node, before + 1, deposed)
        try:
            outcomes = await self.store.multi(operations)
        except TransactionRefusedError:
            return False  # another broker was faster
        version = outcomes[-1].version
        logger.info(
            "[Controller id=%d] %d successfully elected as the controller. Epoch incremented to %d "
            "and epoch zk version is now %d",
            self.node_id,
            self.node_id,
            before + 1,
            version,
        )
        await self._on_elected(before + 1, version)
        return True

    async def _epoch_before(self, node: Node) -> int:
        try:
            return tree.decode_controller_epoch(node.data)
        except tree.DamagedNodeError as damage:
            before = highest_known_epoch(node, await self.read_tree(), self._images.image.controller_epoch)
            logger.error("%s; continuing after %d, the highest known epoch", damage, before)
            return before

    async def _on_elected(self, epoch: int, epoch_version: int) -> None:
        """Load the metadata, find failed brokers and elect leaders; then publish the image."""
        self.watches.stop()  # of an earlier term that ended unnoticed
        nodes = await self._repair_topics(await self.read_tree(), epoch_version)
        loaded = await load_in_thread(nodes, self._images.image)
        image = loaded.image
        others = [broker for broker in image.brokers.values() if broker.id != self.node_id]
        for dead in await find_dead_brokers(others, self._probe):
            await remove_registration(self.store, dead)
        image = image.with_controller(self.node_id, epoch)
        self.controller.heartbeats.reset(self.node_id, self.store.session_timeout_ms, self._clock.monotonic_ms())
        self.controller.activate(image, epoch_version, loaded.broker_epochs, loaded.broker_index)
        self.controller_node = (self.node_id, epoch_version)
        self.controller_id = self.node_id
        try:
            await self.controller.reconcile_brokers(self.watches.read_brokers)
        except Exception:
            self._resign()  # the controller is incomplete: try again from the start
            raise
        self.watches.start()
        self.ready.set()
        self._notify_controller_changed()

    async def _repair_topics(self, nodes: dict[str, Node], epoch_version: int) -> dict[str, Node]:
        """Complete topics whose creation was interrupted."""
        new_ids = iter(self.controller.new_uuid, None)
        operations = await in_thread_if_large(nodes, lambda: external_changes.repair_operations(nodes, new_ids))
        if not operations:
            return nodes
        for piece in split_into_transactions(operations):
            await self.store.multi((CheckNode(tree.CONTROLLER_EPOCH, epoch_version), *piece))
        return await self.read_tree()

    async def _remove_controller(self, node: Node, epoch: Node | None, *, is_offered: bool = False) -> bool:
        """Delete /controller, unless another broker was elected since: every election raises the epoch's version."""
        operations = [offer_operation(node) if is_offered else DeleteNode(tree.CONTROLLER, node.version)]
        if epoch is not None:
            operations.insert(0, CheckNode(tree.CONTROLLER_EPOCH, epoch.version))
        try:
            await self.store.multi(operations)
        except TransactionRefusedError:
            return False
        return True

    def _on_deposed(self) -> None:
        self._resign()
        self._work_queue.enqueue("controller")

    def _resign(self) -> None:
        if self.controller.was_activated:
            logger.info("[Controller id=%d] Resigned", self.node_id)
        self.controller.resign()
        self.watches.stop()
        self.controller_node = None
        self.controller_id = NO_CONTROLLER

    # ---- requests of other brokers

    async def poll(self, request: ClusterPollRequest) -> ClusterPollResponse:
        return await self.controller.poll(request)

    # ---- failure detection

    def suspect_broker(self, broker_id: int) -> None:
        """Probe whether a broker is alive whose poll connection was lost."""
        broker = self._images.image.brokers.get(broker_id)
        if broker is not None and self.is_controller and broker_id not in self._probing:
            self.start_task(self._check_broker(broker))

    async def _check_broker(self, broker: BrokerImage) -> None:
        self._probing.add(broker.id)
        try:
            if await is_broker_dead(broker, self._probe, lambda: self._is_known_registration(broker)):
                await remove_registration(self.store, broker)
                self.watches.enqueue("brokers")
        except (StoreError, KafkaError) as problem:
            logger.warning("cannot remove the registration of broker %d: %s", broker.id, problem)
        finally:
            self._probing.discard(broker.id)

    def _is_known_registration(self, broker: BrokerImage) -> bool:
        """Return whether this broker is the controller, and the other broker still has this registration."""
        return self.is_controller and self._images.image.brokers.get(broker.id) == broker

    async def suspect_controller(self, elected: int) -> None:
        """Probe the controller after a lost connection:

        if its port refuses connections, it has failed and is replaced.
        """
        node, epoch = await asyncio.gather(self.store.get(tree.CONTROLLER), self.store.get(tree.CONTROLLER_EPOCH))
        if node is None or decode_controller_id(node) != elected or elected == self.node_id:
            self._work_queue.enqueue("controller")
            return
        registration = await self.store.get(tree.broker_path(elected))
        if registration is not None:
            broker = decode_or_none(elected, registration)
            if broker is None or self._was_suspected(broker) or await self._probe(broker):
                return
            self._suspected = (broker.epoch, self._clock.monotonic_ms())
        if await self._remove_controller(node, epoch):
            logger.info("the controller, broker %d, refuses connections: electing a new one", elected)
        self._work_queue.enqueue("controller")

    def _was_suspected(self, broker: BrokerImage) -> bool:
        """Return whether this registration of a broker was assumed dead recently, and it was elected again since.

        Without this check, two brokers that cannot reach each other would depose each other endlessly.
        """
        epoch, since_ms = self._suspected
        return broker.epoch == epoch and self._clock.monotonic_ms() - since_ms < SUSPICION_MS

    async def locate(self, broker_id: int) -> BrokerImage | None:
        """Return the current registration of a broker."""
        node = await self.store.get(tree.broker_path(broker_id))
        return decode_or_none(broker_id, node) if node is not None else None

    def publish_image(self, image: MetadataImage) -> None:
        """Publish an image from the controller."""
        self._images.publish(image)
        self.ready.set()

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a background task that is cancelled with the membership."""
        task = tasks.spawn(work, f"a membership task of broker {self.node_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __repr__(self) -> str:
        role = "controller" if self.is_controller else f"follows {self.controller_id}"
        return f"<ClusterMembership broker {self.node_id} epoch={self.broker_epoch} {role}>"


# ---- the nodes /controller and /controller_epoch
class UnreadableController:
    """The grace period of a /controller node that cannot be read.

    The node is ephemeral and would stay as long as the session of its owner, and no broker could find the controller.
    So it is deleted after a session timeout, in which it may be restored, and an election follows. If the old
    controller is alive, the version of /controller_epoch fences it.
    """

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None  # creation id and version of the node
        self._since_ms = 0

    def grace_ms(self, node: Node, now_ms: int, session_ms: int) -> int:
        """Return the rest of the grace period; the first call for a node logs the damage."""
        if self._seen != (node.created_id, node.version):
            self._seen, self._since_ms = (node.created_id, node.version), now_ms
            logger.error("%s cannot be read; it is deleted unless it is restored", tree.CONTROLLER)
        return max(0, self._since_ms + session_ms - now_ms)


def decode_controller_id(node: Node) -> int | None:
    """Return the id of the controller; None if the node cannot be read."""
    try:
        return tree.decode_controller(node.data)
    except tree.DamagedNodeError:
        return None


def election_operations(
    broker_id: int, now_ms: int, epoch_node: Node | None, epoch: int, deposed: Node | None
) -> list[StoreOperation]:
    """Return the transaction of an election; the epoch node is last.

    `deposed` is the /controller node to replace, if any.
    """
    operations: list[StoreOperation] = [
        CreateNode(tree.CONTROLLER, tree.encode_controller(broker_id, now_ms), is_ephemeral=True),
        controller_epoch_operation(epoch_node, epoch),
    ]
    return operations if deposed is None else [DeleteNode(tree.CONTROLLER, deposed.version), *operations]


def offer_operation(node: Node) -> StoreOperation:
    """Offer /controller: newer brokers replace such a node, while an older one would be elected without the node."""
    return SetNode(tree.CONTROLLER, tree.encode_controller(NO_CONTROLLER, 0), node.version)


def highest_known_epoch(epoch_node: Node, nodes: Mapping[str, Node], last_known: int) -> int:
    """Return a lower bound for the next controller epoch when /controller_epoch cannot be read.

    Every election writes that node once, so its version counts elections; partition states have their writer's epoch.
    """
    epochs = [last_known, epoch_node.version + 1]
    for path, node in nodes.items():
        if path.startswith(tree.BROKER_TOPICS) and path.endswith("/state"):
            try:
                epochs.append(tree.decode_partition_state(path, node.data).controller_epoch)
            except tree.DamagedNodeError:
                continue
    return max(epochs)
