"""Consumer lag and its trend: known, unknown and expired records."""

from __future__ import annotations

import pytest
from tests.unit.monitor.group_simulation import Scene, first_not_ok, in_batches, saw_tooth, statuses, steady, verdicts

from ottla.monitor.lag_evaluation import Status
from ottla.operations.lag import PartitionLag, TotalLag, seconds_behind, total_lag


@pytest.mark.parametrize(
    ("lag", "offsets", "records"),
    [
        (PartitionLag(3, 10), 7, 7),
        (PartitionLag(3, 10, 0), 7, 7),
        (PartitionLag(10, 10, 0), 0, 0),
        (PartitionLag(3, 10, 8), 7, 2),  # five have aged out
        (PartitionLag(3, 10, 10), 7, 0),  # all have
        (PartitionLag(12, 10, 0), -2, 0),  # the topic was recreated
    ],
)
def test_kafkas_lag_counts_expired_records_and_ours_does_not(lag: PartitionLag, offsets: int, records: int) -> None:
    assert (lag.offsets, lag.records) == (offsets, records)


@pytest.mark.parametrize("lag", [PartitionLag(None, 10, 0), PartitionLag(3, None, 0), PartitionLag(None, None)])
def test_unknown_is_not_zero(lag: PartitionLag) -> None:
    assert lag.offsets is None
    assert lag.records is None
    assert seconds_behind(lag.records, 5, 10) is None


def test_reading_goes_on_where_the_log_begins() -> None:
    assert PartitionLag(3, 10, 8).first_unread == 8
    assert PartitionLag(9, 10, 8).first_unread == 9
    assert PartitionLag(9, 10).first_unread == 9
    assert PartitionLag(None, 10, 8).first_unread is None


def test_a_sum_counts_the_unknown_partitions() -> None:
    lags = [
        PartitionLag(3, 10, seconds=2.5),
        PartitionLag(1, 2, seconds=9.0),
        PartitionLag(None, 10),
        PartitionLag(3, None),
    ]
    assert total_lag(lags) == TotalLag(8, 2, 9.0)
    assert total_lag(lags[2:]) == TotalLag(None, 2, None)
    assert total_lag([]) == TotalLag(None, 0, None)


def test_time_behind_is_the_age_of_the_first_unread_record() -> None:
    assert seconds_behind(7, 1_000, 3_500) == 2.5
    assert seconds_behind(0, None, 3_500) == 0.0
    assert seconds_behind(7, None, 3_500) is None
    assert seconds_behind(7, -1, 3_500) is None, "a record without a timestamp has no age"
    assert seconds_behind(7, 4_000, 3_500) == 0.0, "the producer's clock is ahead"


COMMIT_INTERVALS = (0.2, 1.0, 5.0, 30.0)
TOLD_SECONDS_MAX = 115.0  # two minutes, and time for an alert and a page
TEN_MINUTES = 600.0


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
@pytest.mark.parametrize("rate", [10, 100, 1_000, 100_000])
@pytest.mark.parametrize("ratio", [0.1, 0.15, 0.5, 0.8])
def test_a_group_that_reads_too_little_is_not_ok_within_two_minutes(commit_s: float, rate: int, ratio: float) -> None:
    for commits_same in (False, True):
        scene = Scene(steady(rate), steady(ratio * rate), commit_s, commits_same)
        told_s = first_not_ok(scene, 130)
        assert told_s is not None
        assert told_s <= TOLD_SECONDS_MAX


@pytest.mark.parametrize("ratio", [0.15, 0.5, 0.7, 0.8])
def test_a_group_that_moves_by_whole_polls_was_ok_for_four_minutes(ratio: float) -> None:
    """500 records at a time, as with Java's consumer: from commit to commit the lag grows unevenly."""
    told = []
    for commit_s in COMMIT_INTERVALS:
        for seed in range(10):
            read = in_batches(ratio * 100, 500 / (ratio * 100))
            told_s = first_not_ok(Scene(steady(100), read, commit_s, seed=seed), 300)
            assert told_s is not None
            told.append(told_s)
    assert max(told) <= 190
    assert sorted(told)[len(told) // 2] <= 125


@pytest.mark.parametrize("period_s", [46.4, 47.0, 48.6, 48.9])
def test_a_saw_tooth_that_moves_at_every_second_commit_was_not_ok(period_s: float) -> None:
    for seed in (411, 485, 624, 70):
        for shift_s in (22.5, 41.1, 43.6, 44.6):
            scene = Scene(steady(100), saw_tooth(100, period_s, shift_s), 30.0, seed=seed)
            assert first_not_ok(scene, TEN_MINUTES) is None, (seed, shift_s)


def test_burrow_reports_ok_for_a_group_that_falls_behind_for_ever() -> None:
    """Fifty minutes, 15 of 100 records a second: Burrow's verdict, which the API returns next to ours."""
    said = [found for _, found in verdicts(Scene(steady(100), steady(15), 1.0), 3_000) if found is not None]
    late = said[len(said) // 10 :]
    assert said[-1].totallag > 250_000
    assert {found.ottla_status for found in late} == {Status.WARN}
    assert sum(found.status is Status.OK for found in late) > len(late) / 2


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
@pytest.mark.parametrize("ratio", [0.15, 0.8])
def test_it_stays_so_while_it_falls_behind(commit_s: float, ratio: float) -> None:
    for at_s, status in statuses(Scene(steady(100), steady(ratio * 100), commit_s), 1_200):
        assert at_s <= TOLD_SECONDS_MAX or status is Status.WARN, at_s


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
def test_a_group_that_kept_up_and_falls_behind_later(commit_s: float) -> None:
    def read(now_s: float) -> float:
        return 100 * now_s if now_s < 300 else 30_000 + 80 * (now_s - 300)

    told_s = first_not_ok(Scene(steady(100), read, commit_s), 430)
    assert told_s is not None
    assert 300 < told_s <= 300 + TOLD_SECONDS_MAX


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
@pytest.mark.parametrize("commits_same", [False, True])
@pytest.mark.parametrize("period_s", [10, 20, 30, 40, 45, 50, 55, 60])
def test_a_group_that_reaches_the_end_once_a_minute_stays_ok(
    commit_s: float, commits_same: bool, period_s: int
) -> None:
    for shift_s in (0.0, 7.3, 0.9 * period_s):
        read = saw_tooth(100, period_s, shift_s)
        assert first_not_ok(Scene(steady(100), read, commit_s, commits_same), TEN_MINUTES) is None, shift_s


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
@pytest.mark.parametrize("rate", [1, 10, 100_000])
def test_a_group_that_keeps_up_stays_ok(commit_s: float, rate: int) -> None:
    for written in (steady(rate), in_batches(rate, 7), in_batches(rate, 60), in_batches(rate, 300)):
        assert first_not_ok(Scene(written, written, commit_s), TEN_MINUTES) is None
        assert first_not_ok(Scene(written, written, commit_s, monitor_from_s=100), TEN_MINUTES) is None


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
@pytest.mark.parametrize("every_s", [7, 20])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8])
def test_producers_that_write_in_batches(commit_s: float, every_s: int, ratio: float) -> None:
    """The group reaches the end before each batch, until it is behind by one."""
    told_s = first_not_ok(Scene(in_batches(100, every_s), steady(ratio * 100), commit_s), 360)
    assert told_s is not None
    assert told_s <= every_s / (1 - ratio) + (TOLD_SECONDS_MAX + every_s if commit_s <= 5 else 240)


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
def test_a_group_that_reads_as_much_as_is_written_far_behind_the_end_is_ok(commit_s: float) -> None:
    read = steady(100)
    assert first_not_ok(Scene(lambda now_s: 60_000 + 100 * now_s, read, commit_s), TEN_MINUTES) is None


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
def test_a_group_that_was_restarted_and_catches_up_is_ok(commit_s: float) -> None:
    """Half a minute without a member, as in a rebalance, and then 10 % more than what is written."""
    for stops_s in range(180, 200, 2):

        def read(now_s: float, stops_s: int = stops_s) -> float:
            since_s = now_s - stops_s
            return 100 * min(now_s, stops_s) + (0 if since_s < 30 else min(110 * (since_s - 30), 100 * since_s))

        assert first_not_ok(Scene(steady(100), read, commit_s), TEN_MINUTES) is None, stops_s


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
def test_a_group_that_stops_is_not_ok_within_two_minutes(commit_s: float) -> None:
    def read(now_s: float) -> float:
        return 100 * min(now_s, 200)

    found = list(statuses(Scene(steady(100), read, commit_s), 600))
    told_s = next(at_s for at_s, status in found if status > Status.OK)
    assert 200 < told_s <= 200 + 120
    assert {status for at_s, status in found if at_s > 400} == {Status.ERR}


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
def test_a_producer_that_pauses_makes_no_group_stop(commit_s: float) -> None:
    def written(now_s: float) -> float:
        return 100 * (min(now_s, 100) + max(0, now_s - 400))

    assert first_not_ok(Scene(written, written, commit_s), TEN_MINUTES) is None
    assert first_not_ok(Scene(written, written, commit_s, commits_same=True), TEN_MINUTES) is None


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
def test_an_open_transaction_holds_back_readers_of_committed_records(commit_s: float) -> None:
    """Transactions of three minutes: the group reads all committed records."""

    def stable(now_s: float) -> float:
        return 100 * 180 * (now_s // 180)

    scene = Scene(steady(100), stable, commit_s, stable=stable)
    assert first_not_ok(scene, 900) is None


@pytest.mark.parametrize("commits_same", [False, True])
def test_markers_of_transactions_are_nothing_to_read(commits_same: bool) -> None:
    """librdkafka commits the offset after the last record, so the marker always remains unread."""
    scene = Scene(lambda now_s: 100.0, lambda now_s: 99.0, 1.0, commits_same, has_marker=True)
    assert first_not_ok(scene, TEN_MINUTES) is None
    assert first_not_ok(scene._replace(has_marker=False), TEN_MINUTES) is not None


@pytest.mark.parametrize("commit_s", COMMIT_INTERVALS)
@pytest.mark.parametrize("ratio", [0.9, 0.97])
def test_a_group_that_falls_behind_slowly_is_seen_in_the_end(commit_s: float, ratio: float) -> None:
    told_s = first_not_ok(Scene(steady(100), steady(ratio * 100), commit_s), 6_000)
    assert told_s is not None
