"""Absence times of brokers: which times count, and how the next controller continues them."""

from __future__ import annotations

from uuid import UUID

from ottla.controller.self_balancing.broker_absences import (
    CHECK_MS_MAX,
    CONFIRMATION_MS,
    RECORDED_MS_MIN,
    BrokerAbsences,
)
from ottla.controller.self_balancing.heal_state import HealJournal, OfflineReplicas

ALL = frozenset({1, 2, 3, 4})
AFTER_MS = 60_000
NOTHING: dict[int, frozenset[tuple[UUID, int]]] = {}


def replicas(*indexes: int) -> frozenset[tuple[UUID, int]]:
    return frozenset((UUID(int=1), index) for index in indexes)


def look(
    absences: BrokerAbsences, *living: int, seconds: int = 1, offline: dict[int, frozenset[tuple[UUID, int]]] = NOTHING
) -> None:
    for _ in range(seconds):
        absences.update(ALL, living, offline, 1000)


def test_broker_is_lost_after_the_whole_time_and_not_earlier() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, 3, seconds=60)
    assert absences.lost_brokers(AFTER_MS) == frozenset()
    look(absences, 1, 2, 3)
    assert absences.lost_brokers(AFTER_MS) == {4}
    assert absences.away == {4}


def test_a_broker_that_restarts_every_minute_is_never_lost() -> None:
    absences = BrokerAbsences(HealJournal())
    for _ in range(10):
        look(absences, 1, 2, 3, seconds=50)
        look(absences, 1, 2, 3, 4, seconds=2)
        assert absences.lost_brokers(AFTER_MS) == frozenset()


def test_broker_that_is_alive_between_two_checks_starts_again() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, 3, seconds=60)
    absences.note_present([1, 2, 3, 4])
    look(absences, 1, 2, 3, seconds=60)
    assert absences.lost_brokers(AFTER_MS) == frozenset()


def test_last_broker_to_return_after_a_power_cut_is_not_lost_at_once() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, seconds=300)
    assert absences.lost_brokers(AFTER_MS) == {3, 4}, "for the reason to wait"
    absences.note_present([1, 2, 3])
    assert absences.lost_brokers(AFTER_MS) == frozenset()
    look(absences, 1, 2, 3, seconds=59)
    assert absences.lost_brokers(AFTER_MS) == frozenset()
    assert absences.to_journal(HealJournal()).away_ms == {4: 59_000}, "the next controller counts on from there"
    look(absences, 1, 2, 3, seconds=1)
    assert absences.lost_brokers(AFTER_MS) == {4}


def test_time_of_a_stalled_controller_does_not_count() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, 3)
    absences.update(ALL, (1, 2, 3), NOTHING, 3_600_000)
    assert absences.away_ms == {4: CHECK_MS_MAX}


def test_a_broker_that_holds_nothing_is_not_missed() -> None:
    absences = BrokerAbsences(HealJournal({9: 50_000}))
    look(absences, *ALL, seconds=2)
    assert absences.away == frozenset()


def test_next_controller_continues_the_times_but_confirms_absences_itself() -> None:
    absences = BrokerAbsences(HealJournal(away_ms={4: 59_000}))
    look(absences, 1, 2, 3, seconds=5)
    assert absences.away_ms == {4: 64_000}
    assert absences.lost_brokers(AFTER_MS) == frozenset(), "the store was away, perhaps: it may be about to register"
    look(absences, 1, 2, 3, seconds=CONFIRMATION_MS // 1000)
    assert absences.lost_brokers(AFTER_MS) == {4}


def test_a_short_time_is_not_made_longer_by_that() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, 3, seconds=3)
    assert absences.lost_brokers(2_000) == {4}


def test_zero_is_at_the_first_look() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, 3)
    assert absences.lost_brokers(0) == {4}


def test_offline_time_ends_with_the_repair_and_starts_again_with_more_replicas() -> None:
    absences = BrokerAbsences(HealJournal())
    look(absences, *ALL, seconds=61, offline={2: replicas(0, 1)})
    assert absences.failing_brokers(AFTER_MS) == {2}
    look(absences, *ALL, offline={2: replicas(0, 1, 2)})
    assert absences.failing_brokers(AFTER_MS) == frozenset()
    look(absences, *ALL, seconds=60, offline={2: replicas(0, 2)})
    assert absences.failing_brokers(AFTER_MS) == {2}, "fewer are no reason to begin anew"
    look(absences, *ALL)
    assert absences.offline == {}


def test_new_controller_waits_for_the_reports_of_offline_replicas() -> None:
    absences = BrokerAbsences(HealJournal(offline={2: OfflineReplicas(50_000, 2)}))
    look(absences, *ALL, seconds=3)
    look(absences, *ALL, seconds=11, offline={2: replicas(0, 1)})
    assert absences.failing_brokers(AFTER_MS) == {2}
    never_told = BrokerAbsences(HealJournal(offline={2: OfflineReplicas(50_000, 2)}))
    look(never_told, *ALL, seconds=CONFIRMATION_MS // 1000 + 1)
    assert never_told.offline == {}
    more = BrokerAbsences(HealJournal(offline={2: OfflineReplicas(50_000, 2)}))
    look(more, *ALL, seconds=11, offline={2: replicas(0, 1, 2)})
    assert more.failing_brokers(AFTER_MS) == frozenset()


def test_a_restart_is_not_worth_a_write_and_a_minute_is() -> None:
    absences, journal = BrokerAbsences(HealJournal()), HealJournal()
    writes = []
    for _ in range(150):
        look(absences, 1, 2, 3)
        after = absences.to_journal(journal)
        if after is not journal:
            writes.append(after.away_ms[4])
        journal = after
    assert writes == [RECORDED_MS_MIN, RECORDED_MS_MIN + 60_000, RECORDED_MS_MIN + 120_000]
    look(absences, *ALL)
    assert absences.to_journal(journal).away_ms == {}


def test_broker_that_returned_and_left_again_is_written_again() -> None:
    """The journal must not have a longer time than the actual one."""
    absences = BrokerAbsences(HealJournal())
    look(absences, 1, 2, 3, seconds=100)
    journal = absences.to_journal(HealJournal())
    absences.note_present(ALL)
    look(absences, 1, 2, 3, seconds=7)
    assert absences.to_journal(journal).away_ms == {4: 6_000}
