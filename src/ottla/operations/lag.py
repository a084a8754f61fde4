"""How far a reader is behind in a partition, in records and in time. Pure: group_lag.py asks the cluster.

Rules:
1. What is not known is None, never 0: a partition without a commit (its reader's auto.offset.reset decides), without a
   leader at the moment, or whose first unread record has no timestamp.
2. `offsets` is the number of Kafka's own tools, end - committed. It counts records that have aged out, and is below
   zero where a log ends before the commit, because its topic was made anew.
3. `records` is what is there to be read: nothing that has aged out, and never below zero. Where the start of the log
   is not known, it counts as if nothing had aged out.
4. Time behind is the age of the first record that was not read, by the clock of whoever stamped it (the producer, or
   the log with message.timestamp.type=LogAppendTime). Nothing left to read is 0 seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class PartitionLag(NamedTuple):
    """One partition as a reader sees it: where it goes on, and where the log begins and ends."""

    committed: int | None
    end: int | None
    start: int | None = None
    seconds: float | None = None  # see seconds_behind()

    @property
    def offsets(self) -> int | None:
        """As Kafka's tools print it."""
        return None if self.committed is None or self.end is None else self.end - self.committed

    @property
    def first_unread(self) -> int | None:
        """The offset from which there is something to read."""
        return self.committed if self.committed is None or self.start is None else max(self.committed, self.start)

    @property
    def records(self) -> int | None:
        """How many offsets are left to be read."""
        first = self.first_unread
        return None if first is None or self.end is None else max(0, self.end - first)


class TotalLag(NamedTuple):
    """The lag of a whole group: the sum of what is known, None if nothing is, and in how many partitions it is not."""

    records: int | None
    unknown: int
    seconds: float | None  # of the partition that is furthest behind


def total_lag(lags: Iterable[PartitionLag]) -> TotalLag:
    found = list(lags)
    records = [lag.records for lag in found if lag.records is not None]
    seconds = [lag.seconds for lag in found if lag.seconds is not None]
    return TotalLag(sum(records) if records else None, len(found) - len(records), max(seconds, default=None))


def seconds_behind(records: int | None, first_time_ms: int | None, now_ms: int) -> float | None:
    """The age of the first unread record, whose timestamp this is; a record from the future is not behind."""
    if records == 0:
        return 0.0
    if records is None or first_time_ms is None or first_time_ms < 0:
        return None
    return max(0, now_ms - first_time_ms) / 1000
