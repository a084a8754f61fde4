"""The history of commits and log end offsets."""

from ottla.monitor.lag_evaluation import Commit
from ottla.monitor.offset_rings import SAMPLES_MAX, CommitRing, RecentEndHistory

DISTANCE_MS = 1_000


def ring_of(*commits: Commit, intervals: int = 3) -> CommitRing:
    ring = CommitRing(intervals)
    for commit in commits:
        ring.add(commit, DISTANCE_MS)
    return ring


def test_only_the_newest_are_kept() -> None:
    ring = ring_of(*(Commit(number, number * 1_000, 1, number) for number in range(5)))
    assert [commit.offset for commit in ring.commits] == [2, 3, 4]


def test_commits_too_close_share_a_place_with_the_older_time() -> None:
    ring = ring_of(Commit(1, 0, 9, 0), Commit(2, 999, 8, 1), Commit(3, 1_000, 7, 2))
    assert ring.commits == [Commit(2, 0, 8, 1), Commit(3, 1_000, 7, 2)]


def test_constant_commits_fill_one_slot_a_second() -> None:
    ring = ring_of(*(Commit(number, number * 100, 1, number) for number in range(25)))
    assert [commit.timestamp_ms for commit in ring.commits] == [0, 1_000, 2_000]
    assert ring.commits[-1].offset == 24


def test_a_record_that_was_seen_before_changes_nothing() -> None:
    ring = ring_of(Commit(1, 0, 9, 0), Commit(2, 2_000, 8, 1))
    assert not ring.add(Commit(1, 0, 5, 0), DISTANCE_MS)
    assert not ring.add(Commit(2, 2_000, 5, 1), DISTANCE_MS)
    assert [commit.lag for commit in ring.commits] == [9, 8]


def test_a_recreated_log_counts() -> None:
    ring = ring_of(Commit(7, 0, 9, 500))
    assert ring.add(Commit(3, 5_000, None, 0), DISTANCE_MS)
    assert [commit.offset for commit in ring.commits] == [7, 3]


def test_the_first_sample_sets_the_lag_of_the_newest_commit() -> None:
    recent = ring_of(Commit(5, 0, None, 0))
    recent.set_first_lag(8, is_recent=True)
    old = ring_of(Commit(5, 0, None, 0))
    old.set_first_lag(8, is_recent=False)  # three records, but their times are unknown
    done = ring_of(Commit(5, 0, None, 0))
    done.set_first_lag(5, is_recent=False)
    assert [ring.commits[0].lag for ring in (recent, old, done)] == [3, None, 0]


def test_lag_in_time_between_two_looks_is_even() -> None:
    history = RecentEndHistory(10)
    history.add(100, 0)
    history.add(200, 10_000)
    assert history.lag_ms(200, 12_000) == (0, False)
    assert history.lag_ms(150, 12_000) == (7_000, False)
    assert history.lag_ms(100, 12_000) == (12_000, False)
    assert history.lag_ms(50, 12_000) == (12_000, True)  # at least


def test_a_quiet_log_does_not_make_a_new_record_old() -> None:
    history = RecentEndHistory(10)
    for second in range(100):
        history.add(100, second * 1_000)
    history.add(101, 100_000)
    assert history.lag_ms(100, 101_000) == (2_000, False)
    assert list(history.recent) == [100] * 9 + [101]


def test_the_past_gets_thinner_and_stays_bounded() -> None:
    history = RecentEndHistory(10)
    for second in range(10_000):
        history.add(second, second * 1_000)
    assert len(history._ends) <= SAMPLES_MAX
    assert history.first_ms == 0
    for offset in (10, 5_000, 9_990):
        assert abs(history.lag_ms(offset, 9_999_000)[0] - (9_999 - offset) * 1_000) <= 1_000


def test_a_recreated_log_restarts_the_history() -> None:
    history = RecentEndHistory(10)
    history.add(500, 0)
    history.add(3, 1_000)
    assert (history.end, list(history.recent), history.first_ms) == (3, [3], 1_000)


def test_growth_in_a_window() -> None:
    history = RecentEndHistory(10)
    for second, end in ((0, 10), (10, 10), (20, 14), (30, 15)):
        history.add(end, second * 1_000)
    assert history.records_since(15_000) == 5
    assert history.records_since(25_000) == 1
    assert history.records_since(-1) == 5
