"""The controller of a cluster: every broker has one, and one of them is active, whoever was elected (membership.py).

The others answer NOT_CONTROLLER. The active one knows who is there, tells the other brokers what changes (feed.py) and
takes their reports; a change is answered when they have seen it, or after a second. Everything that it knows beside the
image (who is about to stop, whose folders have failed) is told again by the brokers to the next controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster.broker_liveness import BrokerLiveness
from ottla.controller.cluster.feed import Feed
from ottla.controller.cluster.news import tell_brokers, tell_damage
from ottla.controller.cluster.version_gate import VersionGate
from ottla.controller.decisions.broker_epochs import after_election
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
from ottla.controller.loading import load_readable
from ottla.controller.service import ControllerOptions, ControllerService, Decide
from ottla.controller.stores.store import MetadataStore, Node, StoreError, StoreOperation
from ottla.protocol.messages.cluster_poll import ClusterPollRequest, ClusterPollResponse

logger = logging.getLogger(__name__)

POLL_WAIT_MS_MAX: Final = 30_000
REGISTRATION_SECONDS_MAX: Final = 2.0  # so long a broker that is not known yet waits for the controller to look
LOOK_SECONDS: Final = 0.02
SEEN_SECONDS_MAX: Final = 1.0  # so long an answer waits for brokers that have not seen the change
PARTS: Final = (
    "acls",
    "brokers",
    "broker_configs",
    "group_configs",
    "client_metrics_configs",
    "user_configs",
    "quota_configs",
    "delegation_tokens",
    "features",
    "cluster_id",
    "damaged",
)

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

    def activate(self, image: MetadataImage, epoch_version: int, known: Mapping[int, int] = NO_LIVES) -> None:
        """This broker was elected; `image` is what the store holds, under the new epoch, `known` whom its ISRs mean."""
        self.liveness = Liveness(known=known)
        self._epoch_version = epoch_version
        self._must_reload = False
        self._is_active = True
        self._is_settled = False
        self.feed.begin(image, image.controller_epoch)
        tell_damage(frozenset(), image.damaged)
        self._image = image
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

        async def look() -> frozenset[str]:
            registered = await read()
            admitted = self.versions.admit(self._image, registered.brokers)
            seen.update(self.broker_liveness.count_on(admitted, self._clock.monotonic_ms()))
            self._compare(self._image.brokers, seen)  # here and not in the decision, which may run in another thread
            return registered.damaged

        def decide(image: MetadataImage, damaged: frozenset[str]) -> Decision[Election]:
            others = frozenset(path for path in image.damaged if not path.startswith(tree.BROKER_IDS))
            if image.damaged != others | damaged:
                image = image.with_damaged(others | damaged)
            return decide_brokers(image, seen, self.liveness, self.rules)

        election = await self.change_after_reading(look, decide)
        self.liveness = self.liveness._replace(known=after_election(seen, self.liveness.known))
        if not self._is_settled:
            self._is_settled = True
            super()._publish(self._image)
        self._tell(election)
        return election

    def _compare(self, before: Mapping[int, BrokerImage], brokers: Mapping[int, BrokerImage]) -> None:
        for broker in tell_brokers(before, brokers):
            self.forget(broker)

    def forget(self, broker: int) -> None:
        """What a broker said in an earlier life counts no more."""
        self.feed.forget_broker(broker)
        offline = {id_: names for id_, names in self.liveness.offline.items() if id_ != broker}
        self.liveness = self.liveness._replace(shutting_down=self.liveness.shutting_down - {broker}, offline=offline)

    async def settle(self) -> Election:
        """Bring all partitions in line with who is there and with the settings."""
        election = await self.change(
            lambda image: decide_election(image, self.liveness, self.rules),
            size=self._image.count_partitions(self._image.topics),
            is_urgent=True,
        )
        self._tell(election)
        return election

    async def settle_minimum(self) -> None:
        """One min.insync.replicas for the whole cluster; at first what the file of this broker says."""
        minimum = self._election_options.under(MetadataImage()).min_insync_replicas
        await self.change(lambda image: decide_minimum(image, minimum), is_urgent=True)

    def _tell(self, election: Election) -> None:
        if election.elected or election.leaderless:
            logger.info(
                "[Controller] %d partitions have a new leader or leader epoch, %d have none",
                election.elected,
                len(election.leaderless),
            )

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
            size = self._image.count_partitions(self._image.topics)
            return await self._attempt(lambda image: decide(image, found), False, size)

    async def _decide(self, decide: Decide[R], size: int) -> Decision[R]:
        """What a change brings about is in the same write: leaders that settings ask for, moves that can end."""
        old = self._image
        decision = await super()._decide(decide, size)
        liveness = self._liveness_under(decision.image)
        decision = with_next_steps(old, self._with_election(old, decision, liveness), liveness, self.rules)
        return with_relief(old, decision, liveness, self.rules)

    def _with_election(self, old: MetadataImage, decision: Decision[R], liveness: Liveness) -> Decision[R]:
        """Settings that decide about leaders count from the moment in which they change."""
        new = decision.image
        is_for_all = new.broker_configs is not old.broker_configs or new.features is not old.features
        if new.topic_configs is old.topic_configs and not is_for_all:
            return decision
        changed = [
            name
            for name in new.changed_topics_since(old)
            if name in old.topics and new.topic_configs.get(name) != old.topic_configs.get(name)
        ]
        if is_for_all:  # the default of all topics may have changed
            changed = list(new.topics)
        settled = decide_election(new, liveness, self._rules_under(new), only=changed)
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
        old, new = self._image, decision.image
        return bool(decision.operations or new.changed_topics) or any(
            getattr(new, part) is not getattr(old, part) for part in PARTS
        )

    def _pieces(self, operations: Sequence[StoreOperation]) -> Iterator[Sequence[StoreOperation]]:
        return split(operations)

    def _publish(self, image: MetadataImage) -> None:
        tell_damage(self._image.damaged, image.damaged)
        self.feed.publish(image)
        if level(image) != level(self._image):  # other brokers may be admitted now
            self.on_heard()
        if self._is_settled:
            super()._publish(image)
        else:
            self._image = image
        self.note_resting()

    def _load(self, nodes: Mapping[str, Node]) -> MetadataImage:
        return load_readable(nodes, self._image)

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
        # Who is elected keeps its epoch: if that is over, the fence will tell. Who is there is looked at in its turn,
        # with all that follows from it: a broker that has been restarted must not lead before that.
        image = self._load(nodes).with_controller(self._options.node_id, self._image.controller_epoch)
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
        return ClusterPollResponse(controller_epoch=self.feed.epoch, deltas=deltas)

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
            lambda image: decide_controlled_shutdown(image, broker, self.liveness, self.rules),
            size=self._image.count_partitions(self._image.topics),
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
        self._note_offline(broker, replicas)
        try:
            await self.settle()
        except BaseException:
            self._note_offline(broker, before)  # it is told again, and must not be taken for known then
            raise

    def _note_offline(self, broker: int, replicas: frozenset[tuple[UUID, int]]) -> None:
        offline = {id_: names for id_, names in self.liveness.offline.items() if id_ != broker}
        if replicas:
            offline[broker] = replicas
        self.liveness = self.liveness._replace(offline=offline)

    def __repr__(self) -> str:
        return f"<ClusterController {self.liveness} {self.feed!r}>"
