"""A broker's place in its cluster: registered in the store, controller or not, alive as long as its session.

Rules:
1. A broker's epoch is the number of the transaction that created its node: every registration is a new life.
2. Controller is who creates /controller and raises /controller_epoch in one transaction. Everything that it writes
   afterwards checks that epoch, so whoever was deposed without noticing changes nothing.
3. A controller without an answer of the store for one session time, by its own monotonic clock, acts no more: another
   one may be there already.
4. Nobody waits for a session to end when a refused connection tells that a broker is dead. A wrong guess is harmless:
   a live broker whose node vanished registers again, and a controller that was deposed stands for election again.
5. Who is registered and does not poll is not counted on, and a controller that nobody polls lets another one be elected
   before it stands again (broker_liveness.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.chores import Chores
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.controller_node import UnreadableController, elected_in, election, highest_epoch, offered
from ottla.controller.cluster.dead_brokers import find_dead, is_dead, remove_registration
from ottla.controller.cluster.loading_apart import apart, load_apart
from ottla.controller.cluster.registration import Probe, Registration, decode_or_none
from ottla.controller.cluster.version_gate import is_too_old
from ottla.controller.cluster.watching import ControllerWatches
from ottla.controller.decisions import external_changes
from ottla.controller.decisions.splitting import split
from ottla.controller.holder import ImageHolder
from ottla.controller.image import NO_CONTROLLER, BrokerImage, MetadataImage
from ottla.controller.stores.store import (
    CheckNode,
    DeleteNode,
    Node,
    SessionState,
    SessionStore,
    StoreAwayError,
    StoreError,
    StoreUnusableError,
    TransactionRefusedError,
)
from ottla.protocol.messages.cluster_poll import ClusterPollRequest, ClusterPollResponse

logger = logging.getLogger(__name__)

NOT_REGISTERED: Final = -1
ATTEMPTS_MAX: Final = 20
TICK_SECONDS: Final = 0.25
ACCUSED_MS: Final = 30_000
UNHEARD_MS: Final = 2_000  # so long a controller that was cut off leaves the election to the others
SUBTREES: Final = (*tree.TOPS, *acl_nodes.ROOTS, token_nodes.TOKENS)


class MemberOptions(Protocol):
    """What membership needs to know of the broker's settings."""

    @property
    def node_id(self) -> int: ...

    @property
    def delete_topic_enable(self) -> bool: ...


class Membership:
    """One a broker. All calls are made on the loop."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        options: MemberOptions,
        controller: ClusterController,
        images: ImageHolder,
        probe: Probe,
    ) -> None:
        self.store = store
        self.controller = controller
        self.broker_epoch = NOT_REGISTERED
        self.last_epoch = NOT_REGISTERED  # of this process, registered or not
        self.on_registered: Callable[[int], None] = lambda _: None  # with the epoch; in a worker thread
        self.controller_id = NO_CONTROLLER
        self.controller_node: tuple[int, int] | None = None  # who is the controller, and the version of its epoch
        self.is_leaving = False
        self.is_standing = True  # for election, whenever there is no controller
        self._stands_from_ms = 0
        self.ready = asyncio.Event()  # the first image is there
        self.controller_changed = asyncio.Event()
        self._clock = clock
        self._options = options
        self._images = images
        self._probe = probe
        self._registration = Registration(store, clock, probe, controller.new_uuid)
        self._me: BrokerImage | None = None
        self._session_id = 0
        self._ticker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._probing: set[int] = set()
        self._unreadable = UnreadableController()
        self._accused = (NOT_REGISTERED, 0)  # the epoch of a controller that was taken for dead, and when
        self._chores = Chores("membership")
        self._chores.add("registration", self._look_at_registration)
        self._chores.add("controller", self._look_at_controller)
        self.watches = ControllerWatches(
            store, controller, clock, iter(controller.new_uuid, None), lambda: options.delete_topic_enable
        )
        self.watches.add(tree.config_path(tree.BROKER_CONFIG, ""), controller.settle_minimum)
        controller.is_in_touch = self.is_in_touch
        controller.on_deposed = self._on_deposed
        controller.read_tree = self.read_tree
        controller.on_heard = lambda: self.watches.want("brokers")

    @property
    def node_id(self) -> int:
        return self._options.node_id

    @property
    def is_controller(self) -> bool:
        return self.controller.is_active

    def is_in_touch(self) -> bool:
        """Whether the session is alive for certain, by our own clock."""
        return self.store_silent_ms() < self.store.session_timeout_ms

    def store_silent_ms(self) -> int:
        return self._clock.monotonic_ms() - self.store.last_contact_ms()

    def why_no_controller(self) -> str:
        """For a person who wants something of the controller."""
        silent_ms = self.store_silent_ms()
        if silent_ms < self.store.session_timeout_ms:
            return "There is no controller at the moment: one is being elected."
        return (
            f"There is no controller: broker {self.node_id} has had no answer of ZooKeeper for {silent_ms // 1000} s. "
            "Records can still be written and read; topics, leaders and settings cannot be changed until it is back."
        )

    # ---- start and end

    async def start(self, broker: BrokerImage, cluster_id: str | None, patience_ms: int = 0) -> None:
        """Join the cluster: StoreUnusableError says what is in the way. The first image comes later (`ready`).

        A store that is open and falls silent is waited for as long as `patience_ms`, at least one session.
        """
        await self.store.open()
        self._me = broker
        deadline_ms = self._clock.monotonic_ms() + patience_ms
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
        self.store.watch_node(tree.CONTROLLER, lambda _: self._chores.want("controller"))
        self.store.watch_node(tree.broker_path(broker.id), lambda _: self._chores.want("registration"))
        self._chores.start()
        self._chores.want("controller")
        self._ticker = tasks.keep_running(self._tick, "membership")

    async def step_down(self) -> None:
        """This broker is about to stop: if it is the controller another one is elected now, while it still serves."""
        self.is_standing = False
        if self.controller.was_activated:
            await self._give_way()

    async def _give_way(self) -> None:
        """Resign in a way that others notice at once."""
        before = self.controller_node
        self._resign()
        try:
            node, epoch = await asyncio.gather(self.store.get(tree.CONTROLLER), self.store.get(tree.CONTROLLER_EPOCH))
            elected = elected_in(node) if node is not None else None
            if elected is None and epoch is not None and before == (self.node_id, epoch.version):
                elected = self.node_id  # nobody was elected since: it is ours, whatever it says
            if node is not None and elected == self.node_id:
                await self._remove_controller(node, epoch, is_offered=self.controller.versions.refuses_anybody)
        except StoreError as problem:
            logger.warning("the store was not told that broker %d is no controller any more: %s", self.node_id, problem)
        self._chores.want("controller")

    async def close(self) -> None:
        """Leave the cluster: the session ends, and with it everything that was ours."""
        self.is_leaving = True
        self._chores.stop()
        self.watches.stop()
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._tasks:
            task.cancel()
        self.controller.resign()
        await self.controller.close()

    async def _tick(self) -> None:
        """Sessions end without anybody telling us: look at the clock."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.controller.was_activated and not self.is_in_touch():
                logger.warning(
                    "[Controller id=%d] Resigned: the store has not answered for %d ms",
                    self.node_id,
                    self._clock.monotonic_ms() - self.store.last_contact_ms(),
                )
                self._resign()
                self._chores.want("controller")
            elif self.controller.is_active:
                await self._listen()

    async def _listen(self) -> None:
        """Look after brokers that do not poll; one that died before its first poll has no connection to lose."""
        broker_liveness, now_ms = self.controller.broker_liveness, self._clock.monotonic_ms()
        if broker_liveness.look(now_ms):
            await self._go_on_without_the_silent()
        for broker_id in broker_liveness.overdue(now_ms):
            self.suspect_broker(broker_id)

    async def _go_on_without_the_silent(self) -> None:
        broker_liveness = self.controller.broker_liveness
        if not broker_liveness.is_cut_off:
            logger.warning(
                "[Controller] brokers that have not polled for a session, and are not counted on until they do: %s",
                ",".join(map(str, sorted(broker_liveness.silent))),
            )
            self.watches.want("brokers")
            return
        logger.warning("[Controller id=%d] Resigned: registered brokers do not reach it", self.node_id)
        self._stands_from_ms = self._clock.monotonic_ms() + UNHEARD_MS
        await self._give_way()
        asyncio.get_running_loop().call_later(UNHEARD_MS / 1000, self._chores.want, "controller")

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._resign()
            self.broker_epoch = NOT_REGISTERED
        elif state is SessionState.CONNECTED:
            if self.store.session_id != self._session_id:
                self._session_id = self.store.session_id
                self._resign()
                self.broker_epoch = NOT_REGISTERED
            self._chores.want("registration")
            self._chores.want("controller")

    # ---- the tree

    async def read_tree(self) -> dict[str, Node]:
        """All nodes of the cluster, and none of other programs that use the same store."""
        parts = await asyncio.gather(*map(self.store.subtree, SUBTREES))
        return {path: node for part in parts for path, node in part.items()}

    # ---- registration

    def look_at_registration(self) -> None:
        """The controller does not know us any more: see whether our node is there."""
        self._chores.want("registration")

    async def _look_at_registration(self) -> None:
        if self._me is not None and self.is_standing and not self.is_leaving:
            await self._register(is_start=False)

    async def _register(self, *, is_start: bool) -> None:
        assert self._me is not None
        me = self._me
        if self.last_epoch >= 0:  # the session ended, but not this process: it has all that it had
            me = me._replace(previous_epoch=self.last_epoch)
        epoch = await self._registration.register(me, self.broker_epoch, is_start=is_start)
        if epoch != self.broker_epoch:
            self.broker_epoch = self.last_epoch = epoch
            await asyncio.to_thread(self.on_registered, epoch)

    # ---- the controller

    async def _look_at_controller(self) -> None:
        """Follow who is the controller; if nobody is, stand for election."""
        for _ in range(ATTEMPTS_MAX):
            if self.is_leaving or self.broker_epoch == NOT_REGISTERED:
                return
            node, epoch = await asyncio.gather(self.store.get(tree.CONTROLLER), self.store.get(tree.CONTROLLER_EPOCH))
            elected = elected_in(node) if node is not None else NO_CONTROLLER
            if node is None or elected == NO_CONTROLLER or await self._must_depose(elected):
                if not self.is_standing or self._clock.monotonic_ms() < self._stands_from_ms:
                    # We stop, or were cut off: somebody else will be elected, if anybody is left.
                    self.controller_node, self.controller_id = None, NO_CONTROLLER
                    return
                if await self._stand(epoch, node):
                    return
                continue
            if elected is None:
                if self._is_left_alone(node):
                    return
                await self._remove_controller(node, epoch)
                continue
            if elected == self.node_id and self.is_standing and not self.controller.was_activated:
                # Ours from a time that is over (we resigned by our clock, or an earlier life was elected): begin anew.
                await self._remove_controller(node, epoch)
                continue
            self._follow(elected, epoch.version if epoch is not None else 0)
            return
        raise StoreError("no controller was elected: others stand for election all the time")

    async def _must_depose(self, elected: int | None) -> bool:
        return elected not in (None, self.node_id) and await is_too_old(self.store, elected)

    def _is_left_alone(self, node: Node) -> bool:
        """Whether a node that cannot be read may stay for now; it is looked at again when its time is up."""
        left_ms = self._unreadable.left_ms(node, self._clock.monotonic_ms(), self.store.session_timeout_ms)
        if left_ms:
            asyncio.get_running_loop().call_later(left_ms / 1000, self._chores.want, "controller")
        return left_ms > 0

    def _follow(self, elected: int, epoch_version: int) -> None:
        if elected != self.node_id and self.controller.was_activated:
            self._resign()
        if self.controller_node != (elected, epoch_version):
            self.controller_node = (elected, epoch_version)
            self.controller_id = elected
            logger.info("broker %d is the controller", elected)
            self._tell_changed()

    def _tell_changed(self) -> None:
        self.controller_changed.set()
        self.controller_changed = asyncio.Event()

    async def _stand(self, epoch_node: Node | None, deposed: Node | None = None) -> bool:
        """Be elected where nobody is, or in place of somebody who must not be."""
        before = await self._epoch_before(epoch_node) if epoch_node is not None else 0
        operations = election(self.node_id, self._clock.now_ms(), epoch_node, before + 1, deposed)
        try:
            outcomes = await self.store.multi(operations)
        except TransactionRefusedError:
            return False  # somebody else was quicker
        version = outcomes[-1].version
        logger.info(
            "[Controller id=%d] %d successfully elected as the controller. Epoch incremented to %d "
            "and epoch zk version is now %d",
            self.node_id,
            self.node_id,
            before + 1,
            version,
        )
        await self._take_over(before + 1, version)
        return True

    async def _epoch_before(self, node: Node) -> int:
        try:
            return tree.decode_controller_epoch(node.data)
        except tree.DamagedNodeError as damage:
            before = highest_epoch(node, await self.read_tree(), self._images.image.controller_epoch)
            logger.error("%s; going on after %d, the highest epoch that is known", damage, before)
            return before

    async def _take_over(self, epoch: int, epoch_version: int) -> None:
        """Read everything, learn who is dead, elect leaders; then the others are told."""
        self.watches.stop()  # of an earlier time as the controller that somebody has ended
        nodes = await self._repair(await self.read_tree(), epoch_version)
        loaded = await load_apart(nodes, self._images.image)
        image = loaded.image
        others = [broker for broker in image.brokers.values() if broker.id != self.node_id]
        for dead in await find_dead(others, self._probe):
            await remove_registration(self.store, dead)
        image = image.with_controller(self.node_id, epoch)
        self.controller.broker_liveness.begin(self.node_id, self.store.session_timeout_ms, self._clock.monotonic_ms())
        self.controller.activate(image, epoch_version, loaded.broker_epochs, loaded.broker_index)
        self.controller_node = (self.node_id, epoch_version)
        self.controller_id = self.node_id
        try:
            await self.controller.take_brokers(self.watches.read_brokers)
        except Exception:
            self._resign()  # half a controller serves nobody: begin anew
            raise
        self.watches.start()
        self.ready.set()
        self._tell_changed()

    async def _repair(self, nodes: dict[str, Node], epoch_version: int) -> dict[str, Node]:
        """Topics that somebody has begun to make, and nobody lived to finish."""
        new_ids = iter(self.controller.new_uuid, None)
        operations = await apart(nodes, lambda: external_changes.repairs(nodes, new_ids))
        if not operations:
            return nodes
        for piece in split(operations):
            await self.store.multi((CheckNode(tree.CONTROLLER_EPOCH, epoch_version), *piece))
        return await self.read_tree()

    async def _remove_controller(self, node: Node, epoch: Node | None, *, is_offered: bool = False) -> bool:
        """Remove /controller, unless somebody was elected meanwhile: every election raises the version of the epoch."""
        operations = [offered(node) if is_offered else DeleteNode(tree.CONTROLLER, node.version)]
        if epoch is not None:
            operations.insert(0, CheckNode(tree.CONTROLLER_EPOCH, epoch.version))
        try:
            await self.store.multi(operations)
        except TransactionRefusedError:
            return False
        return True

    def _on_deposed(self) -> None:
        self._resign()
        self._chores.want("controller")

    def _resign(self) -> None:
        if self.controller.was_activated:
            logger.info("[Controller id=%d] Resigned", self.node_id)
        self.controller.resign()
        self.watches.stop()
        self.controller_node = None
        self.controller_id = NO_CONTROLLER

    # ---- what other brokers ask

    async def poll(self, request: ClusterPollRequest) -> ClusterPollResponse:
        return await self.controller.poll(request)

    # ---- signs of death

    def suspect_broker(self, broker_id: int) -> None:
        """A broker's poll connection is gone: as the controller, see whether it still runs."""
        broker = self._images.image.brokers.get(broker_id)
        if broker is not None and self.is_controller and broker_id not in self._probing:
            self.begin(self._check_broker(broker))

    async def _check_broker(self, broker: BrokerImage) -> None:
        self._probing.add(broker.id)
        try:
            if await is_dead(broker, self._probe, lambda: self._is_mine(broker)):
                await remove_registration(self.store, broker)
                self.watches.want("brokers")
        except (StoreError, KafkaError) as problem:
            logger.warning("cannot remove the registration of broker %d: %s", broker.id, problem)
        finally:
            self._probing.discard(broker.id)

    def _is_mine(self, broker: BrokerImage) -> bool:
        """Whether this broker is the controller, and that is the life of the other one that it knows."""
        return self.is_controller and self._images.image.brokers.get(broker.id) == broker

    async def suspect_controller(self, elected: int) -> None:
        """The connection to the controller is gone: if its port refuses, it is dead and another one is needed."""
        node, epoch = await asyncio.gather(self.store.get(tree.CONTROLLER), self.store.get(tree.CONTROLLER_EPOCH))
        if node is None or elected_in(node) != elected or elected == self.node_id:
            self._chores.want("controller")
            return
        registration = await self.store.get(tree.broker_path(elected))
        if registration is not None:
            broker = decode_or_none(elected, registration)
            if broker is None or self._was_accused(broker) or await self._probe(broker):
                return
            self._accused = (broker.epoch, self._clock.monotonic_ms())
        if await self._remove_controller(node, epoch):
            logger.info("the controller, broker %d, refuses connections: standing for election", elected)
        self._chores.want("controller")

    def _was_accused(self, broker: BrokerImage) -> bool:
        """Whether this life of a broker was taken for dead a while ago: whoever was elected since is alive.

        Without this, two brokers that cannot reach each other would depose each other without end.
        """
        epoch, since_ms = self._accused
        return broker.epoch == epoch and self._clock.monotonic_ms() - since_ms < ACCUSED_MS

    async def locate(self, broker_id: int) -> BrokerImage | None:
        """Where a broker is now, by its registration."""
        node = await self.store.get(tree.broker_path(broker_id))
        return decode_or_none(broker_id, node) if node is not None else None

    def take_image(self, image: MetadataImage) -> None:
        """An image that came from the controller."""
        self._images.publish(image)
        self.ready.set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something on the side; it ends with the membership."""
        task = tasks.start(work, f"what broker {self.node_id} does on the side")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __repr__(self) -> str:
        role = "controller" if self.is_controller else f"follows {self.controller_id}"
        return f"<Membership broker {self.node_id} epoch={self.broker_epoch} {role}>"
