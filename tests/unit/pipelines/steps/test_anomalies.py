"""Verdicts on values: unusual ones, missing history, and values that are no numbers."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from ottla.pipelines.steps.anomalies import SCORE_MAX, Method, ScoringRules, score_value

BOTH: list[Method] = ["robust", "ewma"]


def _warm(rules: ScoringRules, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    history: list[float] = []
    for _ in range(rules.history):
        score_value(rng.gauss(20, 1), history, rules)
    return history


@pytest.mark.parametrize("method", BOTH)
def test_a_value_far_from_the_others_is_an_anomaly(method: Method) -> None:
    rules = ScoringRules(method)
    for value, verdict in ((20.5, "normal"), (35.0, "anomaly"), (5.0, "anomaly")):
        made = score_value(value, _warm(rules), rules)
        assert made.verdict == verdict
        assert made.expected == pytest.approx(20, abs=0.5)
        assert made.score is not None
        assert (made.score > 0) == (value > 20)


@pytest.mark.parametrize("method", BOTH)
def test_there_is_no_verdict_before_enough_was_seen(method: Method) -> None:
    history: list[float] = []
    rules = ScoringRules(method, warm_up=3, history=10)
    assert [score_value(value, history, rules).verdict for value in (1, 2, 3, 2)] == ["warming up"] * 3 + ["normal"]


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_gets_no_verdict_and_no_place_in_the_history(
    method: Method, value: float | None
) -> None:
    rules = ScoringRules(method)
    history = _warm(rules)
    before = list(history)
    assert score_value(value, history, rules) == (None, None, "no value")
    assert history == before


@pytest.mark.parametrize("method", BOTH)
def test_values_that_never_differ_make_the_first_other_one_an_anomaly(method: Method) -> None:
    rules = ScoringRules(method, warm_up=2, history=10)
    history: list[float] = []
    for _ in range(10):
        score_value(7.0, history, rules)
    assert score_value(7.0, list(history), rules) == (0.0, 7.0, "normal")
    assert score_value(7.1, list(history), rules) == (SCORE_MAX, 7.0, "anomaly")


@pytest.mark.parametrize("method", BOTH)
def test_enormous_values_break_nothing(method: Method) -> None:
    rules = ScoringRules(method, warm_up=2, history=5)
    history: list[float] = []
    for value in (1e308, -1e308, 1e308, -1e308, 1e308, 0.0, 1.0):
        made = score_value(value, history, rules)
        assert made.score is None or math.isfinite(made.score)
    assert all(map(math.isfinite, history))


def test_the_robust_score_is_the_modified_z_score() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    history = list(values)
    made = score_value(10.0, history, ScoringRules(warm_up=2, history=5))
    spread = statistics.median(abs(each - 4.0) for each in values) * 1.4826
    assert made.score == pytest.approx((10 - 4) / spread)
    assert history == [2.0, 4.0, 8.0, 16.0, 10.0], "the oldest is forgotten"


def test_a_level_that_stays_becomes_normal() -> None:
    for method in BOTH:
        rules = ScoringRules(method, warm_up=5, history=20)
        history = _warm(rules)
        verdicts = [score_value(30 + at % 3, history, rules).verdict for at in range(100)]
        assert verdicts[0] == "anomaly"
        assert verdicts[-1] == "normal"


def test_values_with_an_overflowing_sum_are_scored() -> None:
    """Most values are equal, so the mean of the distances counts."""
    rules = ScoringRules(warm_up=2)
    history = [5.0] * 7 + [1e308, 1e308, 1e308]
    assert score_value(5.0, history, rules) == (0.0, 5.0, "normal")
    assert score_value(1e308, history, rules).verdict == "normal"
