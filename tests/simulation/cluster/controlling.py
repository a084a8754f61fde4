"""The office of the controller: decides one thing after the other, writes it, numbers it, tells it.

Decisions are those of ottla's controller package: an image in, operations and the next image out. Here is what its
service does with them: each write carries the check of the controller's epoch, no image is published before it is
written, and after a write with an unknown outcome everything is read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.network import Answer, Failure

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.cluster.feed import Feed
from ottla.controller.decisions.broker_epochs import broker_epoch_bounds, updated_epoch_bounds
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.decision import Decision, with_fence
from ottla.controller.decisions.demoted_brokers import with_demotions
from ottla.controller.decisions.isr_changes import IsrChange, decide_alter_partitions
from ottla.controller.decisions.leader_election import decide_broker_changes
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.reassignment import decide_completed_reassignments, with_completed_reassignments
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.image_loader import load_brokers, load_image
from ottla.controller.stores.store import CheckNode, DeleteNode, Node, TransactionRefusedError
from ottla.protocol.messages.inter_broker import MetadataDelta

if TYPE_CHECKING:
    from tests.simulation.cluster.membership import Member

AGAIN_MS = 30
POLL_WAIT_MS = 150
PROBE_MS = 150

Decide = Callable[[MetadataImage], Decision[Any]]


class Controlling:
    """One term of office."""

    def __init__(self, member: Member, epoch: int, epoch_version: int) -> None:
        self.member = member
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.image = MetadataImage()
        self.is_over = False
        self.is_loaded = False
        self.is_settled = False
        self._is_reading = False
        self._must_read = False
        self.liveness = BrokerAvailability()
        self._brokers: dict[int, BrokerImage] = {}  # as last read
        self._rules = member.cluster.rules
        self._queue: deque[tuple[Decide, Answer]] = deque()
        self._is_busy = False
        self.feed = Feed()
        self._index = BrokerIndex(self.image)
        self._must_settle_all = True
        self._polls: dict[int, tuple[int, Answer]] = {}

    def end(self) -> None:
        self.is_over = True
        queue, self._queue = self._queue, deque()
        for _, answer in queue:
            answer(Error.NOT_CONTROLLER)

    # ---- reading

    def load(self) -> None:
        """The whole truth is in the store; brokers get it as a snapshot."""
        self._is_busy = True
        self.member.store.ask(lambda store: store.subtree(), self._loaded, self._load_again)

    def _load_again(self) -> None:
        self.member.after(AGAIN_MS, lambda: None if self.is_over else self.load())

    def _loaded(self, nodes: dict[str, Node]) -> None:
        if self.is_over:
            return
        node = nodes.get(tree.CONTROLLER_EPOCH)
        if node is None or node.version != self.epoch_version:
            self.member.resign()
            return
        image = load_image(nodes).with_controller(self.member.host, self.epoch)
        if self.is_loaded:
            image = image.with_brokers(self.image.brokers)  # decide about changed brokers before publishing
        else:
            self.liveness = BrokerAvailability(broker_epoch_bounds=broker_epoch_bounds(nodes, image))
            self.feed.begin(MetadataImage(), self.epoch)
        self._publish(image)
        self._must_settle_all = True
        self.is_loaded = True
        self._is_busy = False
        self._brokers = load_brokers(nodes)
        self._first(
            lambda known: decide_completed_reassignments(known, known.topics, self.liveness, self._rules), ignore
        )
        self._first(*self._settling())

    def read_brokers(self) -> None:
        """A broker came or went; one request at a time, so that no answer overtakes another."""
        self._must_read = True
        if self.is_loaded and not self._is_reading and not self.is_over:
            self._is_reading, self._must_read = True, False
            self.member.store.ask(lambda store: store.subtree(tree.BROKER_IDS), self._read, self._read_again)

    def _read_again(self) -> None:
        self._is_reading = False
        self.member.after(AGAIN_MS, self.read_brokers)

    def _read(self, nodes: dict[str, Node]) -> None:
        self._is_reading = False
        self._brokers = load_brokers(nodes)
        if not self.is_over and dict(self.image.brokers) != self._brokers:
            self.change(*self._settling())
        if self._must_read:
            self.read_brokers()

    def _settling(self) -> tuple[Decide, Answer]:
        """It uses the live brokers at the time when it runs."""
        seen: dict[int, BrokerImage] = {}

        def decide(image: MetadataImage) -> Decision[Any]:
            seen.update(self._brokers)
            topics_of = None if self._must_settle_all else self._index.topics_of
            return decide_broker_changes(image, self._brokers, self.liveness, self._rules, topics_of)

        def settled(reply: Any) -> None:
            if not isinstance(reply, Error):
                self._must_settle_all = False
                self.liveness = self.liveness._replace(
                    broker_epoch_bounds=updated_epoch_bounds(seen, self.liveness.broker_epoch_bounds)
                )
                self.member.cluster.review_damage()
                if not self.is_settled:
                    self.is_settled = True
                    self.member.publish(self.image)

        return decide, settled

    # ---- one change after the other

    def change(self, decide: Decide, answer: Answer) -> None:
        self._queue.append((decide, answer))
        self._next()

    def _first(self, decide: Decide, answer: Answer) -> None:
        self._queue.appendleft((decide, answer))
        self._next()

    def _next(self) -> None:
        if self._is_busy or self.is_over or not self._queue or not self.is_loaded:
            return
        decide, answer = self._queue.popleft()
        try:
            self.liveness = self.liveness._replace(demoted=self.member.cluster.resting)
            moving = self._index.moving_topics
            decision = with_completed_reassignments(self.image, decide(self.image), self.liveness, self._rules, moving)
            decision = with_demotions(self.image, decision, self.liveness, self._rules)
        except KafkaError as refusal:
            answer(refusal.error)
            self._next()
            return
        if not decision.operations:
            self._publish(decision.image)
            answer(decision.reply)
            self._next()
            return
        self._is_busy = True
        fence = CheckNode(tree.CONTROLLER_EPOCH, self.epoch_version)

        def written(_: object) -> None:
            if not self.is_over:
                self._is_busy = False
                self._publish(decision.image)
                answer(decision.reply)
                self._next()

        def unknown() -> None:
            answer(Error.UNKNOWN_SERVER_ERROR)
            if not self.is_over:
                self.load()

        def refused(why: TransactionRefusedError) -> None:
            answer(Error.UNKNOWN_SERVER_ERROR)
            if self.is_over:
                return
            if why.operation == fence:
                self.member.resign()
            else:
                self.load()

        self.member.store.multi(with_fence(fence, decision.operations), written, unknown, refused)

    def _publish(self, image: MetadataImage) -> None:
        if image is self.image:
            return
        self.feed.publish(image)
        self._index.update(image)
        self.image = image
        if not self.is_settled:
            return  # never publish leaders that may be gone
        self.member.publish(image)
        polls, self._polls = self._polls, {}
        for sequence, answer in polls.values():
            answer(self._polled(Error.NONE, self.feed.unseen(self.epoch, sequence)))

    # ---- what brokers ask

    def on_poll(self, broker: int, broker_epoch: int, epoch: int, sequence: int, answer: Answer) -> None:
        known = self.image.brokers.get(broker)
        if not self.is_settled or known is None:
            answer(self._polled(Error.NOT_CONTROLLER))
        elif known.epoch != broker_epoch:
            answer(self._polled(Error.STALE_BROKER_EPOCH))
        else:
            unseen = self.feed.unseen(epoch, sequence)
            if unseen:
                answer(self._polled(Error.NONE, unseen))
                return
            self._polls[broker] = (sequence, answer)
            self.member.after(POLL_WAIT_MS, lambda: self._end_poll(broker, answer))

    def _end_poll(self, broker: int, answer: Answer) -> None:
        if self._polls.get(broker, (0, None))[1] is answer:
            del self._polls[broker]
            answer(self._polled(Error.NONE))

    def _polled(self, error: Error, deltas: Sequence[MetadataDelta] = ()) -> Any:
        from tests.simulation.cluster.membership import Polled  # noqa: PLC0415 (they know each other)

        return Polled(error, self.epoch, deltas)

    def on_alter_partitions(self, broker: int, broker_epoch: int, proposals: list[Any], answer: Answer) -> None:
        changes = [
            IsrChange(each.topic_id, each.partition, each.leader_epoch, each.partition_epoch, each.isr)
            for each in proposals
        ]

        def answered(reply: Any) -> None:
            answer(reply if isinstance(reply, Error) else [(each.error, each.partition) for each in reply])

        self.change(
            lambda image: decide_alter_partitions(image, broker, broker_epoch, changes, self.liveness, self._rules),
            answered,
        )

    def on_reset(self, host: int) -> None:
        """A broker's connection was reset: if its port refuses, it is dead, whatever its session says."""

        def dead(why: Failure) -> None:
            if why is Failure.REFUSED and not self.is_over:
                fence = CheckNode(tree.CONTROLLER_EPOCH, self.epoch_version)
                operations = (fence, DeleteNode(tree.broker_path(host)))
                self.member.store.multi(operations, ignore, lambda: None, ignore)

        self.member.network.call(
            self.member, host, lambda process, answer: process.on_probe(answer), ignore, dead, PROBE_MS
        )


def ignore(_: Any) -> None:
    pass


NO_RULES = ElectionRules()
