"""Which failure cases a log tells of: known words, with the last line in which each stood.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ottla.operations.doctor.cases import CASES

LINE_LENGTH_MAX = 300
SHRUNK = "F3"
# One line of our brokers tells of both: followers that fall out, and those that have caught up.
IN_SYNC = re.compile(r"in sync are \[([\d, ]*)\] now, before \[([\d, ]*)\]")


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
        found = {name for sign, name in words if sign in lower}
        if is_shrinking(line):
            found.add(SHRUNK)
        for name in found:
            counts[name] = counts.get(name, 0) + 1
            last[name] = line.strip()[:LINE_LENGTH_MAX]
    return [Sign(name, counts[name], last[name]) for name in CASES if name in counts]


def is_shrinking(line: str) -> bool:
    """Whether a line of a broker says that a replica is no longer in sync."""
    match = IN_SYNC.search(line)
    if match is None:
        return False
    after, before = ({word.strip() for word in part.split(",")} for part in match.groups())
    return not before - {""} <= after
