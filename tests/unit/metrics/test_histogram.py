"""Percentiles from buckets: close enough, never absurd."""

import random

import pytest

from ottla.metrics.histogram import SIZES, TIMES_NS, Histogram, deviation, quantile


def filled(values: list[int], bounds: list[int] = TIMES_NS) -> Histogram:
    histogram = Histogram(bounds)
    for value in values:
        histogram.add(value)
    return histogram


def test_a_percentile_is_wrong_by_a_fifth_at_most() -> None:
    generator = random.Random(7)
    values = sorted(int(generator.lognormvariate(11, 1)) + 8_192 for _ in range(20_000))
    histogram = filled(values)
    for share in (0.5, 0.75, 0.95, 0.99):
        assert quantile(TIMES_NS, histogram.counts, share) == pytest.approx(values[int(share * 20_000)], rel=0.2)


def test_count_sum_smallest_and_largest_are_exact() -> None:
    histogram = filled([5, 70_000, 3, 2**40])
    assert (histogram.total, histogram.sum) == (4, 5 + 70_000 + 3 + 2**40)
    assert (histogram.smallest, histogram.largest) == (3, 2**40)


def test_every_value_falls_into_exactly_one_bucket() -> None:
    edges = [edge + step for edge in SIZES for step in (-1, 0, 1)]
    assert sum(filled(edges, SIZES).counts) == len(edges)
    assert filled([SIZES[0]], SIZES).counts[1] == 1, "a bound belongs to the bucket above it"


def test_an_empty_histogram_says_zero() -> None:
    assert quantile(TIMES_NS, Histogram(TIMES_NS).counts, 0.99) == 0.0
    assert deviation(TIMES_NS, Histogram(TIMES_NS).counts) == 0.0


def test_the_deviation_of_equal_values_is_nothing() -> None:
    assert deviation(TIMES_NS, filled([100_000] * 50).counts) == 0.0
