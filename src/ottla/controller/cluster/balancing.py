"""Drives balancing (decisions/balancing/) while this broker is the controller: a little of a plan, then a look again.

Rules:
1. The plan is made here on the loop, in slices of a few milliseconds; what is written is decided again on the image of
   that moment, and only for partitions that are as the plan saw them.
2. Healing comes first: nothing begins while it is at work, and a move to a broker that is lost is given up for it.
3. The journal is read when this broker is elected, and again after any failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, ParamSpec, Protocol, TypeVar

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.counting import counted
from ottla.base.errors import KafkaError
from ottla.base.log_limiter import LogLimiter
from ottla.base.placement.balance import steps
from ottla.base.placement.balance_layout import BalancePlan
from ottla.base.placement.broker_loads import Aims, BrokerRoom, PartitionLoad
from ottla.base.placement.portion import affordable
from ottla.base.uncollected import uncollected
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.healing import Healing
from ottla.controller.decisions.balancing import journal as journal_node
from ottla.controller.decisions.balancing.journal import JournalNode
from ottla.controller.decisions.balancing.steps import (
    MOVES_MAX,
    Begun,
    Limits,
    Tidied,
    decide_begin,
    decide_tidy,
    hindrance,
    loads_of,
    rooms_of,
)
from ottla.controller.decisions.healing.journal import PARENT
from ottla.controller.decisions.healing.situation import Disks
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.maintenance import brokers_in_maintenance
from ottla.controller.decisions.reassignment import moves
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import THREAD_SIZE_MIN, Decide
from ottla.controller.stores.store import MetadataStore, StoreError

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0  # at moves under way
PLAN_SECONDS: Final = 60.0  # between two plans of which nothing came
COMPLAINT_MS: Final = 60_000
NO_LIMIT: Final = 2**63

P = ParamSpec("P")
T = TypeVar("T")
Reply = TypeVar("Reply", Begun, Tidied)
AskDisks = Callable[[int], Awaitable[Disks | None]]


class BalancingSettings(Protocol):
    """The settings that balancing goes by."""

    @property
    def ottla_balance_enable(self) -> bool: ...

    @property
    def ottla_balance_bytes_per_hour(self) -> int: ...

    @property
    def ottla_balance_disk_max_percentage(self) -> int: ...

    @property
    def ottla_balance_throttle_rate(self) -> int: ...


class Balancing:
    """One a broker; at work while its broker is the controller. All calls are made on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: ImageHolder,
        clock: Clock,
        settings: Callable[[], BalancingSettings],
        ask_disks: AskDisks,
        healing: Healing | None,
    ) -> None:
        self._store = store
        self._controller = controller
        self._clock = clock
        self._settings = settings
        self._ask_disks = ask_disks
        self._healing = healing
        self._epoch = -1  # of the election that the task below belongs to
        self._task: asyncio.Task[None] | None = None
        self._node: JournalNode | None = None  # None: it has to be read
        self._planned_ms: int | None = None  # when a plan came to nothing
        self._waits: str | None = None
        self._log_limiter = LogLimiter(COMPLAINT_MS)
        images.on_image(self._on_image)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        if self._controller.is_active and new.controller_epoch != self._epoch:
            self.stop()
            self._epoch = new.controller_epoch
            self._node = self._planned_ms = None
            self._task = tasks.keep_running(self._run, "balancing")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._controller.image.controller_epoch != self._epoch:
                return
            if not self._controller.is_active:
                continue
            try:
                await self._round()
            except (KafkaError, StoreError) as problem:  # the next round may succeed
                self._node = None
                if self._log_limiter.is_due(self._clock.monotonic_ms()):
                    logger.warning("[Controller] balancing could not go on: %s", problem)

    async def _round(self) -> None:
        node = await self._read_journal()
        if node is None:
            return
        if node.journal.moves or node.journal.throttle.replicas or node.journal.throttle.rates:
            await self._tidy(node)
        limits = self._limits()
        if not limits.is_enabled or self._node is None or any(True for _ in moves(self._controller.image)):
            return  # what is under way first, whoever has begun it
        if self._planned_ms is not None and self._clock.monotonic_ms() - self._planned_ms < PLAN_SECONDS * 1000:
            return
        if self._hindered():
            return
        await self._begin(limits)

    def _hindered(self) -> bool:
        image = self._controller.image
        status = self._healing.status if self._healing is not None else None
        reason = hindrance(
            image,
            self._controller.liveness,
            brokers_in_maintenance(image, self._clock.now_ms()),
            status.moves if status is not None else 0,
        )
        if reason != self._waits and reason is not None:
            logger.info("[Controller] balancing waits: %s", reason)
        self._waits = reason
        return reason is not None

    async def _begin(self, limits: Limits) -> None:
        node = self._node
        assert node is not None
        image = self._controller.image
        answers = await asyncio.gather(*map(self._ask_disks, image.brokers))
        disks = {broker: told for broker, told in zip(image.brokers, answers, strict=True) if told is not None}
        self._planned_ms = self._clock.monotonic_ms()
        rooms = rooms_of(image, disks)
        size = image.partition_count
        loads = await beside(size, loads_of, image, disks)
        aims = Aims(disk_mark=limits.disk_max_percentage / 100)
        with uncollected:
            plan = await planned(loads, rooms, aims)
        now_ms = self._clock.now_ms()
        spent = node.journal.spent(now_ms)
        room = limits.bytes_per_hour - spent
        part = await beside(size, affordable, plan, loads, rooms, aims, room, MOVES_MAX)
        if not part.rows and not spent:  # what is larger than a whole hour's bytes has an hour of its own
            part = await beside(size, affordable, plan, loads, rooms, aims, NO_LIMIT, 1)
        if not part.rows:
            return
        known = {load.partition: load for load in loads}
        rows = {name: (known[name].row, tuple(row)) for name, row in part.rows.items()}
        sizes = {name: known[name].size_bytes or 0 for name in rows}
        liveness, rules = self._controller.liveness, self._controller.rules

        def decide(image: MetadataImage) -> Decision[Begun]:
            return decide_begin(image, node, liveness, rules, limits, rows, sizes, now_ms)

        begun = await self._change(decide, node)
        if begun.moves or begun.leaders:
            self._planned_ms = None
            logger.info(
                "[Controller] balancing: %s moved, %s another leader; bytes of this hour: %d",
                counted(len(begun.moves), "partition", "is"),
                counted(begun.leaders, "partition", "gets"),
                begun.journal.spent(now_ms),
            )

    async def _tidy(self, node: JournalNode) -> None:
        liveness, rules, rate = self._controller.liveness, self._controller.rules, self._limits().throttle_rate
        decision = decide_tidy(self._controller.image, node, liveness, rules, rate)
        if not decision.operations:
            return
        tidied = await self._change(lambda image: decide_tidy(image, node, liveness, rules, rate), node)
        if tidied.cancelled:
            given_up = counted(len(tidied.cancelled), "move", "is")
            logger.info("[Controller] balancing: %s given up: the brokers are gone", given_up)
        if not tidied.journal.moves:
            logger.info("[Controller] balancing: no move is under way any more")

    async def _change(self, decide: Decide[Reply], node: JournalNode) -> Reply:
        """What becomes of a write that fails is not known: the journal is read again then."""
        size = self._controller.image.partition_count
        try:
            reply = await self._controller.change(decide, size=size)
        except BaseException:
            self._node = None
            raise
        if reply.journal != node.journal:
            self._node = node.after(reply.journal)
        return reply

    async def _read_journal(self) -> JournalNode | None:
        """None: it cannot be read by this broker, and balancing stays off."""
        if self._node is not None:
            return self._node
        found = await self._store.get(journal_node.PATH)
        has_parent = found is not None or await self._store.get(PARENT) is not None
        try:
            self._node = journal_node.read(found, has_parent)
        except tree.DamagedNodeError as damage:
            if self._log_limiter.is_due(self._clock.monotonic_ms()):
                logger.error("[Controller] %s. Balancing is off until the node is restored or deleted", damage)
            return None
        return self._node

    def _limits(self) -> Limits:
        settings = self._settings()
        return Limits(
            settings.ottla_balance_enable,
            settings.ottla_balance_bytes_per_hour,
            settings.ottla_balance_throttle_rate,
            settings.ottla_balance_disk_max_percentage,
        )

    def __repr__(self) -> str:
        return f"<Balancing {self._waits or 'ready'}>"


async def beside(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What goes through all partitions once: in a thread where these are many."""
    if size <= THREAD_SIZE_MIN:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)


async def planned(loads: list[PartitionLoad], rooms: Mapping[int, BrokerRoom], aims: Aims) -> BalancePlan:
    """The whole plan, with the loop given back after each slice."""
    running = steps(loads, rooms, aims)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            plan: BalancePlan = ended.value
            return plan
        await asyncio.sleep(0)
