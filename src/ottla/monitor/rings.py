"""What is remembered of one partition: its newest commits by a group, and where its log ended when. Pure, bounded."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from ottla.monitor.evaluation import Commit

SAMPLES_MAX: Final = 64  # of a log's ends: a history whose older half gets thinner


class CommitRing:
    """The newest commits of one group for one partition, oldest first, as Burrow keeps them.

    Rules:
    1. Commits that follow one another closer than the minimum distance share a place: the newer offset, the older time.
       With the newer time a consumer that commits all the time would never get a second place.
    2. A record that was seen before changes nothing. One that stands before the last one in the log and is younger
       belongs to a log that was begun anew.
    """

    __slots__ = ("commits", "intervals")

    def __init__(self, intervals: int) -> None:
        self.intervals = intervals
        self.commits: list[Commit] = []

    def add(self, commit: Commit, min_distance_ms: int) -> bool:
        """Whether it was new."""
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

    def end_is_known(self, end: int, is_recent: bool) -> None:
        """The first look at the log: what the newest commit left, if it is known at all.

        Nothing left is nothing left whenever the commit was; something may have come after an old commit.
        """
        last = self.commits[-1]
        lag = max(0, end - last.offset)
        if last.lag is None and (is_recent or lag == 0):
            self.commits[-1] = last._replace(lag=lag)

    def __repr__(self) -> str:
        return f"<CommitRing {len(self.commits)}/{self.intervals}: {self.commits[-1] if self.commits else 'empty'}>"


class EndTimes:
    """Where one log ended when: a past whose older half gets thinner."""

    __slots__ = ("_ends", "_times_ms")

    def __init__(self) -> None:
        self._ends = array("q")
        self._times_ms = array("q")

    def add(self, end: int, now_ms: int) -> bool:
        """Whether it goes on from what was known; False: another log, or a clock that was set back."""
        ends, times = self._ends, self._times_ms
        goes_on = not ends or (end >= ends[-1] and now_ms >= times[-1])
        if not goes_on:
            del ends[:], times[:]
        if len(ends) >= 2 and ends[-1] == end == ends[-2]:
            times[-1] = now_ms  # nothing came since: only the first and the last moment of that count
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
        """When the log was looked at last."""
        return self._times_ms[-1]

    @property
    def first_ms(self) -> int:
        return self._times_ms[0]

    def lag_ms(self, offset: int, now_ms: int) -> tuple[int, bool]:
        """How long the record at `offset` has been there, and whether it is older than anything remembered here.

        Between two looks records are taken to have come evenly.
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

    def grown_since(self, since_ms: int) -> int:
        """How many records have come since then, as far back as is remembered."""
        at = max(0, bisect_right(self._times_ms, since_ms) - 1)
        return self.end - self._ends[at]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.end if self._ends else 'empty'}, {len(self._ends)} samples>"


class EndHistory(EndTimes):
    """The same, and the last few looks for the rules."""

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
