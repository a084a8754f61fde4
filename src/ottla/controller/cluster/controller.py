"""The controller of a cluster: every broker has one, and one of them is active, whoever was elected (membership.py).

The others answer NOT_CONTROLLER. The active one knows who is there, tells the other brokers what changes (feed.py) and
takes their reports; a change is answered when they have seen it, or after a second. Everything that it knows beside the
image (who is about to stop, whose folders have failed) is told again by the brokers to the next controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster.broker_liveness import BrokerLiveness
from ottla.controller.cluster.feed import Feed
from ottla.controller.cluster.loading_apart import load_apart
from ottla.controller.cluster.news import tell_brokers, tell_damage, tell_election
from ottla.controller.cluster.version_gate import VersionGate
from ottla.controller.decisions.broker_epochs import after_election
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.changes import has_changed
from ottla.controller.decisions.eligible_leaders import decide_minimum
from ottla.controller.decisions.isr import IsrAnswer, IsrChange, check_broker_epoch, decide_alter_partitions
from ottla.controller.decisions.leader_election import (
    Election,
    decide_brokers,
    decide_controlled_shutdown,
    decide_election,
)
from ottla.controller.decisions.liveness import NO_LIVES, ElectionSettings, Liveness, Rules, rules_by
from ottla.controller.decisions.machine import ConfigCheck, Decision
from ottla.controller.decisions.ottla_version import level
from ottla.controller.decisions.reassignment import with_next_steps
from ottla.controller.decisions.relief import resting_brokers, with_relief
from ottla.controller.decisions.splitting import split
from ottla.controller.holder import ImageHolder
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.service import THREAD_SIZE_MIN, ControllerOptions, ControllerService, Decide
from ottla.controller.stores.store import MetadataStore, Node, StoreError, StoreOperation
from ottla.protocol.messages.cluster_poll import ClusterPollRequest, ClusterPollResponse, MetadataDelta

logger = logging.getLogger(__name__)

POLL_WAIT_MS_MAX: Final = 30_000
REGISTRATION_SECONDS_MAX: Final = 2.0  # so long a broker that is not known yet waits for the controller to look
LOOK_SECONDS: Final = 0.02
SEEN_SECONDS_MAX: Final = 1.0  # so long an answer waits for brokers that have not seen the change

R = TypeVar("R")
T = TypeVar("T")


class Registrations(NamedTuple):
    """Who is registered, and the registrations that cannot be read."""

    brokers: Mapping[int, BrokerImage]
    damaged: frozenset[str] = frozenset()


class ClusterOptions(ControllerOptions, ElectionSettings, Protocol):
    """What the controller needs to know of the broker's settings."""

    def under(self, image: MetadataImage, /) -> ElectionSettings:
        """The settings that count when this image does."""


class ClusterController(ControllerService):
    """One a broker; at work while its broker is the controller. All calls are made on the loop."""

    attempts_max: ClassVar[int] = 3  # somebody else may have written what a change is about

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        options: ClusterOptions,
        check_configs: ConfigCheck,
        random: Random | None = None,
        images: ImageHolder | None = None,
    ) -> None:
        super().__init__(store, clock, options, check_configs, random, images)
        self.feed = Feed()
        self.broker_liveness = BrokerLiveness()
        self.versions = VersionGate()
        self.on_heard: Callable[[], None] = lambda: None  # a broker that was not counted on may be from now on
        self.liveness = Liveness()
        self.slow: frozenset[int] = frozenset()  # brokers that do not keep up (relief.py)
        self.index = BrokerIndex(self._image)
        self._loads = 0  # how often the store was read as a whole
        self._settled_load = -1  # the one since which all partitions are in line with who is there
        self._election_options = options
        # Nobody hears of an image before its leaders fit to who is there: one that lost records would begin to lead.
        self._is_settled = False
        self.is_in_touch: Callable[[], bool] = lambda: True  # with the store; who is not must not decide anything
        self.on_deposed: Callable[[], None] = lambda: None
        self.read_tree: Callable[[], Awaitable[Mapping[str, Node]]] = lambda: store.subtree("/")

    @property
    def rules(self) -> Rules:
        return rules_by(self._election_options)

    # ---- being the controller, and not being it any more

    @property
    def is_active(self) -> bool:
        return self._is_active and self.is_in_touch()

    @property
    def was_activated(self) -> bool:
        """Whether this broker was elected and has not resigned, in touch with the store or not."""
        return self._is_active

    def activate(
        self,
        image: MetadataImage,
        epoch_version: int,
        known: Mapping[int, int] = NO_LIVES,
        index: BrokerIndex | None = None,
    ) -> None:
        """This broker was elected; `image` is what the store holds, under the new epoch, `known` whom its ISRs mean."""
        self.liveness = Liveness(known=known)
        self._epoch_version = epoch_version
        self._must_reload = False
        self._is_active = True
        self._is_settled = False
        self.feed.begin(image, image.controller_epoch)
        tell_damage(frozenset(), image.damaged)
        self._image = image
        self.index = index or BrokerIndex(image)
        self.index.follow(image)
        self._loads += 1
        self.note_resting()

    def resign(self) -> None:
        """Another one may be elected: decide nothing more. What is under way fails at the store's fence."""
        self._is_active = False
        self.feed.end()

    def _on_deposed(self) -> None:
        self._is_active = False
        self.on_deposed()

    # ---- who is there

    async def take_brokers(self, read: Callable[[], Awaitable[Registrations]]) -> Election:
        """Look who is registered and can be heard, and go on with them."""
        seen: dict[int, BrokerImage] = {}
        load = -1

        async def look() -> frozenset[str]:
            registered = await read()
            admitted = self.versions.admit(self._image, registered.brokers)
            seen.update(self.broker_liveness.count_on(admitted, self._clock.monotonic_ms()))
            for broker in tell_brokers(self._image.brokers, seen):  # here: the decision may run in another thread
                self.forget(broker)
            return registered.damaged

        def decide(image: MetadataImage, damaged: frozenset[str]) -> Decision[Election]:
            nonlocal load
            load = self._loads
            others = frozenset(path for path in image.damaged if not path.startswith(tree.BROKER_IDS))
            if image.damaged != others | damaged:
                image = image.with_damaged(others | damaged)
            topics_of = self.index.topics_of if load == self._settled_load else None
            return decide_brokers(image, seen, self.liveness, self.rules, topics_of)

        election = await self.change_after_reading(look, decide)
        self._settled_load = load
        self.liveness = self.liveness._replace(known=after_election(seen, self.liveness.known))
        if not self._is_settled:
            self._is_settled = True
            super()._publish(self._image)
        tell_election(election)
        return election

    def forget(self, broker: int) -> None:
        """What a broker said in an earlier life counts no more."""
        self.feed.forget_broker(broker)
        liveness = self.liveness.with_offline(broker, frozenset())
        self.liveness = liveness._replace(shutting_down=liveness.shutting_down - {broker})

    async def settle(self, only: Collection[str] | None = None) -> Election:
        """Bring all partitions, or those of some topics, in line with who is there and with the settings."""
        election = await self.change(
            lambda image: decide_election(image, self.liveness, self.rules, only=only),
            size=self._image.partition_count if only is None else self._image.count_partitions(only),
            is_urgent=True,
        )
        tell_election(election)
        return election

    async def settle_minimum(self) -> None:
        """One min.insync.replicas for the whole cluster; at first what the file of this broker says."""
        minimum = self._election_options.under(MetadataImage()).min_insync_replicas
        await self.change(lambda image: decide_minimum(image, minimum), is_urgent=True)

    # ---- changes in a cluster

    async def change_after_reading(
        self, read: Callable[[], Awaitable[T]], decide: Callable[[MetadataImage, T], Decision[R]]
    ) -> R:
        """A change about what the store holds now: nothing of ours comes between the reading and the change."""
        return (await self._shielded(self._run_reading_change(read, decide)))[0]

    async def _run_reading_change(
        self, read: Callable[[], Awaitable[T]], decide: Callable[[MetadataImage, T], Decision[R]]
    ) -> tuple[R, int]:
        async with self._one_at_a_time:
            await self._make_ready()
            try:
                found = await read()
            except StoreError as error:
                raise self._store_failed(error) from error
            size = self._image.partition_count
            return await self._attempt(lambda image: decide(image, found), False, size)

    async def _decide(self, decide: Decide[R], size: int) -> Decision[R]:
        """What a change brings about is in the same write: leaders that settings ask for, moves that can end."""
        old = self._image
        decision = await super()._decide(decide, size)
        liveness = self._liveness_under(decision.image)
        decision = await self._with_election(old, decision, liveness)
        decision = with_next_steps(old, decision, liveness, self.rules, self.index.moving_topics)
        decision = with_relief(old, decision, liveness, self.rules)
        new = decision.image
        if new.count_partitions(new.changed_topics_since(old)) > THREAD_SIZE_MIN:
            await self.feed.prepare(new)
        return decision

    async def _with_election(self, old: MetadataImage, decision: Decision[R], liveness: Liveness) -> Decision[R]:
        """Settings that decide about leaders count from the moment in which they change."""
        new = decision.image
        is_for_all = new.broker_configs is not old.broker_configs or new.features is not old.features
        if new.topic_configs is old.topic_configs and not is_for_all:
            return decision
        changed: Collection[str] = [
            name
            for name in new.changed_topics_since(old)
            if name in old.topics and new.topic_configs.get(name) != old.topic_configs.get(name)
        ]
        rules = self._rules_under(new)
        if is_for_all:
            if new.features is not old.features or rules != self._rules_under(old):
                changed = new.topics.keys()  # the default of all topics has changed
            else:
                changed = [*changed, *self.index.topics_of(liveness.resting - self.liveness.resting)]
        if new.count_partitions(changed) > THREAD_SIZE_MIN:
            settled = await asyncio.to_thread(decide_election, new, liveness, rules, only=changed)
        else:
            settled = decide_election(new, liveness, rules, only=changed)
        return decision._replace(operations=(*decision.operations, *settled.operations), image=settled.image)

    def _liveness_under(self, image: MetadataImage) -> Liveness:
        """What is known of brokers, when an image counts: its settings say who is in maintenance."""
        return self.liveness._replace(resting=resting_brokers(image, self._clock.now_ms(), self.slow))

    def note_resting(self) -> frozenset[int]:
        """Who rests now, by the settings and by the clock."""
        self.liveness = self._liveness_under(self._image)
        return self.liveness.resting

    def _rules_under(self, image: MetadataImage) -> Rules:
        """The rules of topics without their own, when an image counts."""
        return rules_by(self._election_options.under(image))

    def _is_change(self, decision: Decision[Any]) -> bool:
        """Some things change without being written by us: who is alive, and what others have written."""
        return bool(decision.operations) or has_changed(self._image, decision.image)

    def _pieces(self, operations: Sequence[StoreOperation]) -> Iterator[Sequence[StoreOperation]]:
        return split(operations)

    def _publish(self, image: MetadataImage) -> None:
        tell_damage(self._image.damaged, image.damaged)
        self.index.follow(image)
        self.feed.publish(image)
        if level(image) != level(self._image):  # other brokers may be admitted now
            self.on_heard()
        if self._is_settled:
            super()._publish(image)
        else:
            self._image = image
        self.note_resting()

    def _sequence(self) -> int:
        return self.feed.sequence

    async def _await_seen(self, sequence: int) -> None:
        await self.feed.acknowledged(sequence, SEEN_SECONDS_MAX)

    async def reload(self) -> None:
        """Read everything again: nodes that could not be read can."""
        self._must_reload = True
        await self.settle()

    async def _reload(self) -> None:
        nodes = await self.read_tree()
        self._must_reload = False
        self._loads += 1
        # Who is elected keeps its epoch: if that is over, the fence will tell. Who is there is looked at in its turn,
        # with all that follows from it: a broker that has been restarted must not lead before that.
        image = (await load_apart(nodes, self._image)).image
        image = image.with_controller(self._options.node_id, self._image.controller_epoch)
        self._publish(image.with_brokers(self._image.brokers))

    # ---- what brokers ask

    async def poll(self, request: ClusterPollRequest) -> ClusterPollResponse:
        """ClusterPoll: what the broker has not seen yet, as soon as there is something."""
        if self.broker_liveness.hear(request.broker_id, request.broker_epoch, self._clock.monotonic_ms()):
            logger.info("[Controller] broker %d polls again", request.broker_id)
            self.on_heard()
        try:
            self._check_active()
            self.versions.check_poll(self._image, request.broker_id, request.level_max)
            await self._await_registration(request.broker_id, request.broker_epoch)
            self.broker_liveness.sync_ms[request.broker_id] = request.sync_ms
            await self._take_offline(request)
        except KafkaError as refusal:
            return ClusterPollResponse(
                error_code=refusal.error, error_message=refusal.message, controller_epoch=self.feed.epoch
            )
        seconds = min(request.max_wait_ms, POLL_WAIT_MS_MAX) / 1000
        deltas = await self.feed.poll(request.broker_id, request.controller_epoch, request.sequence, seconds)
        if not self.is_active:
            return ClusterPollResponse(error_code=Error.NOT_CONTROLLER)
        # Some are bytes already, which only feed.encoded() knows what to do with.
        return ClusterPollResponse(controller_epoch=self.feed.epoch, deltas=cast("list[MetadataDelta]", deltas))

    async def alter_partitions(self, broker: int, broker_epoch: int, changes: Sequence[IsrChange]) -> list[IsrAnswer]:
        """AlterPartition; raises KafkaError(STALE_BROKER_EPOCH) or (NOT_CONTROLLER) for the whole."""
        return await self.change(
            lambda image: decide_alter_partitions(image, broker, broker_epoch, changes, self.liveness, self.rules),
            size=len(changes),
            is_urgent=True,
        )

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """ControlledShutdown; the partitions that have nobody else who could lead them."""
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
        """A broker that has just registered may ask before its registration was noticed."""
        deadline = asyncio.get_running_loop().time() + REGISTRATION_SECONDS_MAX
        while True:
            self._check_active()
            known = self._image.brokers.get(broker)
            if known is not None and known.epoch == epoch and self._is_settled:
                return
            is_older = known is not None and epoch < known.epoch
            if is_older or epoch < 0 or asyncio.get_running_loop().time() > deadline:
                raise KafkaError(Error.STALE_BROKER_EPOCH)
            await asyncio.sleep(LOOK_SECONDS)

    async def _take_offline(self, request: ClusterPollRequest) -> None:
        told = frozenset((topic.topic_id, index) for topic in request.offline for index in topic.partitions)
        if told == self.liveness.offline.get(request.broker_id, frozenset()):
            return
        logger.info(
            "[Controller] broker %d has %d replicas that cannot lead (failed folders, damage, full disks)",
            request.broker_id,
            len(told),
        )
        await self.take_offline(request.broker_id, told)

    async def take_offline(self, broker: int, replicas: frozenset[tuple[UUID, int]]) -> None:
        """All replicas of a broker that lie in failed folders."""
        before = self.liveness.offline.get(broker, frozenset())
        self.liveness = self.liveness.with_offline(broker, replicas)
        known = self._image.topics_by_id
        try:
            await self.settle({known[topic_id].name for topic_id, _ in before ^ replicas if topic_id in known})
        except BaseException:
            self.liveness = self.liveness.with_offline(
                broker, before
            )  # it is told again, and must not be taken for known then
            raise

    def __repr__(self) -> str:
        return f"<ClusterController {self.liveness} {self.feed!r}>"
