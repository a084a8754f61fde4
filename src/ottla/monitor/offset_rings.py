"""Bounded history of one partition: the latest commits of a group, and log end offsets over time. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from ottla.monitor.lag_evaluation import Commit
from ottla.operations.lag import LagTrend

SAMPLES_MAX: Final = 64  # of end offsets: the older half is thinned out


class FirstUnreadRecord(NamedTuple):
    """The first record at or after an offset while the log ended at `end`: its time, or None if there
    are only markers.
    """

    offset: int
    end: int
    time_ms: int | None
    is_known: bool = True


class CommitRing:
    """The latest commits of one group in one partition, oldest first, as in Burrow.

    Rules:
    1. A commit within the minimum distance of the previous one replaces it, but keeps its timestamp. With its own
       timestamp a consumer that commits constantly would never fill a second slot.
    2. A record that was read before changes nothing. A smaller record offset with a later timestamp is from a recreated
       topic.
    """

    __slots__ = ("commits", "first_unread", "intervals", "trend")

    def __init__(self, intervals: int) -> None:
        self.intervals = intervals
        self.commits: list[Commit] = []
        self.trend = LagTrend()
        self.first_unread: FirstUnreadRecord | None = None

    @property
    def offset(self) -> int:
        return self.commits[-1].offset

    def add(self, commit: Commit, min_distance_ms: int) -> bool:
        """Add a commit; returns whether it was new."""
        if not self.commits:
            self.commits.append(commit)
            return True
        last = self.commits[-1]
        if commit.order <= last.order and commit.timestamp_ms <= last.timestamp_ms:
            return False
        if commit.timestamp_ms - last.timestamp_ms < min_distance_ms:
            self.commits[-1] = commit._replace(timestamp_ms=last.timestamp_ms)
        else:
            self.commits.append(commit)
            del self.commits[: -self.intervals]
        return True

    def set_first_lag(self, end: int, is_recent: bool) -> None:
        """Set the lag of the newest commit at the first sample of the log, if it can be known.

        A lag of zero holds whenever the commit was made; a larger one only for a recent commit, since records may have
        been added.
        """
        last = self.commits[-1]
        lag = max(0, end - last.offset)
        if last.lag is None and (is_recent or lag == 0):
            self.commits[-1] = last._replace(lag=lag)

    def __repr__(self) -> str:
        return f"<CommitRing {len(self.commits)}/{self.intervals}: {self.commits[-1] if self.commits else 'empty'}>"


class EndOffsetHistory:
    """Log end offsets over time; the older half is thinned out."""

    __slots__ = ("_ends", "_times_ms")

    def __init__(self) -> None:
        self._ends = array("q")
        self._times_ms = array("q")

    def add(self, end: int, now_ms: int) -> bool:
        """Add a sample; returns False if the log was recreated or the clock set back."""
        ends, times = self._ends, self._times_ms
        goes_on = not ends or (end >= ends[-1] and now_ms >= times[-1])
        if not goes_on:
            del ends[:], times[:]
        if len(ends) >= 2 and ends[-1] == end == ends[-2]:
            times[-1] = now_ms  # unchanged: keep only the first and the last sample
            return goes_on
        ends.append(end)
        times.append(now_ms)
        if len(ends) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            del ends[1:half:2], times[1:half:2]
        return goes_on

    @property
    def end(self) -> int:
        return self._ends[-1]

    @property
    def at_ms(self) -> int:
        """The time of the last sample."""
        return self._times_ms[-1]

    @property
    def first_ms(self) -> int:
        return self._times_ms[0]

    def lag_ms(self, offset: int, now_ms: int) -> tuple[int, bool]:
        """The age of the record at `offset`, and whether it is older than the first sample.

        Between two samples the write rate is taken as constant.
        """
        if offset >= self.end:
            return 0, False
        after = bisect_right(self._ends, offset)
        if after == 0:
            return max(0, now_ms - self._times_ms[0]), True
        end, next_end = self._ends[after - 1], self._ends[after]
        time_ms, next_ms = self._times_ms[after - 1], self._times_ms[after]
        came_ms = time_ms + (next_ms - time_ms) * (offset - end) // (next_end - end)
        return max(0, now_ms - came_ms), False

    def prepend(self, offset: int, time_ms: int) -> None:
        """Set the time of a record that is older than the first sample."""
        if self._ends and offset < self._ends[0] and 0 <= time_ms <= self._times_ms[0]:
            self._ends.insert(0, offset)
            self._times_ms.insert(0, time_ms)

    def records_since(self, since_ms: int) -> int:
        """The number of records added since then, as far back as the history reaches."""
        at = max(0, bisect_right(self._times_ms, since_ms) - 1)
        return self.end - self._ends[at]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.end if self._ends else 'empty'}, {len(self._ends)} samples>"


class RecentEndHistory(EndOffsetHistory):
    """The same with the last few samples, for Burrow's rules."""

    __slots__ = ("_intervals", "recent")

    def __init__(self, intervals: int) -> None:
        super().__init__()
        self._intervals = intervals
        self.recent: list[int] = []  # there are thousands of them: a deque takes six times as much

    def add(self, end: int, now_ms: int) -> bool:
        goes_on = super().add(end, now_ms)
        if not goes_on:
            self.recent.clear()
        self.recent.append(end)
        del self.recent[: -self._intervals]
        return goes_on
