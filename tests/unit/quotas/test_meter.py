"""Rates over windows: which client is throttled, for how long, and the bounds that always hold."""

from __future__ import annotations

import heapq
from collections import deque
from random import Random

import pytest

from ottla.quotas.meter import UNBOUNDED, Meter, TokenBucket


def greedy(
    meter: Meter, sizes: list[float], until_ms: int, connections: int = 1, seed: int = 0
) -> list[tuple[int, float]]:
    """Clients that send as soon as nothing holds them up: when, and how much."""
    random = Random(seed)
    free = [(0, random.random()) for _ in range(connections)]
    used: list[tuple[int, float]] = []
    while (now_ms := free[0][0]) < until_ms:
        wait_ms = meter.throttle_time_ms(now_ms)
        if wait_ms == 0:
            size = random.choice(sizes)
            used.append((now_ms, size))
            wait_ms = meter.record(size, now_ms)
        heapq.heapreplace(free, (now_ms + wait_ms + random.choice((0, 0, 1, 3)), random.random()))
    return used


def most_in(used: list[tuple[int, float]], span_ms: int) -> float:
    """The most in any span of so long."""
    inside: deque[tuple[int, float]] = deque()
    total = most = 0.0
    for when, size in used:
        inside.append((when, size))
        total += size
        while inside[0][0] <= when - span_ms:
            total -= inside.popleft()[1]
        most = max(most, total)
    return most


def test_a_beginner_may_use_at_once_what_the_windows_allow() -> None:
    meter = Meter(100, 11, 1000)
    assert meter.record(1_100, 5_000) == 0
    assert meter.record(1, 5_000) == 11_010  # 1,101 take so long
    assert meter.rate(5_000) == pytest.approx(110.1)


def test_a_client_below_its_bound_never_waits() -> None:
    meter = Meter(100, 11, 1000)
    assert all(meter.record(99, second * 1000) == 0 for second in range(100))
    assert meter.rate(99_000) == pytest.approx(99, rel=0.11)


@pytest.mark.parametrize("sizes", [[10.0], [100.0], [1.0, 250.0], [700.0], [5_000.0]])
@pytest.mark.parametrize("connections", [1, 30])
def test_no_client_gets_more_than_the_rule_and_one_request(sizes: list[float], connections: int) -> None:
    used = greedy(Meter(1_000, 11, 1000), sizes, 60_000, connections)
    assert most_in(used, 10_000) <= 1.1 * 10_000 + max(sizes)
    assert 0.97 * 60_000 - max(sizes) <= sum(size for _, size in used) <= 1.03 * 60_000 + max(sizes)


def test_who_was_idle_may_burst_again() -> None:
    meter = Meter(100, 11, 1000)
    assert meter.record(1_200, 0) == 12_000
    assert meter.record(100, 12_000) == 1_000
    assert meter.record(100, 13_500) == 500  # half a second's credit
    assert meter.record(1_100, 14_000 + 11_000) == 0


def test_a_late_burst_of_a_slow_user_stays_within_ten_windows() -> None:
    meter = Meter(1_000, 11, 1000)
    used: list[tuple[int, float]] = []
    for second in range(20):
        assert meter.record(200, second * 1000) == 0
        used.append((second * 1000, 200.0))
    now_ms = 20_000
    while now_ms < 60_000:
        used.append((now_ms, 100.0))
        now_ms += meter.record(100, now_ms)
    assert most_in(used, 10_000) <= 11_100


def test_a_large_request_is_charged_with_a_bounded_wait() -> None:
    meter = Meter(100, 11, 1000)
    assert meter.record(5_000, 0) == 50_000
    assert meter.throttle_time_ms(20_000) == 30_000
    assert Meter(100, 11, 1000).record(1e12, 0) == 110_000


def test_another_bound_counts_at_once() -> None:
    meter = Meter(100, 11, 1000)
    assert meter.record(5_000, 0) > 0
    meter.change(1_000, 11, 1000)
    assert meter.throttle_time_ms(1) == 0
    assert meter.record(1, 1) == 0
    assert meter.record(6_001, 2) > 0


def test_windows_are_as_long_and_as_many_as_they_are_set() -> None:
    assert Meter(100, 3, 1000).record(301, 0) > 0
    assert Meter(100, 3, 1000).record(300, 0) == 0
    assert Meter(100, 3, 2000).record(600, 0) == 0
    assert Meter(100, 3, 2000).record(601, 0) > 0
    assert Meter(100, 1, 1000).record(100, 0) == 0


def test_who_is_only_observed_never_waits() -> None:
    meter = Meter(UNBOUNDED, 11, 1000)
    assert meter.record(1e15, 0) == 0
    assert meter.rate(0) == 1e14
    assert meter.left(0) == UNBOUNDED


def test_the_highest_rate_of_the_last_hour_is_remembered() -> None:
    meter = Meter(UNBOUNDED, 11, 1000)
    for second in range(20):
        meter.record(1_000, second * 1000)
    assert meter.peak(60_000) == pytest.approx(1_000, rel=0.11)
    meter.record(1, 1_800_000)
    assert meter.peak(1_900_000) == pytest.approx(1_000, rel=0.11)
    for minute in range(31, 200):
        meter.record(1, minute * 60_000)
    assert meter.peak(200 * 60_000) < 1


def test_a_bucket_is_overdrawn_by_one_change_and_fills_again() -> None:
    bucket = TokenBucket(2, 11, 1000)
    assert bucket.tokens(0) == 22
    assert bucket.record(20, 0) == 0
    assert bucket.record(10, 0) == 4_000
    assert bucket.throttle_time_ms(3_000) == 1_000
    assert bucket.throttle_time_ms(4_000) == 0
    assert bucket.tokens(1_000_000) == 22
