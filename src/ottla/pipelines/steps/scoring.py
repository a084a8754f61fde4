"""How unusual is a value, given those before it? Pure functions on a bounded history.

robust: distance from the median of the last values, in units of their median absolute deviation (Iglewicz and Hoaglin's
modified z-score); half of the history may be outliers before it is led astray.
ewma: distance from an exponentially weighted mean, in weighted standard deviations; it follows a drift sooner.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import Literal, NamedTuple

MAD_TO_DEVIATION = 1.4826  # for normally distributed values
MEAN_TO_DEVIATION = 1.2533  # of the mean absolute deviation, used where more than half of the values are equal
SCORE_MAX = 1e6

Method = Literal["robust", "ewma"]
Verdict = Literal["normal", "anomaly", "warming up", "no value"]


class Score(NamedTuple):
    score: float | None
    expected: float | None
    verdict: Verdict


class Rules(NamedTuple):
    """`history` is the number of values that count; no verdict before `warm_up` of them."""

    method: Method = "robust"
    threshold: float = 3.5
    history: int = 100
    warm_up: int = 20


def judge(value: float | None, history: list[float], rules: Rules) -> Score:
    """The verdict on a value; it is added to the history, which stays within its bound."""
    if value is None or not math.isfinite(value):
        return Score(None, None, "no value")
    seen = int(history[0]) if rules.method == "ewma" and history else len(history)
    scored = _robust(value, history) if rules.method == "robust" else _weighted(value, history)
    _remember(value, history, rules)
    if seen < rules.warm_up or scored is None:
        return Score(None, None, "warming up")
    score, expected = scored
    return Score(score, expected, "anomaly" if abs(score) >= rules.threshold else "normal")


def _robust(value: float, history: list[float]) -> tuple[float, float] | None:
    if not history:
        return None
    middle = median(history)
    distances = [abs(each - middle) for each in history]
    spread = median(distances) * MAD_TO_DEVIATION or _mean(distances) * MEAN_TO_DEVIATION
    return _distance(value, middle, spread), middle


def _mean(distances: list[float]) -> float:
    try:
        return fmean(distances)
    except OverflowError:  # their sum is no double, their mean is
        return math.fsum(each / len(distances) for each in distances)


def _weighted(value: float, history: list[float]) -> tuple[float, float] | None:
    """The history of ewma is: how many values, their mean, their variance."""
    if not history:
        return None
    _, mean, variance = history
    return _distance(value, mean, math.sqrt(variance)), mean


def _distance(value: float, expected: float, spread: float) -> float:
    away = value - expected
    if away == 0:
        return 0.0
    if spread == 0 or not math.isfinite(away) or not math.isfinite(spread):
        return math.copysign(SCORE_MAX, away)
    return max(-SCORE_MAX, min(SCORE_MAX, away / spread))


def _remember(value: float, history: list[float], rules: Rules) -> None:
    if rules.method == "robust":
        history.append(value)
        del history[: -rules.history]
        return
    if not history:
        history[:] = [1.0, value, 0.0]
        return
    count, mean, variance = history
    weight = max(2 / (rules.history + 1), 1 / (count + 1))  # a plain mean at first
    if count >= rules.warm_up and variance > 0:  # an outlier moves the mean no further than the threshold
        reach = rules.threshold * math.sqrt(variance)
        value = max(mean - reach, min(mean + reach, value))
    away = value - mean
    changed = [count + 1, mean + weight * away, (1 - weight) * (variance + weight * away * away)]
    if all(map(math.isfinite, changed)):
        history[:] = changed
