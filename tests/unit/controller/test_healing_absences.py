"""How long brokers have been away: what counts, what does not, and what the next controller goes on with."""

from __future__ import annotations

from uuid import UUID

from ottla.controller.decisions.healing.absences import LOOK_MS_MAX, MISSED_MS_MAX, NOTED_MS, Absences
from ottla.controller.decisions.healing.journal import FolderCount, Journal

ALL = frozenset({1, 2, 3, 4})
AFTER_MS = 60_000
NOTHING: dict[int, frozenset[tuple[UUID, int]]] = {}


def replicas(*indexes: int) -> frozenset[tuple[UUID, int]]:
    return frozenset((UUID(int=1), index) for index in indexes)


def look(
    absences: Absences, *living: int, seconds: int = 1, offline: dict[int, frozenset[tuple[UUID, int]]] = NOTHING
) -> None:
    for _ in range(seconds):
        absences.look(ALL, living, offline, 1000)


def test_who_is_away_for_the_whole_time_is_lost_and_not_a_moment_earlier() -> None:
    absences = Absences(Journal())
    look(absences, 1, 2, 3, seconds=60)
    assert absences.lost(AFTER_MS) == frozenset()
    look(absences, 1, 2, 3)
    assert absences.lost(AFTER_MS) == {4}
    assert absences.away == {4}


def test_a_broker_that_restarts_every_minute_is_never_lost() -> None:
    absences = Absences(Journal())
    for _ in range(10):
        look(absences, 1, 2, 3, seconds=50)
        look(absences, 1, 2, 3, 4, seconds=2)
        assert absences.lost(AFTER_MS) == frozenset()


def test_a_broker_that_is_there_between_two_looks_begins_anew() -> None:
    absences = Absences(Journal())
    look(absences, 1, 2, 3, seconds=60)
    absences.see([1, 2, 3, 4])
    look(absences, 1, 2, 3, seconds=60)
    assert absences.lost(AFTER_MS) == frozenset()


def test_who_comes_back_last_after_a_power_cut_is_not_given_up_at_once() -> None:
    absences = Absences(Journal())
    look(absences, 1, 2, seconds=300)
    assert absences.lost(AFTER_MS) == {3, 4}, "for the reason to wait"
    absences.see([1, 2, 3])
    assert absences.lost(AFTER_MS) == frozenset()
    look(absences, 1, 2, 3, seconds=59)
    assert absences.lost(AFTER_MS) == frozenset()
    assert absences.noted(Journal()).away_ms == {4: 59_000}, "the next controller counts on from there"
    look(absences, 1, 2, 3, seconds=1)
    assert absences.lost(AFTER_MS) == {4}


def test_a_controller_that_stood_still_has_missed_nobody_meanwhile() -> None:
    absences = Absences(Journal())
    look(absences, 1, 2, 3)
    absences.look(ALL, (1, 2, 3), NOTHING, 3_600_000)
    assert absences.away_ms == {4: LOOK_MS_MAX}


def test_a_broker_that_holds_nothing_is_not_missed() -> None:
    absences = Absences(Journal({9: 50_000}))
    look(absences, *ALL, seconds=2)
    assert absences.away == frozenset()


def test_the_next_controller_goes_on_but_misses_everybody_itself_for_a_while() -> None:
    absences = Absences(Journal(away_ms={4: 59_000}))
    look(absences, 1, 2, 3, seconds=5)
    assert absences.away_ms == {4: 64_000}
    assert absences.lost(AFTER_MS) == frozenset(), "the store was away, perhaps: it may be about to register"
    look(absences, 1, 2, 3, seconds=MISSED_MS_MAX // 1000)
    assert absences.lost(AFTER_MS) == {4}


def test_a_short_time_is_not_made_longer_by_that() -> None:
    absences = Absences(Journal())
    look(absences, 1, 2, 3, seconds=3)
    assert absences.lost(2_000) == {4}


def test_zero_is_at_the_first_look() -> None:
    absences = Absences(Journal())
    look(absences, 1, 2, 3)
    assert absences.lost(0) == {4}


def test_a_failed_folder_counts_until_it_is_back_and_anew_with_each_one_more() -> None:
    absences = Absences(Journal())
    look(absences, *ALL, seconds=61, offline={2: replicas(0, 1)})
    assert absences.failing(AFTER_MS) == {2}
    look(absences, *ALL, offline={2: replicas(0, 1, 2)})
    assert absences.failing(AFTER_MS) == frozenset()
    look(absences, *ALL, seconds=60, offline={2: replicas(0, 2)})
    assert absences.failing(AFTER_MS) == {2}, "fewer are no reason to begin anew"
    look(absences, *ALL)
    assert absences.offline == {}


def test_a_new_controller_waits_until_brokers_have_told_it_what_is_offline() -> None:
    absences = Absences(Journal(offline={2: FolderCount(50_000, 2)}))
    look(absences, *ALL, seconds=3)
    look(absences, *ALL, seconds=11, offline={2: replicas(0, 1)})
    assert absences.failing(AFTER_MS) == {2}
    never_told = Absences(Journal(offline={2: FolderCount(50_000, 2)}))
    look(never_told, *ALL, seconds=MISSED_MS_MAX // 1000 + 1)
    assert never_told.offline == {}
    more = Absences(Journal(offline={2: FolderCount(50_000, 2)}))
    look(more, *ALL, seconds=11, offline={2: replicas(0, 1, 2)})
    assert more.failing(AFTER_MS) == frozenset()


def test_a_restart_is_not_worth_a_write_and_a_minute_is() -> None:
    absences, journal = Absences(Journal()), Journal()
    writes = []
    for _ in range(150):
        look(absences, 1, 2, 3)
        after = absences.noted(journal)
        if after is not journal:
            writes.append(after.away_ms[4])
        journal = after
    assert writes == [NOTED_MS, NOTED_MS + 60_000, NOTED_MS + 120_000]
    look(absences, *ALL)
    assert absences.noted(journal).away_ms == {}


def test_a_broker_that_is_back_and_away_again_is_written_anew() -> None:
    """The journal must not say that it has been away for longer than it is."""
    absences = Absences(Journal())
    look(absences, 1, 2, 3, seconds=100)
    journal = absences.noted(Journal())
    absences.see(ALL)
    look(absences, 1, 2, 3, seconds=7)
    assert absences.noted(journal).away_ms == {4: 6_000}
