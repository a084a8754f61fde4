"""Absence times: how long brokers have been down and replicas offline, as counted by the active controller. Pure.

Rules:
1. Times are counted with the monotonic clock, check by check, and a check after a long pause adds only a short time.
   So clock steps, a stalled controller and an unavailable store only delay healing.
2. The time of a broker starts again when it is alive (registered and polling, broker_heartbeats.py). A broker that
   restarts every minute is never absent for long.
3. The times continue those of the previous controller, but a broker is lost only after this controller has missed it
   for a while itself: when the store is available after hours, brokers register one after the other.
4. While more brokers are absent than healing permits, the time is only used for the reported reason. After a power cut
brokers return one by one, and the last one must not be considered lost as soon as the others have returned.
5. The time of a broker with offline replicas (failed log directory, damaged log, full disk) starts again when more
   replicas become offline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from ottla.controller.self_balancing.heal_state import HealJournal, OfflineReplicas

CHECK_MS_MAX: Final = 3_000  # the maximum time that one check counts
CONFIRMATION_MS: Final = 10_000
RECORDED_MS_MIN: Final = 5_000  # shorter absences are restarts and not written
RECORD_INTERVAL_MS: Final = 60_000

Offline = Mapping[int, frozenset[tuple[UUID, int]]]


class BrokerAbsences:
    """The times of one controller term. Its mappings are replaced, never changed: decisions may run in threads."""

    def __init__(self, journal: HealJournal) -> None:
        self.away_ms: Mapping[int, int] = dict(journal.away_ms)
        self.offline: Mapping[int, OfflineReplicas] = dict(journal.offline)
        self._observed_ms: Mapping[int, int] = {}  # as counted by this controller (rule 3)
        self._blocked_ms: Mapping[int, int] = {}  # rule 4
        self._is_blocked = False
        self._offline_observed_ms: Mapping[int, int] = {}
        self._offline_replicas: Offline = {}
        self._elapsed_ms = 0  # since the election

    def note_present(self, living: Collection[int]) -> None:
        """Reset the times of these live brokers."""
        if any(broker in living for broker in self.away_ms):
            self.away_ms = {broker: ms for broker, ms in self.away_ms.items() if broker not in living}
            self._observed_ms = {broker: ms for broker, ms in self._observed_ms.items() if broker not in living}
            self._blocked_ms = {broker: ms for broker, ms in self._blocked_ms.items() if broker not in living}
            self._is_blocked = False  # until the next check

    def update(
        self,
        holders: Collection[int],
        living: Collection[int],
        offline: Offline,
        elapsed_ms: int,
        brokers_max: int = 1,
    ) -> None:
        """Count the time since the last check.

        `holders` are the brokers with replicas. If more than `brokers_max` of them are absent, rule 4 applies.
        """
        counted_ms = min(elapsed_ms, CHECK_MS_MAX)
        self._elapsed_ms += counted_ms
        self.note_present(living)
        away = {broker for broker in holders if broker not in living}
        self.away_ms = add_elapsed(self.away_ms, away, counted_ms)
        self._observed_ms = add_elapsed(self._observed_ms, away, counted_ms)
        self._is_blocked = len(away) > brokers_max
        self._blocked_ms = add_elapsed(self._blocked_ms, away, counted_ms if self._is_blocked else 0)
        self._update_offline(offline, living, counted_ms)

    def _update_offline(self, offline: Offline, living: Collection[int], counted_ms: int) -> None:
        is_told = self._elapsed_ms > CONFIRMATION_MS  # by then all brokers have reported to a new controller
        counts = {id_: count for id_, count in self.offline.items() if id_ in living and not is_told}
        missed_ms = {}
        for broker, replicas in offline.items():
            before, known = self.offline.get(broker), self._offline_replicas.get(broker)
            is_more = not replicas <= known if known is not None else before is None or len(replicas) > before.replicas
            counts[broker] = OfflineReplicas(0 if before is None or is_more else before.ms + counted_ms, len(replicas))
            missed_ms[broker] = 0 if known is None or is_more else self._offline_observed_ms[broker] + counted_ms
        self.offline, self._offline_observed_ms, self._offline_replicas = counts, missed_ms, dict(offline)

    @property
    def away(self) -> frozenset[int]:
        return frozenset(self.away_ms)

    def lost_brokers(self, after_ms: int) -> frozenset[int]:
        """Return the brokers that have been absent for this time."""
        times_ms = self.away_ms if self._is_blocked else self._counting_ms
        return frozenset(
            broker
            for broker, ms in times_ms.items()
            if ms >= after_ms and self._observed_ms.get(broker, 0) >= min(after_ms, CONFIRMATION_MS)
        )

    @property
    def _counting_ms(self) -> dict[int, int]:
        return {broker: ms - self._blocked_ms.get(broker, 0) for broker, ms in self.away_ms.items()}

    def failing_brokers(self, after_ms: int) -> frozenset[int]:
        """Return the brokers whose replicas have been offline for this time."""
        return frozenset(
            broker
            for broker, count in self.offline.items()
            if count.ms >= after_ms and self._offline_observed_ms.get(broker, 0) >= min(after_ms, CONFIRMATION_MS)
        )

    def to_journal(self, before: HealJournal) -> HealJournal:
        """Return the journal with the current times; `before` itself if a write is not needed yet."""
        away = {broker: ms for broker, ms in self._counting_ms.items() if ms >= RECORDED_MS_MIN}
        offline = {broker: count for broker, count in self.offline.items() if count.ms >= RECORDED_MS_MIN}
        is_same = away.keys() == before.away_ms.keys() and offline.keys() == before.offline.keys()
        is_recent = is_same and all(
            0 <= ms - noted < RECORD_INTERVAL_MS
            for ms, noted in (
                *((ms, before.away_ms[broker]) for broker, ms in away.items()),
                *((count.ms, before.offline[broker].ms) for broker, count in offline.items()),
            )
        )
        return before if is_recent else before._replace(away_ms=away, offline=offline)

    def __repr__(self) -> str:
        return f"<BrokerAbsences {self.away_ms} {self.offline}>"


def add_elapsed(before: Mapping[int, int], brokers: Collection[int], counted_ms: int) -> Mapping[int, int]:
    """Add time to the counts of these brokers; new ones start at 0."""
    return {broker: before[broker] + counted_ms if broker in before else 0 for broker in brokers}
