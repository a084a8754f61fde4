"""Runs balancing (balance_steps.py) while this broker is the controller: starts a part of a plan, then plans again.

Rules:
1. The plan is made on the event loop in slices of a few milliseconds. The moves are decided again on the current image,
   and only for partitions that have not changed since.
2. Healing has priority: no move is started during healing, and moves to lost brokers are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, ParamSpec, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.base.gc_pause import collector_pause
from ottla.base.placement.balance import steps
from ottla.base.placement.balance_layout import BalancePlan
from ottla.base.placement.broker_loads import BalanceGoals, BrokerCapacity, PartitionLoad
from ottla.base.placement.partial_plan import affordable_slice
from ottla.base.text import format_count
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.demoted_brokers import brokers_in_maintenance
from ottla.controller.decisions.reassignment import ongoing_reassignments
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.controller.self_balancing.balance_steps import (
    JOURNAL_FORMAT,
    MOVES_MAX,
    BalanceJournal,
    BalanceLimits,
    StartResult,
    balancing_blocker,
    broker_capacities,
    decide_cleanup,
    decide_start,
    partition_loads,
)
from ottla.controller.self_balancing.heal_state import BrokerDisks
from ottla.controller.self_balancing.healer import Healer
from ottla.controller.self_balancing.journal_driver import JournalDriver
from ottla.controller.self_balancing.journals import JournalNode
from ottla.controller.service import THREAD_SIZE_MIN
from ottla.controller.stores.store import MetadataStore

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0  # between two checks of moves in progress
PLAN_INTERVAL_SECONDS: Final = 60.0  # between two plans without moves
NO_LIMIT: Final = 2**63

P = ParamSpec("P")
T = TypeVar("T")
FetchDisks = Callable[[int], Awaitable[BrokerDisks | None]]


class BalancingSettings(Protocol):
    """The settings of balancing."""

    @property
    def ottla_balance_enable(self) -> bool: ...

    @property
    def ottla_balance_bytes_per_hour(self) -> int: ...

    @property
    def ottla_balance_disk_max_percentage(self) -> int: ...

    @property
    def ottla_balance_throttle_rate(self) -> int: ...


class Balancer(JournalDriver[BalanceJournal]):
    """Balances the cluster while its broker is the controller."""

    NAME = "balancing"

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: MetadataCache,
        clock: Clock,
        settings: Callable[[], BalancingSettings],
        ask_disks: FetchDisks,
        healing: Healer | None,
    ) -> None:
        super().__init__(store, controller, images, clock, JOURNAL_FORMAT)
        self._settings = settings
        self._fetch_disks = ask_disks
        self._healing = healing
        self._planned_ms: int | None = None  # time of the last plan without moves
        self._logged_blocker: str | None = None

    def _reset(self) -> None:
        self._planned_ms = None

    async def _pause(self) -> None:
        await asyncio.sleep(CHECK_SECONDS)

    async def _round(self, node: JournalNode[BalanceJournal]) -> None:
        if node.journal.moves or node.journal.throttle.replicas or node.journal.throttle.rates:
            await self._clean_up(node)
        limits = self._limits()
        if (
            not limits.is_enabled
            or self._node is None
            or any(True for _ in ongoing_reassignments(self._controller.image))
        ):
            return  # reassignments in progress come first, including those of operators
        if (
            self._planned_ms is not None
            and self._clock.monotonic_ms() - self._planned_ms < PLAN_INTERVAL_SECONDS * 1000
        ):
            return
        if self._is_blocked():
            return
        await self._start_moves(limits)

    def _is_blocked(self) -> bool:
        image = self._controller.image
        status = self._healing.status if self._healing is not None else None
        reason = balancing_blocker(
            image,
            self._controller.index.brokers_with_replicas,
            self._controller.liveness,
            brokers_in_maintenance(image, self._clock.now_ms()),
            status.moves if status is not None else 0,
        )
        if reason != self._logged_blocker and reason is not None:
            logger.info("[Controller] balancing waits: %s", reason)
        self._logged_blocker = reason
        return reason is not None

    async def _start_moves(self, limits: BalanceLimits) -> None:
        node = self._node
        assert node is not None
        image = self._controller.image
        answers = await asyncio.gather(*map(self._fetch_disks, image.brokers))
        disks = {
            broker: reported for broker, reported in zip(image.brokers, answers, strict=True) if reported is not None
        }
        self._planned_ms = self._clock.monotonic_ms()
        rooms = broker_capacities(image, disks)
        size = image.partition_count
        loads = await in_thread_if_large(size, partition_loads, image, disks)
        aims = BalanceGoals(disk_mark=limits.disk_max_percentage / 100)
        with collector_pause:
            plan = await make_plan(loads, rooms, aims)
        now_ms = self._clock.now_ms()
        spent = node.journal.spent(now_ms)
        room = limits.bytes_per_hour - spent
        part = await in_thread_if_large(size, affordable_slice, plan, loads, rooms, aims, room, MOVES_MAX)
        if not part.rows and not spent:  # a partition larger than the hourly limit gets a separate hour
            part = await in_thread_if_large(size, affordable_slice, plan, loads, rooms, aims, NO_LIMIT, 1)
        if not part.rows:
            return
        known = {load.partition: load for load in loads}
        rows = {name: (known[name].row, tuple(row)) for name, row in part.rows.items()}
        sizes = {name: known[name].size_bytes or 0 for name in rows}
        liveness, rules = self._controller.liveness, self._controller.rules

        def decide(image: MetadataImage) -> Decision[StartResult]:
            return decide_start(image, node, liveness, rules, limits, rows, sizes, now_ms)

        begun = await self._change(decide, size)
        if begun.moves or begun.leaders:
            self._planned_ms = None
            logger.info(
                "[Controller] balancing: %s being moved, %s another leader; bytes of this hour: %d",
                format_count(len(begun.moves), "partition", "is"),
                format_count(begun.leaders, "partition", "gets"),
                begun.journal.spent(now_ms),
            )

    async def _clean_up(self, node: JournalNode[BalanceJournal]) -> None:
        liveness, rules, rate = self._controller.liveness, self._controller.rules, self._limits().throttle_rate
        image = self._controller.image
        if not decide_cleanup(image, node, liveness, rules, rate).operations:
            return
        size = image.partition_count
        tidied = await self._change(lambda image: decide_cleanup(image, node, liveness, rules, rate), size)
        if tidied.cancelled:
            given_up = format_count(len(tidied.cancelled), "move", "is")
            logger.info("[Controller] balancing: %s cancelled, because the brokers are dead", given_up)
        if not tidied.journal.moves:
            logger.info("[Controller] balancing: no moves in progress")

    def _limits(self) -> BalanceLimits:
        settings = self._settings()
        return BalanceLimits(
            settings.ottla_balance_enable,
            settings.ottla_balance_bytes_per_hour,
            settings.ottla_balance_throttle_rate,
            settings.ottla_balance_disk_max_percentage,
        )

    def __repr__(self) -> str:
        return f"<Balancer {self._logged_blocker or 'ready'}>"


async def in_thread_if_large(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run work on all partitions, in a worker thread if there are many."""
    if size <= THREAD_SIZE_MIN:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)


async def make_plan(loads: list[PartitionLoad], rooms: Mapping[int, BrokerCapacity], aims: BalanceGoals) -> BalancePlan:
    """Make the plan; yields to the event loop after each slice."""
    running = steps(loads, rooms, aims)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            plan: BalancePlan = ended.value
            return plan
        await asyncio.sleep(0)
