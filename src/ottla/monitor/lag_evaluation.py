"""Evaluation of consumer lag: the rules of LinkedIn's Burrow, and our own. Pure.

Burrow evaluates a partition by its last commits (ten by default), the last log end offsets, and the current lag:
1. No lag now: OK.
2. The last commit is older than the span of the kept commits, and the consumer was not at the end recently: STOP.
3. Any kept commit had no lag: OK.
4. An offset decreased: REWIND. 5. No offset changed: STALL. 6. The lag never decreased: WARN. Otherwise OK.

A group is as bad as its worst partition, where STOP, STALL and REWIND count as ERR. An unknown lag (of a commit from
before the monitor's first sample) counts neither as zero nor as rising or falling.
Burrow compares the lags of single commits, each with the last end offset sampled before it. A lag above what is written
between two samples goes unnoticed: a commit just before a sample seems to have a smaller lag than one just after it. So
pages, alerts and `ottla doctor` use our own rules:
1. No lag now: OK.
2. The committed offset has not changed for more than a minute while unread records exist: STOP if the last commit is
   that old, too, and older than three usual intervals; STALL if the same offset is committed repeatedly.
3. An offset decreased, and no kept commit had zero lag: REWIND.
4. The lag rises from minute to minute, or from commit to commit (LagTrend in operations/lag.py): WARN. Otherwise OK.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ottla.operations.lag import STUCK_MS, LagTrend

USUAL_INTERVALS = 3


class Status(IntEnum):
    """A status; the values are those of Burrow's metrics. NOTFOUND and ERR apply only to groups."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


class Commit(NamedTuple):
    """A kept commit; `order` is the offset of its record in `__consumer_offsets`."""

    offset: int
    timestamp_ms: int
    lag: int | None
    order: int
    observed_ms: int = 0  # when the monitor read it


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition of a group; `start` and `end` are the oldest and the newest kept commit."""

    topic: str
    partition: int
    owner: str
    client_id: str
    status: Status
    start: Commit | None
    end: Commit | None
    current_lag: int
    complete: float  # share of the intervals that have a commit
    lag_ms: int | None = None  # age of the first uncommitted record; None: unknown
    is_lag_older: bool = False  # a lower bound: the record is older than the first sample
    ottla_status: Status = Status.OK


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """A group; `complete` is the share of its partitions with a complete history."""

    cluster: str
    group: str
    status: Status
    complete: float
    partitions: tuple[PartitionVerdict, ...]
    maxlag: PartitionVerdict | None
    totallag: int
    at_ms: int  # when the figures were valid
    ottla_status: Status = Status.OK

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """The lag of the partition that is furthest behind."""
        known = [item.lag_ms for item in self.partitions if item.lag_ms is not None]
        return max(known, default=None)


def partition_status(commits: Sequence[Commit], recent_ends: Iterable[int], current_lag: int, now_ms: int) -> Status:
    """Burrow's status; `commits` are oldest first, `recent_ends` the last sampled end offsets."""
    if current_lag <= 0 or not commits:
        return Status.OK
    if _has_stopped(commits, now_ms) and not _was_at_end(commits, recent_ends):
        return Status.STOP
    if any(commit.lag == 0 for commit in commits):
        return Status.OK
    if any(after.offset < before.offset for before, after in pairwise(commits)):
        return Status.REWIND
    if all(after.offset == before.offset for before, after in pairwise(commits)):
        return Status.STALL
    known = [commit.lag for commit in commits if commit.lag is not None]
    if len(known) > 1 and all(after >= before for before, after in pairwise(known)):
        return Status.WARN
    return Status.OK


def ottla_status(commits: Sequence[Commit], trend: LagTrend, current_lag: int, now_ms: int) -> Status:
    """Our own status; see the module docstring."""
    if current_lag <= 0 or not commits:
        return Status.OK
    if trend.is_stuck(now_ms):
        usual_ms = (commits[-1].timestamp_ms - commits[0].timestamp_ms) // max(1, len(commits) - 1)
        if now_ms - commits[-1].timestamp_ms > max(STUCK_MS, USUAL_INTERVALS * usual_ms):
            return Status.STOP
        if len(commits) > 1 and commits[-1].offset == commits[-2].offset:
            return Status.STALL
    went_back = any(after.offset < before.offset for before, after in pairwise(commits))
    if went_back and all(commit.lag != 0 for commit in commits):
        return Status.REWIND
    return Status.WARN if trend.is_falling_behind else Status.OK


def group_status(partitions: Iterable[Status]) -> Status:
    return min(max(partitions, default=Status.OK), Status.ERR)


@lru_cache(1_000)
def share(part: int, whole: int) -> float:
    """A fraction as Burrow prints it: the shortest number with the same single precision value."""
    if whole <= 0:
        return 0.0
    wanted = _single(part / whole)
    for digits in range(1, 10):
        text = f"{wanted:.{digits}g}"
        if _single(float(text)) == wanted:
            return float(text)
    return wanted


def _has_stopped(commits: Sequence[Commit], now_ms: int) -> bool:
    """Burrow's clock has whole seconds."""
    first, last = commits[0].timestamp_ms, commits[-1].timestamp_ms
    return now_ms // 1000 * 1000 - last > last - first


def _was_at_end(commits: Sequence[Commit], recent_ends: Iterable[int]) -> bool:
    last = commits[-1].offset
    return any(end <= last for end in recent_ends)


def _single(number: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found
