"""How far a reader is behind: what counts, and what nobody knows."""

from __future__ import annotations

import pytest

from ottla.operations.lag import PartitionLag, TotalLag, seconds_behind, total_lag


@pytest.mark.parametrize(
    ("lag", "offsets", "records"),
    [
        (PartitionLag(3, 10), 7, 7),
        (PartitionLag(3, 10, 0), 7, 7),
        (PartitionLag(10, 10, 0), 0, 0),
        (PartitionLag(3, 10, 8), 7, 2),  # five have aged out
        (PartitionLag(3, 10, 10), 7, 0),  # all have
        (PartitionLag(12, 10, 0), -2, 0),  # the topic was made anew
    ],
)
def test_kafkas_number_counts_what_is_gone_and_ours_what_is_there(
    lag: PartitionLag, offsets: int, records: int
) -> None:
    assert (lag.offsets, lag.records) == (offsets, records)


@pytest.mark.parametrize("lag", [PartitionLag(None, 10, 0), PartitionLag(3, None, 0), PartitionLag(None, None)])
def test_what_is_not_known_is_not_zero(lag: PartitionLag) -> None:
    assert lag.offsets is None
    assert lag.records is None
    assert seconds_behind(lag.records, 5, 10) is None


def test_reading_goes_on_where_the_log_begins() -> None:
    assert PartitionLag(3, 10, 8).first_unread == 8
    assert PartitionLag(9, 10, 8).first_unread == 9
    assert PartitionLag(9, 10).first_unread == 9
    assert PartitionLag(None, 10, 8).first_unread is None


def test_a_sum_tells_in_how_many_partitions_it_knows_nothing() -> None:
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
