"""Advice for topics, groups and clients, and the figures that it rests on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Advice(NamedTuple):
    """One worthwhile change: the observation, the setting to change, and the expected effect.

    `estimates` holds the numbers in `effect`, for programs and for tests that apply the advice.
    """

    rule: str
    observation: str
    change: str
    effect: str
    estimates: Mapping[str, float]


class Figure(NamedTuple):
    """A measured value."""

    name: str
    value: str


class Report(NamedTuple):
    """The advice for one topic, group or client; `unknown` lists what could not be measured, and why."""

    subject: str
    figures: Sequence[Figure]
    advice: Sequence[Advice]
    unknown: Sequence[str] = ()


def number_text(value: float) -> str:
    """A number with about three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"
