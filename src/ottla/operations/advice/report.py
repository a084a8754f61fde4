"""What advice is, and what was looked at for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Advice(NamedTuple):
    """One change that is worth it: the figure it rests on, what to set, and what that brings.

    `estimates` are the numbers of `brings`, for programs, and for the tests that follow the advice.
    """

    rule: str
    seen: str
    change: str
    brings: str
    estimates: Mapping[str, float]


class Figure(NamedTuple):
    """Something that was looked at."""

    name: str
    value: str


class Report(NamedTuple):
    """All that is told about one topic, group or client; `unknown` says what could not be looked at, and why."""

    subject: str
    figures: Sequence[Figure]
    advice: Sequence[Advice]
    unknown: Sequence[str] = ()


def number(value: float) -> str:
    """As people read it: three digits are enough."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"
