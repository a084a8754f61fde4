"""Runs healing (heal_steps.py) while this broker is the controller: checks, requests disk usage, writes, logs.

Rules:
1. Each round reads the clock and the image, and lets the pure steps decide: first the cleanup, then the start of new
   moves. They decide again on the image at the time of the write.
2. The disk usage of brokers is requested only before a start, or when a lost broker has returned.

When a broker counts as lost: broker_absences.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.base.names import TopicPartition
from ottla.base.text import format_count
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.demoted_brokers import brokers_in_maintenance
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.controller.self_balancing.broker_absences import BrokerAbsences
from ottla.controller.self_balancing.heal_state import (
    JOURNAL_FORMAT,
    BrokerDisks,
    HealInputs,
    HealJournal,
    HealLimits,
    broker_list,
    is_healing_enabled,
    partitions_text,
)
from ottla.controller.self_balancing.heal_steps import (
    ReplicaRebuild,
    StartResult,
    decide_cleanup,
    decide_start,
    needs_disk_sizes,
    pending_rebuilds,
)
from ottla.controller.self_balancing.journal_driver import JournalDriver
from ottla.controller.self_balancing.journals import JournalNode, ReplicaMove
from ottla.controller.self_balancing.move_steps import CleanupResult
from ottla.controller.service import THREAD_SIZE_MIN
from ottla.controller.stores.store import MetadataStore

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0
PAUSE_SECONDS_MIN: Final = 0.05  # the minimum time between two rounds
DISKS_AGE_MS_MAX: Final = 3_000  # the maximum age of disk usage reports
REPLAN_INTERVAL_MS: Final = 5_000  # after a plan without moves
REBUILD_RETRY_MS: Final = 30_000  # before a rebuild is requested again while the replica is still offline

Reply = TypeVar("Reply", StartResult, CleanupResult[HealJournal])
FetchDisks = Callable[[int], Awaitable[BrokerDisks | None]]
RequestRebuilds = Callable[[int, list[ReplicaRebuild]], Awaitable[frozenset[TopicPartition]]]


class HealingSettings(Protocol):
    """The settings of healing."""

    @property
    def ottla_heal_after_ms(self) -> int: ...

    @property
    def ottla_heal_brokers_max(self) -> int: ...

    @property
    def ottla_heal_throttle_rate(self) -> int: ...

    @property
    def ottla_heal_moves_max(self) -> int: ...

    @property
    def ottla_heal_disk_max_percentage(self) -> int: ...


class HealingStatus(NamedTuple):
    """The status of healing, for metrics, CLI and console."""

    away_ms: Mapping[int, int] = {}
    moves: int = 0
    waits: tuple[str, ...] = ()


class Healer(JournalDriver[HealJournal]):
    """Heals the cluster while its broker is the controller."""

    NAME = "healing"
    IS_URGENT = True

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: MetadataCache,
        clock: Clock,
        settings: Callable[[], HealingSettings],
        ask_disks: FetchDisks,
        tell_refills: RequestRebuilds,
    ) -> None:
        """`tell_refills` requests rebuilds and returns the partitions that the broker rejects; it may be repeated."""
        super().__init__(store, controller, images, clock, JOURNAL_FORMAT)
        self._settings = settings
        self._fetch_disks = ask_disks
        self._request_rebuilds = tell_refills
        self._requested_ms: dict[ReplicaRebuild, int] = {}  # times of the last requests
        self._refusals: frozenset[tuple[TopicPartition, int]] = frozenset()
        self._wake = asyncio.Event()
        self._absences: BrokerAbsences | None = None
        self._checked_ms = 0
        self._disks: Mapping[int, BrokerDisks] = {}
        self._disks_ms = 0
        self._idle_since_ms: int | None = None  # time of the last plan without moves

    @property
    def status(self) -> HealingStatus | None:
        """Return the status; None if this broker is not the controller, or before the first check."""
        if not self._controller.is_active or self._absences is None:
            return HealingStatus(waits=(self._problem,)) if self._problem and self._controller.is_active else None
        journal = self._node.journal if self._node is not None else HealJournal()
        waits = (self._problem,) if self._problem else journal.waits
        return HealingStatus(dict(self._absences.away_ms), len(journal.moves), waits)

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        super()._on_image(old, new)
        if not self._controller.is_active:
            return
        if old.brokers is not new.brokers and self._absences is not None:
            self._absences.note_present(new.brokers)  # including brokers that are absent again before the next check
        if self._node is not None and self._node.journal.moves:
            self._wake.set()  # a move may have ended: the next one starts at once

    # ---- rounds

    def _reset(self) -> None:
        self._absences = None
        self._requested_ms.clear()
        self._refusals = frozenset()
        self._checked_ms = self._clock.monotonic_ms()

    async def _pause(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS_MIN)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _on_store_unavailable(self) -> None:
        self._checked_ms = self._clock.monotonic_ms()  # the time without a store session is ignored

    async def _round(self, node: JournalNode[HealJournal]) -> None:
        if self._absences is None:
            self._absences = BrokerAbsences(node.journal)
        image, limits = self._controller.image, self._limits()
        self._update_absences(self._absences, image)
        if node.journal.moves or node.journal.throttle.replicas or node.journal.throttle.rates:
            if needs_disk_sizes(image, node.journal):
                await self._refresh_disks()
            tidied = await self._apply_step(decide_cleanup)
            log_cleanup(tidied)
            if tidied.ended or tidied.cancelled:
                self._idle_since_ms = None  # other moves can start
        await self._start_moves(image, limits)
        await self._rebuild_replicas()
        await self._record_absences()

    async def _start_moves(self, image: MetadataImage, limits: HealLimits) -> None:
        assert self._absences is not None
        assert self._node is not None
        journal = self._node.journal
        lost = self._absences.lost_brokers(limits.after_ms) | self._absences.failing_brokers(limits.after_ms)
        is_wanted = bool(lost) and is_healing_enabled(image, limits)
        if is_wanted and len(journal.moves) < limits.moves_max and self._is_time_to_plan():
            await self._refresh_disks()
        elif is_wanted or not journal.waits:
            return
        self._log_started(await self._apply_step(decide_start), journal.waits)

    async def _rebuild_replicas(self) -> None:
        """Request rebuilds from brokers with failed log directories; rejected ones move to other brokers."""
        image, node = self._controller.image, self._node
        if node is None or not any(move.is_same_broker for move in node.journal.moves):
            self._requested_ms.clear()
            return
        await self._refresh_disks()
        now_ms = self._clock.monotonic_ms()
        self._requested_ms = {each: ms for each, ms in self._requested_ms.items() if now_ms - ms < REBUILD_RETRY_MS}
        requested = {(each.broker, each.partition) for each in self._requested_ms}
        due: dict[int, list[ReplicaRebuild]] = {}
        for each in pending_rebuilds(image, node.journal, self._situation(image, node.journal)):
            if (each.broker, each.partition) not in requested:
                due.setdefault(each.broker, []).append(each)
                self._requested_ms[each] = now_ms
        for broker, rows in due.items():
            refused = await self._request_rebuilds(broker, rows)
            if refused:
                self._refusals |= {(name, broker) for name in refused}
                names = partitions_text(sorted(refused))
                logger.warning("[Controller] healing: broker %d cannot rebuild %s; other brokers will", broker, names)

    def _update_absences(self, absences: BrokerAbsences, image: MetadataImage) -> None:
        now_ms = self._clock.monotonic_ms()
        elapsed_ms, self._checked_ms = now_ms - self._checked_ms, now_ms
        offline, brokers_max = self._controller.liveness.offline_replicas, self._settings().ottla_heal_brokers_max
        absences.update(self._controller.index.brokers_with_replicas, image.brokers, offline, elapsed_ms, brokers_max)

    def _is_time_to_plan(self) -> bool:
        since_ms = self._idle_since_ms
        return since_ms is None or self._clock.monotonic_ms() - since_ms >= REPLAN_INTERVAL_MS

    async def _record_absences(self) -> None:
        """Write the absence times and racks for the next controller."""
        assert self._absences is not None
        node = self._node
        if node is None:
            return
        absences, image = self._absences, self._controller.image
        holders = self._controller.index.brokers_with_replicas
        living = {broker: rack for broker, rack in image.racks().items() if rack is not None}
        known = {broker: rack for broker, rack in node.journal.racks.items() if broker in holders}
        known = {broker: rack for broker, rack in known.items() if broker not in image.brokers} | living
        journal = absences.to_journal(node.journal._replace(racks=known))
        if journal != node.journal:
            await self._change(lambda image: Decision(node.operations(journal), image, CleanupResult(journal)), 0)

    # ---- acting

    def _limits(self) -> HealLimits:
        settings = self._settings()
        return HealLimits(
            settings.ottla_heal_after_ms,
            settings.ottla_heal_brokers_max,
            settings.ottla_heal_throttle_rate,
            settings.ottla_heal_moves_max,
            settings.ottla_heal_disk_max_percentage,
        )

    def _situation(self, image: MetadataImage, journal: HealJournal) -> HealInputs:
        assert self._absences is not None
        limits = self._limits()
        return HealInputs(
            limits,
            self._controller.liveness,
            self._controller.rules,
            self._absences.away,
            self._absences.lost_brokers(limits.after_ms),
            self._absences.failing_brokers(limits.after_ms),
            brokers_in_maintenance(image, self._clock.now_ms()),
            {**journal.racks, **image.racks()},
            self._disks,
            self._refusals,
        )

    async def _apply_step(
        self, step: Callable[[MetadataImage, JournalNode[HealJournal], HealInputs], Decision[Reply]]
    ) -> Reply:
        """Run a step, and write its decision if it has operations."""
        node, image = self._node, self._controller.image
        assert node is not None
        size = image.partition_count

        def decide(image: MetadataImage) -> Decision[Reply]:
            return step(image, node, self._situation(image, node.journal))

        decision = decide(image) if size <= THREAD_SIZE_MIN else await asyncio.to_thread(decide, image)
        if not decision.operations:
            return decision.reply
        return await self._change(decide, size)

    async def _refresh_disks(self) -> None:
        """Get the sizes of replicas and the usage of disks from all brokers."""
        now_ms = self._clock.monotonic_ms()
        if self._disks and now_ms - self._disks_ms < DISKS_AGE_MS_MAX:
            return
        brokers = list(self._controller.image.brokers)
        answers = await asyncio.gather(*map(self._fetch_disks, brokers))
        self._disks = {broker: disks for broker, disks in zip(brokers, answers, strict=True) if disks is not None}
        self._disks_ms = now_ms

    # ---- log messages

    def _log_started(self, begun: StartResult, waits_before: tuple[str, ...]) -> None:
        self._idle_since_ms = None if begun.moves else self._clock.monotonic_ms()
        if begun.moves:
            gone = {broker for move in begun.moves for broker in move.removed}
            logger.info(
                "[Controller] healing: %s of broker %s %s being copied again, %s; %d in progress",
                format_count(len(begun.moves), "partition"),
                broker_list(gone),
                "is" if len(begun.moves) == 1 else "are",
                summarize_moves(begun.moves),
                len(begun.journal.moves),
            )
        if begun.waits != waits_before:
            for reason in begun.waits:
                logger.warning("[Controller] healing waits: %s", reason)
            if not begun.waits and not begun.moves:
                logger.info("[Controller] healing does not wait any more")

    def __repr__(self) -> str:
        return f"<Healer {self.status}>"


def log_cleanup(tidied: CleanupResult[HealJournal]) -> None:
    if tidied.ended:
        ended = format_count(len(tidied.ended), "move", "has")
        logger.info("[Controller] healing: %s ended, %s", ended, summarize_moves(tidied.ended))
    if tidied.cancelled:
        logger.info(
            "[Controller] healing: %s cancelled, %s: the old broker has returned, or the new one is lost or refuses it",
            format_count(len(tidied.cancelled), "move", "is"),
            summarize_moves(tidied.cancelled),
        )
    if (tidied.ended or tidied.cancelled) and not tidied.journal.moves:
        logger.info("[Controller] healing: no moves in progress")


def summarize_moves(moves: tuple[ReplicaMove, ...]) -> str:
    """Return the first moves as text: `orders-0 from 3 to 4`, or `orders-0 in another folder of 3`."""
    words = [
        f"{move.partition} in another folder of {broker_list(move.added)}"
        if move.is_same_broker
        else f"{move.partition} from {broker_list(move.removed)} to {broker_list(move.added)}"
        for move in moves[:3]
    ]
    return ", ".join(words) + (", ..." if len(moves) > 3 else "")
