"""Rates as Kafka's meters give them, with the time as an argument."""

import math
import random

import pytest

from ottla.metrics.histogram import SIZES, TIMES_NS, Histogram, deviation, quantile
from ottla.metrics.meters import Meter, MeterRegistry, RecentHistogram, WindowedRate


def test_the_first_rate_is_taken_as_it_is() -> None:
    meter = Meter(0.0)
    meter.tick(94, 5.0)
    assert (meter.one_minute, meter.five_minutes, meter.fifteen_minutes) == (18.8, 18.8, 18.8)


def test_later_rates_move_with_the_weights_of_the_load_averages() -> None:
    meter = Meter(0.0)
    meter.tick(100, 5.0)
    meter.tick(100, 5.0)
    assert meter.one_minute == pytest.approx(20 * math.exp(-5 / 60))
    assert meter.fifteen_minutes == pytest.approx(20 * math.exp(-5 / 900))


def test_a_rate_dies_out() -> None:
    meter = Meter(0.0)
    meter.tick(100, 5.0)
    for _ in range(1000):
        meter.tick(100, 5.0)
    assert meter.one_minute == 0.0


def test_the_mean_is_over_the_whole_life() -> None:
    assert Meter(10.0).mean(100, 60.0) == 2.0
    assert Meter(10.0).mean(100, 10.0) == 0.0


def test_a_book_forgets_what_is_gone() -> None:
    book = MeterRegistry(0.0)
    book.note(("BytesInPerSec", "orders"), 50, 5.0)
    assert book.get(("BytesInPerSec", "orders")).one_minute == 10.0
    book.forget(lambda key: key[1] == "orders")
    assert len(book) == 0
    assert book.get(("BytesInPerSec", "orders")).one_minute == 0.0


def test_a_windowed_rate_counts_the_last_windows_only() -> None:
    rate = WindowedRate(samples=2, window_s=30.0)
    rate.tick(0, 0.0)
    assert rate.rate(60, 10.0) == 2.0, "the window before counts as whole, so that a first value is no huge rate"
    rate.tick(600, 30.0)
    rate.tick(600, 60.0)
    assert rate.rate(600, 70.0) == 0.0, "the first window is forgotten"


def test_percentiles_are_those_of_the_last_minutes() -> None:
    histogram = Histogram(TIMES_NS)
    recent = RecentHistogram(histogram)
    for _ in range(100):
        histogram.add(50_000_000)
    for minute in range(7):
        recent.tick(minute * 60.0)
        histogram.add(20_000)
    assert sum(recent.counts()) == 5
    assert histogram.total == 107


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
