"""How long brokers have been away, and folders have failed, in the eyes of the active controller. Pure.

Rules:
1. Time is what the monotonic clock of the active controller has counted, look by look; a look after a long pause counts
   as a short one. So steps of a clock, a controller that stands still and a store that is away only make it longer.
2. Whoever is there, registered and heard (broker_liveness.py), begins anew with its next absence. A broker that
   restarts every minute is never away for long.
3. The time goes on where the controller before left it, but nobody is given up whom this controller has not missed
   itself for a while: when the store comes back after hours, those who wait for it register one after the other.
4. While more are away than healing may begin with, time counts for the reason to wait and for nothing else: after a
   power cut brokers come back one by one, and the last of them must not be given up when the last but one is there.
5. A broker with replicas that are offline (a failed folder, a damaged log, a full disk) begins anew with each one more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from ottla.controller.decisions.healing.journal import FolderCount, Journal

LOOK_MS_MAX: Final = 3_000  # that one look counts for
MISSED_MS_MAX: Final = 10_000
NOTED_MS: Final = 5_000  # less is not worth a write: a restart
NOTE_EVERY_MS: Final = 60_000

Offline = Mapping[int, frozenset[tuple[UUID, int]]]


class Absences:
    """One an election. What it holds is replaced, never changed in place: decisions may run in another thread."""

    def __init__(self, journal: Journal) -> None:
        self.away_ms: Mapping[int, int] = dict(journal.away_ms)
        self.offline: Mapping[int, FolderCount] = dict(journal.offline)
        self._missed_ms: Mapping[int, int] = {}  # by this controller
        self._blocked_ms: Mapping[int, int] = {}  # rule 4
        self._is_blocked = False
        self._offline_missed_ms: Mapping[int, int] = {}
        self._sets: Offline = {}
        self._ms = 0  # since the election

    def see(self, living: Collection[int]) -> None:
        """These brokers are there."""
        if any(broker in living for broker in self.away_ms):
            self.away_ms = {broker: ms for broker, ms in self.away_ms.items() if broker not in living}
            self._missed_ms = {broker: ms for broker, ms in self._missed_ms.items() if broker not in living}
            self._blocked_ms = {broker: ms for broker, ms in self._blocked_ms.items() if broker not in living}
            self._is_blocked = False  # until the next look

    def look(
        self,
        holders: Collection[int],
        living: Collection[int],
        offline: Offline,
        elapsed_ms: int,
        brokers_max: int = 1,
    ) -> None:
        """Who is there now; `holders` have replicas, so they should be, but for `brokers_max` of them."""
        counted_ms = min(elapsed_ms, LOOK_MS_MAX)
        self._ms += counted_ms
        self.see(living)
        away = {broker for broker in holders if broker not in living}
        self.away_ms = counted(self.away_ms, away, counted_ms)
        self._missed_ms = counted(self._missed_ms, away, counted_ms)
        self._is_blocked = len(away) > brokers_max
        self._blocked_ms = counted(self._blocked_ms, away, counted_ms if self._is_blocked else 0)
        self._look_at_folders(offline, living, counted_ms)

    def _look_at_folders(self, offline: Offline, living: Collection[int], counted_ms: int) -> None:
        is_told = self._ms > MISSED_MS_MAX  # by then every broker has told a new controller what is offline
        counts = {id_: count for id_, count in self.offline.items() if id_ in living and not is_told}
        missed_ms = {}
        for broker, replicas in offline.items():
            before, known = self.offline.get(broker), self._sets.get(broker)
            is_more = not replicas <= known if known is not None else before is None or len(replicas) > before.replicas
            counts[broker] = FolderCount(0 if before is None or is_more else before.ms + counted_ms, len(replicas))
            missed_ms[broker] = 0 if known is None or is_more else self._offline_missed_ms[broker] + counted_ms
        self.offline, self._offline_missed_ms, self._sets = counts, missed_ms, dict(offline)

    @property
    def away(self) -> frozenset[int]:
        return frozenset(self.away_ms)

    def lost(self, after_ms: int) -> frozenset[int]:
        """Brokers that have been away for so long."""
        times_ms = self.away_ms if self._is_blocked else self._counting_ms
        return frozenset(
            broker
            for broker, ms in times_ms.items()
            if ms >= after_ms and self._missed_ms.get(broker, 0) >= min(after_ms, MISSED_MS_MAX)
        )

    @property
    def _counting_ms(self) -> dict[int, int]:
        return {broker: ms - self._blocked_ms.get(broker, 0) for broker, ms in self.away_ms.items()}

    def failing(self, after_ms: int) -> frozenset[int]:
        """Brokers whose replicas have been offline for so long."""
        return frozenset(
            broker
            for broker, count in self.offline.items()
            if count.ms >= after_ms and self._offline_missed_ms.get(broker, 0) >= min(after_ms, MISSED_MS_MAX)
        )

    def noted(self, before: Journal) -> Journal:
        """The journal with the times that are worth a write: the one before, if there is nothing new to tell."""
        away = {broker: ms for broker, ms in self._counting_ms.items() if ms >= NOTED_MS}
        offline = {broker: count for broker, count in self.offline.items() if count.ms >= NOTED_MS}
        is_same = away.keys() == before.away_ms.keys() and offline.keys() == before.offline.keys()
        is_recent = is_same and all(
            0 <= ms - noted < NOTE_EVERY_MS
            for ms, noted in (
                *((ms, before.away_ms[broker]) for broker, ms in away.items()),
                *((count.ms, before.offline[broker].ms) for broker, count in offline.items()),
            )
        )
        return before if is_recent else before._replace(away_ms=away, offline=offline)

    def __repr__(self) -> str:
        return f"<Absences {self.away_ms} {self.offline}>"


def counted(before: Mapping[int, int], brokers: Collection[int], counted_ms: int) -> Mapping[int, int]:
    """The first look begins at 0."""
    return {broker: before[broker] + counted_ms if broker in before else 0 for broker in brokers}
