"""Which failure cases a log tells of: known words, with the last line in which each stood.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.cli.doctor_cases import CASES

LINE_LENGTH_MAX = 300


class Sign(NamedTuple):
    """A case that a log tells of."""

    case: str
    times: int
    last_line: str


def signs_in(lines: Iterable[str]) -> list[Sign]:
    """The cases in the order of their numbers."""
    words = [(sign.lower(), name) for name, case in CASES.items() for sign in case.signs]
    counts: dict[str, int] = {}
    last: dict[str, str] = {}
    for line in lines:
        lower = line.lower()
        for name in {name for sign, name in words if sign in lower}:
            counts[name] = counts.get(name, 0) + 1
            last[name] = line.strip()[:LINE_LENGTH_MAX]
    return [Sign(name, counts[name], last[name]) for name in CASES if name in counts]
