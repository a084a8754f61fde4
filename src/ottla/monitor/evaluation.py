"""What the commits of a group say about it: the rules of LinkedIn's Burrow, in Burrow's order. Pure.

A partition is judged by its last commits (ten, unless told otherwise), by the last ends of its log and by the lag now:

1. Nothing is behind: OK, whatever was before.
2. The last commit is longer ago than the kept ones span, and the consumer was not at the end recently: STOP.
3. Some kept commit found no lag: OK, the consumer does get to the end.
4. An offset went back: REWIND. 5. No offset changed: STALL. 6. The lag never fell: WARN. Otherwise OK.

A group is as bad as its worst partition, where STOP, STALL and REWIND all count as ERR. A lag that nobody knows (of a
commit from before the monitor looked) proves nothing: it is neither zero nor falling.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple


class Status(IntEnum):
    """A verdict; the numbers are Burrow's, as its metrics show them. NOTFOUND and ERR are of groups only."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


class Commit(NamedTuple):
    """One kept commit; `order` is the offset of its record in `__consumer_offsets`."""

    offset: int
    timestamp_ms: int
    lag: int | None
    order: int
    observed_ms: int = 0  # when the monitor read it


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition that a group follows; `start` and `end` are the oldest and the newest kept commit."""

    topic: str
    partition: int
    owner: str
    client_id: str
    status: Status
    start: Commit | None
    end: Commit | None
    current_lag: int
    complete: float  # the share of the commits to keep that were seen
    lag_ms: int | None = None  # how old the first record is that is not committed; None: nobody knows
    is_lag_older: bool = False  # it is at least that old: it was there before the monitor looked


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """A group; `complete` is the share of its partitions of which all commits to keep were seen."""

    cluster: str
    group: str
    status: Status
    complete: float
    partitions: tuple[PartitionVerdict, ...]
    maxlag: PartitionVerdict | None
    totallag: int
    at_ms: int  # when the numbers were true

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def lag_ms(self) -> int | None:
        """Of the partition that is furthest behind."""
        known = [item.lag_ms for item in self.partitions if item.lag_ms is not None]
        return max(known, default=None)


def partition_status(commits: Sequence[Commit], recent_ends: Iterable[int], current_lag: int, now_ms: int) -> Status:
    """`commits` are the kept ones, oldest first; `recent_ends` the ends of the log at the last few looks."""
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
    if all(after >= before for before, after in pairwise(known)):
        return Status.WARN
    return Status.OK


def group_status(partitions: Iterable[Status]) -> Status:
    return min(max(partitions, default=Status.OK), Status.ERR)


@lru_cache(1_000)
def share(part: int, whole: int) -> float:
    """A fraction as Burrow prints it: the shortest number that is the same in single precision."""
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
