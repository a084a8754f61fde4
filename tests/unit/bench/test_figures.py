"""Statistics of the benchmark."""

import pytest
from bench.figures import latency_figures, median_or_none, percentile, ratio


def test_a_percentile_is_the_value_at_the_nearest_rank() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert percentile(ordered, 0.5) == 50
    assert percentile(ordered, 0.99) == 99
    assert percentile(ordered, 0.999) == 100


def test_every_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.001) == percentile([7.0], 1.0) == 7.0


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_latencies_are_told_in_milliseconds_whatever_their_order() -> None:
    figures = latency_figures([3_000_000, 1_000_000, 2_000_000])
    assert (figures["p50_ms"], figures["max_ms"], figures["samples"]) == (2.0, 3.0, 3.0)


def test_no_latencies_give_no_figures() -> None:
    assert latency_figures([]) == {}


def test_a_median_passes_over_what_was_not_measured() -> None:
    assert median_or_none([3.0, None, 1.0, 2.0]) == 2.0
    assert median_or_none([None]) is None


def test_a_ratio_needs_both_sides() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(None, 2.0) is None
    assert ratio(3.0, None) is None
    assert ratio(3.0, 0.0) is None
