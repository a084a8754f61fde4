"""Burrow's rules, case by case; the comments name the rule."""

import pytest

from ottla.monitor.lag_evaluation import Commit, Status, group_status, partition_status, share

SECOND = 1_000
START_MS = 1_700_000_000_000


def commits(*pairs: tuple[int, int | None], every_ms: int = SECOND) -> list[Commit]:
    """(offset, lag) each, one second apart by default."""
    return [Commit(offset, START_MS + place * every_ms, lag, place) for place, (offset, lag) in enumerate(pairs)]


def just_after(kept: list[Commit]) -> int:
    return kept[-1].timestamp_ms


@pytest.mark.parametrize(
    ("kept", "current_lag", "expected"),
    [
        # the lag is zero now: never an error
        ([(1, 5), (1, 5), (1, 5)], 0, Status.OK),
        # the lag was zero once: OK, though offsets stand still
        ([(1, 5), (1, 0), (1, 5)], 5, Status.OK),
        # … or went back
        ([(9, 0), (1, 5), (2, 5)], 5, Status.OK),
        # an offset went back
        ([(5, 5), (4, 6), (6, 7)], 5, Status.REWIND),
        # commits that do not change, with lag
        ([(5, 5), (5, 6), (5, 7)], 5, Status.STALL),
        # one commit alone does not change either
        ([(5, 5)], 5, Status.STALL),
        # offsets move, the lag never falls
        ([(1, 5), (2, 5), (3, 6)], 6, Status.WARN),
        ([(1, 5), (2, 5), (3, 5)], 5, Status.WARN),
        # the lag falls once
        ([(1, 5), (2, 4), (3, 6)], 6, Status.OK),
        # a lag that is not known is neither zero nor falling nor rising
        ([(1, None), (2, None), (3, 6)], 6, Status.OK),
        ([(1, None), (2, None), (3, None)], 6, Status.OK),
        ([(1, None), (2, 5), (3, 6)], 6, Status.WARN),
        ([(1, 7), (2, None), (3, 6)], 6, Status.OK),
        ([(5, None), (5, None)], 3, Status.STALL),
        ([], 3, Status.OK),
    ],
)
def test_rules_of_a_partition(kept: list[tuple[int, int | None]], current_lag: int, expected: Status) -> None:
    found = commits(*kept)
    now_ms = just_after(found) if found else START_MS
    assert partition_status(found, [100], current_lag, now_ms) is expected


@pytest.mark.parametrize(
    ("silent_ms", "recent_ends", "current_lag", "expected"),
    [
        (2_000, [100], 5, Status.WARN),  # as long as the kept commits span: not yet
        (2_999, [100], 5, Status.WARN),  # Burrow counts whole seconds
        (3_000, [100], 5, Status.STOP),
        (3_000, [2, 100], 5, Status.WARN),  # the log ended where the consumer is a moment ago: give it time
        (3_000, [3, 100], 5, Status.WARN),
        (3_000, [4, 100], 5, Status.STOP),
        (3_000, [100], 0, Status.OK),  # nothing is left to read
    ],
)
def test_a_consumer_that_does_not_commit_any_more(
    silent_ms: int, recent_ends: list[int], current_lag: int, expected: Status
) -> None:
    kept = commits((1, 5), (2, 5), (3, 6))
    assert partition_status(kept, recent_ends, current_lag, just_after(kept) + silent_ms) is expected


def test_stop_comes_before_everything_else() -> None:
    kept = commits((9, 0), (5, 5), (5, 5))  # zero lag once, and back: both are checked later
    assert partition_status(kept, [100], 5, just_after(kept) + 60 * SECOND) is Status.STOP


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([], Status.OK),
        ([Status.OK, Status.OK], Status.OK),
        ([Status.OK, Status.WARN], Status.WARN),
        ([Status.STOP, Status.OK], Status.ERR),
        ([Status.STALL, Status.WARN], Status.ERR),
        ([Status.REWIND], Status.ERR),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(partitions: list[Status], expected: Status) -> None:
    assert group_status(partitions) is expected


@pytest.mark.parametrize(
    ("part", "whole", "printed"),
    [(7, 10, "0.7"), (1, 3, "0.33333334"), (2, 3, "0.6666667"), (10, 10, "1.0"), (0, 4, "0.0"), (0, 0, "0.0")],
)
def test_shares_are_printed_as_single_precision(part: int, whole: int, printed: str) -> None:
    assert repr(share(part, whole)) == printed
