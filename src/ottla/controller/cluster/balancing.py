"""Drives balancing (decisions/balancing/) while this broker is the controller: a little of a plan, then a look again.

Rules:
1. The plan is made here on the loop, in slices of a few milliseconds; what is written is decided again on the image of
   that moment, and only for partitions that are as the plan saw them.
2. Healing comes first: nothing begins while it is at work, and a move to a broker that is lost is given up for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, ParamSpec, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.base.counting import counted
from ottla.base.placement.balance import steps
from ottla.base.placement.balance_layout import BalancePlan
from ottla.base.placement.broker_loads import Aims, BrokerRoom, PartitionLoad
from ottla.base.placement.portion import affordable
from ottla.base.uncollected import uncollected
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.healing import Healing
from ottla.controller.cluster.journal_driver import JournalDriver
from ottla.controller.decisions.balancing.journal import FORM, Journal
from ottla.controller.decisions.balancing.steps import (
    MOVES_MAX,
    Begun,
    Limits,
    decide_begin,
    decide_tidy,
    hindrance,
    loads_of,
    rooms_of,
)
from ottla.controller.decisions.healing.situation import Disks
from ottla.controller.decisions.journals import JournalNode
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.maintenance import brokers_in_maintenance
from ottla.controller.decisions.reassignment import moves
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import THREAD_SIZE_MIN
from ottla.controller.stores.store import MetadataStore

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0  # at moves under way
PLAN_SECONDS: Final = 60.0  # between two plans of which nothing came
NO_LIMIT: Final = 2**63

P = ParamSpec("P")
T = TypeVar("T")
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


class Balancing(JournalDriver[Journal]):
    """One a broker."""

    NAME = "balancing"

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
        super().__init__(store, controller, images, clock, FORM)
        self._settings = settings
        self._ask_disks = ask_disks
        self._healing = healing
        self._planned_ms: int | None = None  # when a plan came to nothing
        self._waits: str | None = None

    def _begin(self) -> None:
        self._planned_ms = None

    async def _pause(self) -> None:
        await asyncio.sleep(LOOK_SECONDS)

    async def _round(self, node: JournalNode[Journal]) -> None:
        if node.journal.moves or node.journal.throttle.replicas or node.journal.throttle.rates:
            await self._tidy(node)
        limits = self._limits()
        if not limits.is_enabled or self._node is None or any(True for _ in moves(self._controller.image)):
            return  # what is under way first, whoever has begun it
        if self._planned_ms is not None and self._clock.monotonic_ms() - self._planned_ms < PLAN_SECONDS * 1000:
            return
        if self._hindered():
            return
        await self._begin_moves(limits)

    def _hindered(self) -> bool:
        image = self._controller.image
        status = self._healing.status if self._healing is not None else None
        reason = hindrance(
            image,
            self._controller.index.holders,
            self._controller.liveness,
            brokers_in_maintenance(image, self._clock.now_ms()),
            status.moves if status is not None else 0,
        )
        if reason != self._waits and reason is not None:
            logger.info("[Controller] balancing waits: %s", reason)
        self._waits = reason
        return reason is not None

    async def _begin_moves(self, limits: Limits) -> None:
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

        begun = await self._change(decide, size)
        if begun.moves or begun.leaders:
            self._planned_ms = None
            logger.info(
                "[Controller] balancing: %s moved, %s another leader; bytes of this hour: %d",
                counted(len(begun.moves), "partition", "is"),
                counted(begun.leaders, "partition", "gets"),
                begun.journal.spent(now_ms),
            )

    async def _tidy(self, node: JournalNode[Journal]) -> None:
        liveness, rules, rate = self._controller.liveness, self._controller.rules, self._limits().throttle_rate
        image = self._controller.image
        if not decide_tidy(image, node, liveness, rules, rate).operations:
            return
        size = image.partition_count
        tidied = await self._change(lambda image: decide_tidy(image, node, liveness, rules, rate), size)
        if tidied.cancelled:
            given_up = counted(len(tidied.cancelled), "move", "is")
            logger.info("[Controller] balancing: %s given up: the brokers are gone", given_up)
        if not tidied.journal.moves:
            logger.info("[Controller] balancing: no move is under way any more")

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
