"""Drives healing (decisions/healing/) while this broker is the controller: looks, asks how full disks are, acts, tells.

Rules:
1. Whoever awaits decides nothing: each round looks at the clock and the image, and lets the pure steps decide, first
   what to tidy up, then what to begin. What they decide is decided again on the image of the moment in which it is
   written.
2. Disks are asked for only when something is to be begun, or somebody is back: brokers that are well are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.base.counting import counted
from ottla.base.names import TopicPartition
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.journal_driver import JournalDriver
from ottla.controller.decisions.healing.absences import Absences
from ottla.controller.decisions.healing.journal import FORM, Journal
from ottla.controller.decisions.healing.situation import (
    Disks,
    Limits,
    Situation,
    is_on,
    numbers,
    partitions_text,
)
from ottla.controller.decisions.healing.steps import (
    Begun,
    Refill,
    Tidied,
    decide_begin,
    decide_tidy,
    must_compare,
    refills,
)
from ottla.controller.decisions.journals import HealMove, JournalNode
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.maintenance import brokers_in_maintenance
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import THREAD_SIZE_MIN
from ottla.controller.stores.store import MetadataStore

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
BREATH_SECONDS: Final = 0.05  # between two rounds, however much happens
DISKS_MS_MAX: Final = 3_000  # so old what brokers told may be
PLAN_AGAIN_MS: Final = 5_000  # after a plan of which nothing came
REFILL_AGAIN_MS: Final = 30_000  # after a broker was told to have a replica anew, and still tells that it is offline

Reply = TypeVar("Reply", Begun, Tidied)
AskDisks = Callable[[int], Awaitable[Disks | None]]
TellRefills = Callable[[int, list[Refill]], Awaitable[frozenset[TopicPartition]]]


class HealingSettings(Protocol):
    """The settings that healing goes by."""

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
    """For whoever looks from outside."""

    away_ms: Mapping[int, int] = {}
    moves: int = 0
    waits: tuple[str, ...] = ()


class Healing(JournalDriver[Journal]):
    """One a broker."""

    NAME = "healing"
    IS_URGENT = True

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: ImageHolder,
        clock: Clock,
        settings: Callable[[], HealingSettings],
        ask_disks: AskDisks,
        tell_refills: TellRefills,
    ) -> None:
        """`tell_refills` answers which partitions a broker refuses to have anew; what it did not hear is told again."""
        super().__init__(store, controller, images, clock, FORM)
        self._settings = settings
        self._ask_disks = ask_disks
        self._tell_refills = tell_refills
        self._told_ms: dict[Refill, int] = {}  # when
        self._refusals: frozenset[tuple[TopicPartition, int]] = frozenset()
        self._wake = asyncio.Event()
        self._absences: Absences | None = None
        self._looked_ms = 0
        self._disks: Mapping[int, Disks] = {}
        self._disks_ms = 0
        self._idle_since_ms: int | None = None  # when a plan came to nothing

    @property
    def status(self) -> HealingStatus | None:
        """None at a broker that is not the controller, or has not looked yet."""
        if not self._controller.is_active or self._absences is None:
            return HealingStatus(waits=(self._problem,)) if self._problem and self._controller.is_active else None
        journal = self._node.journal if self._node is not None else Journal()
        waits = (self._problem,) if self._problem else journal.waits
        return HealingStatus(dict(self._absences.away_ms), len(journal.moves), waits)

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        super()._on_image(old, new)
        if not self._controller.is_active:
            return
        if old.brokers is not new.brokers and self._absences is not None:
            self._absences.see(new.brokers)  # also who is gone again before the next look
        if self._node is not None and self._node.journal.moves:
            self._wake.set()  # a move may have ended: the next one begins at once

    # ---- rounds

    def _begin(self) -> None:
        self._absences = None
        self._told_ms.clear()
        self._refusals = frozenset()
        self._looked_ms = self._clock.monotonic_ms()

    async def _pause(self) -> None:
        await asyncio.sleep(BREATH_SECONDS)
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _note_out_of_touch(self) -> None:
        self._looked_ms = self._clock.monotonic_ms()  # this time does not count

    async def _round(self, node: JournalNode[Journal]) -> None:
        if self._absences is None:
            self._absences = Absences(node.journal)
        image, limits = self._controller.image, self._limits()
        self._look(self._absences, image)
        if node.journal.moves or node.journal.throttle.replicas or node.journal.throttle.rates:
            if must_compare(image, node.journal):
                await self._ask()
            tidied = await self._act(decide_tidy)
            tell_tidied(tidied)
            if tidied.ended or tidied.cancelled:
                self._idle_since_ms = None  # there is room for the next ones
        await self._begin_moves(image, limits)
        await self._refill()
        await self._note_times()

    async def _begin_moves(self, image: MetadataImage, limits: Limits) -> None:
        assert self._absences is not None
        assert self._node is not None
        journal = self._node.journal
        lost = self._absences.lost(limits.after_ms) | self._absences.failing(limits.after_ms)
        is_wanted = bool(lost) and is_on(image, limits)
        if is_wanted and len(journal.moves) < limits.moves_max and self._is_time_to_plan():
            await self._ask()
        elif is_wanted or not journal.waits:
            return
        self._tell_begun(await self._act(decide_begin), journal.waits)

    async def _refill(self) -> None:
        """Tell brokers with failed folders what they shall have anew; who refuses is passed over from now on."""
        image, node = self._controller.image, self._node
        if node is None or not any(move.is_at_home for move in node.journal.moves):
            self._told_ms.clear()
            return
        await self._ask()
        now_ms = self._clock.monotonic_ms()
        self._told_ms = {each: ms for each, ms in self._told_ms.items() if now_ms - ms < REFILL_AGAIN_MS}
        told = {(each.broker, each.partition) for each in self._told_ms}
        due: dict[int, list[Refill]] = {}
        for each in refills(image, node.journal, self._situation(image, node.journal)):
            if (each.broker, each.partition) not in told:
                due.setdefault(each.broker, []).append(each)
                self._told_ms[each] = now_ms
        for broker, rows in due.items():
            refused = await self._tell_refills(broker, rows)
            if refused:
                self._refusals |= {(name, broker) for name in refused}
                names = partitions_text(sorted(refused))
                logger.warning("[Controller] healing: broker %d does not take %s again; others will", broker, names)

    def _look(self, absences: Absences, image: MetadataImage) -> None:
        now_ms = self._clock.monotonic_ms()
        elapsed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        offline, brokers_max = self._controller.liveness.offline, self._settings().ottla_heal_brokers_max
        absences.look(self._controller.index.holders, image.brokers, offline, elapsed_ms, brokers_max)

    def _is_time_to_plan(self) -> bool:
        since_ms = self._idle_since_ms
        return since_ms is None or self._clock.monotonic_ms() - since_ms >= PLAN_AGAIN_MS

    async def _note_times(self) -> None:
        """What the next controller goes on with: how long who is away, and who is in which rack."""
        assert self._absences is not None
        node = self._node
        if node is None:
            return
        absences, image = self._absences, self._controller.image
        holders = self._controller.index.holders
        living = {broker: rack for broker, rack in image.racks().items() if rack is not None}
        known = {broker: rack for broker, rack in node.journal.racks.items() if broker in holders}
        known = {broker: rack for broker, rack in known.items() if broker not in image.brokers} | living
        journal = absences.noted(node.journal._replace(racks=known))
        if journal != node.journal:
            await self._change(lambda image: Decision(node.operations(journal), image, Tidied(journal)), 0)

    # ---- acting

    def _limits(self) -> Limits:
        settings = self._settings()
        return Limits(
            settings.ottla_heal_after_ms,
            settings.ottla_heal_brokers_max,
            settings.ottla_heal_throttle_rate,
            settings.ottla_heal_moves_max,
            settings.ottla_heal_disk_max_percentage,
        )

    def _situation(self, image: MetadataImage, journal: Journal) -> Situation:
        assert self._absences is not None
        limits = self._limits()
        return Situation(
            limits,
            self._controller.liveness,
            self._controller.rules,
            self._absences.away,
            self._absences.lost(limits.after_ms),
            self._absences.failing(limits.after_ms),
            brokers_in_maintenance(image, self._clock.now_ms()),
            {**journal.racks, **image.racks()},
            self._disks,
            self._refusals,
        )

    async def _act(self, step: Callable[[MetadataImage, JournalNode[Journal], Situation], Decision[Reply]]) -> Reply:
        """Let a step decide, and have it written if there is anything to write."""
        node, image = self._node, self._controller.image
        assert node is not None
        size = image.partition_count

        def decide(image: MetadataImage) -> Decision[Reply]:
            return step(image, node, self._situation(image, node.journal))

        decision = decide(image) if size <= THREAD_SIZE_MIN else await asyncio.to_thread(decide, image)
        if not decision.operations:
            return decision.reply
        return await self._change(decide, size)

    async def _ask(self) -> None:
        """How large the replicas are, and how full the disks."""
        now_ms = self._clock.monotonic_ms()
        if self._disks and now_ms - self._disks_ms < DISKS_MS_MAX:
            return
        brokers = list(self._controller.image.brokers)
        answers = await asyncio.gather(*map(self._ask_disks, brokers))
        self._disks = {broker: disks for broker, disks in zip(brokers, answers, strict=True) if disks is not None}
        self._disks_ms = now_ms

    # ---- what is told

    def _tell_begun(self, begun: Begun, waits_before: tuple[str, ...]) -> None:
        self._idle_since_ms = None if begun.moves else self._clock.monotonic_ms()
        if begun.moves:
            gone = {broker for move in begun.moves for broker in move.gone}
            logger.info(
                "[Controller] healing: %s of broker %s %s copied anew, %s; %d under way",
                counted(len(begun.moves), "partition"),
                numbers(gone),
                "is" if len(begun.moves) == 1 else "are",
                some_of(begun.moves),
                len(begun.journal.moves),
            )
        if begun.waits != waits_before:
            for reason in begun.waits:
                logger.warning("[Controller] healing waits: %s", reason)
            if not begun.waits and not begun.moves:
                logger.info("[Controller] healing waits for nothing any more")

    def __repr__(self) -> str:
        return f"<Healing {self.status}>"


def tell_tidied(tidied: Tidied) -> None:
    if tidied.ended:
        ended = counted(len(tidied.ended), "move", "has")
        logger.info("[Controller] healing: %s ended, %s", ended, some_of(tidied.ended))
    if tidied.cancelled:
        logger.info(
            "[Controller] healing: %s cancelled, %s: who held it is back, or the new broker is lost or cannot have it",
            counted(len(tidied.cancelled), "move", "is"),
            some_of(tidied.cancelled),
        )
    if (tidied.ended or tidied.cancelled) and not tidied.journal.moves:
        logger.info("[Controller] healing: no move is under way any more")


def some_of(moves: tuple[HealMove, ...]) -> str:
    """`orders-0 from 3 to 4` of the first ones, or `orders-0 in another folder of 3`."""
    words = [
        f"{move.partition} in another folder of {numbers(move.new)}"
        if move.is_at_home
        else f"{move.partition} from {numbers(move.gone)} to {numbers(move.new)}"
        for move in moves[:3]
    ]
    return ", ".join(words) + (", ..." if len(moves) > 3 else "")
