"""What an alert rule says, as plain values."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple


class Kind(StrEnum):
    """What a rule looks at."""

    VERDICT = "verdict"
    LAG = "lag"
    LAG_SECONDS = "lag-seconds"
    LEADERLESS = "leaderless"
    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    BROKER_GONE = "broker-gone"
    CONTROLLER_GONE = "controller-gone"
    DISK = "disk"
    PIPELINE = "pipeline"
    DEAD_LETTERS = "dead-letters"


class Rule(NamedTuple):
    """One rule; patterns are those of file names (`*`, `?`, `[a-z]`)."""

    name: str
    kind: Kind
    channels: tuple[str, ...] = ()
    for_ms: int = 0
    cluster: str = "*"
    group: str = "*"
    topic: str = "*"
    pipeline: str = "*"
    statuses: tuple[str, ...] = ("ERR",)
    above: float = 0.0  # records, or seconds
    below_share: float = 0.1  # of a disk that is left
    below_bytes: int = 0
    within_ms: int = 300_000  # of dead letters


class Silence(NamedTuple):
    """For whom nothing is sent for a while."""

    rule: str = "*"
    cluster: str = "*"
    subject: str = "*"
    begin: datetime | None = None
    end: datetime | None = None

    def covers(self, rule: str, cluster: str, subject: str, now: datetime) -> bool:
        if (self.begin is not None and now < self.begin) or (self.end is not None and now >= self.end):
            return False
        pairs = ((rule, self.rule), (cluster, self.cluster), (subject, self.subject))
        return all(fnmatchcase(name, pattern) for name, pattern in pairs)
