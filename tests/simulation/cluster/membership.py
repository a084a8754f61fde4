"""How a broker belongs to the cluster: its registration, its view of the controller, the deltas that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.cluster.controlling import Controlling
from tests.simulation.cluster.disk import Disk
from tests.simulation.cluster.ensemble import SESSION_MS, StoreClient
from tests.simulation.cluster.network import Answer, Failure, Process
from tests.simulation.cluster.store import MemoryStore

from ottla.base.errors import Error
from ottla.controller import tree
from ottla.controller.cluster.deltas import DeltaMismatchError, Place, apply_deltas
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.controller.stores.store import CheckNode, CreateNode, DeleteNode, Node, SetNode, StoreOperation
from ottla.protocol.messages.inter_broker import MetadataDelta

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import Cluster

AGAIN_MS = 30
POLL_WAIT_MS = 150
POLL_PATIENCE_MS = 400
CONTACT_CHECK_MS = 100


class Polled(NamedTuple):
    """The answer to a poll."""

    error: Error
    controller_epoch: int = -1
    deltas: Sequence[MetadataDelta] = ()


class Member(Process):
    """A process with a session, an image, and perhaps the office of the controller."""

    def __init__(self, cluster: Cluster, host: int, disk: Disk) -> None:
        super().__init__(cluster.world, host)
        self.cluster = cluster
        self.network = cluster.network
        self.image = MetadataImage()
        self.disk = disk
        self.broker_epoch = -1
        self.controller_id = -1
        self.controlling: Controlling | None = None
        self._controller_node: Node | None = None
        self._epoch_version = -1  # of the node of the controller's epoch, as last seen
        self._place = Place()  # in what the controller has published
        self._is_polling = False
        self._is_looking = False
        self._must_look = False
        self._registered_in = 0
        self.store = StoreClient(self, self.network, self._register, self._expired, self._look)
        self.store.connect()
        self.after(CONTACT_CHECK_MS, self._check_contact)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        raise NotImplementedError

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.on_image(old, image)

    # ---- the session

    def _register(self) -> None:
        """One transaction: an earlier life's node is replaced, if it is still there."""
        path = tree.broker_path(self.host)
        endpoints = {"PLAINTEXT": Endpoint("h", self.host)}
        broker = BrokerImage(self.host, endpoints, None, 0, previous_epoch=self.disk.life)
        session = self.store.session

        def work(store: MemoryStore) -> int:
            stored = store.nodes.get(path)
            if stored is not None and stored.owner == session:
                return stored.node.created_id  # an answer got lost on its way
            operations: list[StoreOperation] = [CreateNode(path, tree.encode_broker(broker, 0), is_ephemeral=True)]
            if stored is not None:
                operations.insert(0, DeleteNode(path))
            store.multi(session, operations)
            return store.nodes[path].node.created_id

        def registered(epoch: int) -> None:
            if self.store.session == session:
                self.broker_epoch, self._registered_in = epoch, session
                self.disk.life = epoch
                self.world.tell(f"{self.host} is registered, epoch {epoch}")
                self._look()

        def again() -> None:
            if self.store.session == session:
                self.after(AGAIN_MS, self._register)

        self.store.ask(work, registered, again)

    def _expired(self) -> None:
        self.world.tell(f"{self.host} has lost its session")
        self.resign()

    def _check_contact(self) -> None:
        """A controller that has not heard of the store for a session may have been followed by another."""
        if self.controlling is not None and self.world.now_ms - self.store.last_contact_ms > SESSION_MS:
            self.resign()
        self.after(CONTACT_CHECK_MS, self._check_contact)

    # ---- the controller

    def _look(self) -> None:
        """The store has changed: read the controller, this broker's registration and the live brokers."""
        if self._is_looking or self._registered_in != self.store.session:
            self._must_look = True
            return
        self._is_looking, self._must_look = True, False
        paths = (tree.CONTROLLER, tree.CONTROLLER_EPOCH, tree.broker_path(self.host))
        self.store.ask(lambda store: [store.get(path) for path in paths], self._looked, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        if self.store.session:
            self.after(AGAIN_MS, self._look)

    def _looked(self, nodes: list[Node | None]) -> None:
        self._is_looking = False
        controller, epoch, own = nodes
        if own is None and self._registered_in == self.store.session:
            self._registered_in = -1
            self._register()  # the controller took this broker for dead
            return
        self._controller_node = controller
        self._epoch_version = epoch.version if epoch is not None else -1
        self.controller_id = tree.decode_controller(controller.data) if controller is not None else -1
        if self.controlling is not None and (
            self.controller_id != self.host or self._epoch_version != self.controlling.epoch_version
        ):
            self.resign()
        if controller is None:
            self._stand(epoch)
        elif self.controlling is not None:
            self.controlling.read_brokers()
        elif self.controller_id == self.host:
            self.after(0, self._depose)  # ours, of an election whose answer got lost: start again
        else:
            self._poll()
        if self._must_look:
            self._look()

    def _depose(self) -> None:
        """Take the controller's node away; the check makes sure that it is the very node that we mean."""
        operations = [CheckNode(tree.CONTROLLER_EPOCH, self._epoch_version), DeleteNode(tree.CONTROLLER)]
        self.store.multi(operations, lambda outcomes: self._look(), self._look, lambda refused: self._look())

    def _stand(self, epoch: Node | None) -> None:
        number = tree.decode_number(tree.CONTROLLER_EPOCH, epoch.data) + 1 if epoch is not None else 1
        raised: StoreOperation = CreateNode(tree.CONTROLLER_EPOCH, tree.encode_number(number))
        if epoch is not None:
            raised = SetNode(tree.CONTROLLER_EPOCH, tree.encode_number(number), epoch.version)
        claim = CreateNode(tree.CONTROLLER, tree.encode_controller(self.host, 0), is_ephemeral=True)
        version = epoch.version + 1 if epoch is not None else 0
        self.store.multi([claim, raised], lambda _: self._won(number, version), self._look, lambda _: self._look())

    def _won(self, epoch: int, version: int) -> None:
        self.world.tell(f"{self.host} is the controller, epoch {epoch}")
        self.controller_id = self.host
        self.controlling = Controlling(self, epoch, version)
        self.controlling.load()

    def resign(self) -> None:
        if self.controlling is not None:
            self.world.tell(f"{self.host} is no longer the controller")
            self.controlling.end()
            self.controlling = None
            self.after(AGAIN_MS, self._look)  # the node may still be ours

    # ---- deltas

    def _poll(self) -> None:
        if self._is_polling or self.controller_id in (-1, self.host):
            return
        self._is_polling = True
        epoch, (of, sequence), controller = self.broker_epoch, self._place, self.controller_id
        self.network.call(
            self,
            controller,
            lambda process, answer: process.on_poll(self.host, epoch, of, sequence, answer),
            self._polled,
            lambda why: self._not_polled(controller, why),
            POLL_PATIENCE_MS,
        )

    def _not_polled(self, controller: int, why: Failure) -> None:
        self._is_polling = False
        if why is Failure.REFUSED and self.controller_id == controller and self._controller_node is not None:
            self._depose()
        else:
            self.after(AGAIN_MS, self._look)

    def _polled(self, polled: Polled) -> None:
        self._is_polling = False
        if polled.error is not Error.NONE:
            self.after(AGAIN_MS, self._look)
            return
        if self.controlling is None:
            self._apply(polled)
        self._poll()

    def _apply(self, polled: Polled) -> None:
        if polled.controller_epoch < self.image.controller_epoch:
            return  # a controller that is none any more
        try:
            image, self._place = apply_deltas(self.image, self._place, polled.controller_epoch, polled.deltas)
        except DeltaMismatchError:
            self._place = Place()
            return
        if polled.deltas:
            self.publish(image)

    # ---- asking the controller

    def ask_controller(
        self,
        request: Callable[[Any, Answer], None],
        then: Answer,
        failed: Callable[[Failure], None],
        timeout_ms: int,
    ) -> None:
        self.network.call(self, self.controller_id, request, then, failed, timeout_ms)

    def on_poll(self, broker: int, broker_epoch: int, epoch: int, sequence: int, answer: Answer) -> None:
        if self.controlling is None:
            answer(Polled(Error.NOT_CONTROLLER))
        else:
            self.controlling.on_poll(broker, broker_epoch, epoch, sequence, answer)

    def on_alter_partitions(self, broker: int, broker_epoch: int, proposals: list[Any], answer: Answer) -> None:
        if self.controlling is None:
            answer(Error.NOT_CONTROLLER)
        else:
            self.controlling.on_alter_partitions(broker, broker_epoch, proposals, answer)

    def on_admin(self, decide: Callable[[MetadataImage], Any], answer: Answer) -> None:
        if self.controlling is None:
            answer(Error.NOT_CONTROLLER)
        else:
            self.controlling.change(decide, answer)

    def on_probe(self, answer: Answer) -> None:
        answer(True)
