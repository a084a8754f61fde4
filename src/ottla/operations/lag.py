"""Consumer lag of a partition, in records and in time, and its trend. Pure: group_lag.py reads the cluster.

Rules for the lag:
1. Unknown is None, never 0: without a commit (auto.offset.reset decides), without a leader, or if the first unread
   record has no timestamp.
2. `offsets` is the lag of Kafka's tools, log end offset - committed offset. It includes expired records, and is
   negative if the log ends before the commit because the topic was recreated.
3. `records` counts what can still be read: no expired records, never negative. If the log start offset is unknown,
   nothing counts as expired.
4. Time lag is the age of the first unread record by its own timestamp (CreateTime or LogAppendTime). It is 0 seconds if
   nothing is left to read.

LagTrend decides whether a group keeps up. A single lag says little: it grows with every write between two commits, and
a group that reads in bursts lags most of the time. So minima are compared: a group that reaches the end has, in every
minute, one sample with a lag of about what is written between two commits. A group that falls behind has none, and its
minimum rises.

Rules for the trend:
1. A point is a sample with committed offset and log end offset of the same moment. Samples closer than POINT_MS share a
   point, which keeps the smallest lag. The older half of the points is thinned out.
2. Falling behind by minima: in the last minute (plus the time between two commits) no sample was below what is written
   in that time; the minimum was in the older half of that minute; and it exceeds the minimum of the time before by
   GROWTH_MS of writes. The same holds over longer times, for groups that fall behind slowly.
3. Falling behind by single commits, for groups that commit rarely: after each of four commits in a row the lag is
   larger, by at least GROWTH_SHARE of what was written in all, and by STEP_SHARE in each step: a group that reads whole
   polls moves unevenly. Three commits within EARLY_MS are enough if nothing older is known and both steps are alike;
   a group that moves only once a minute may reach the end each time. The lag after the commit before them must not be
   larger: bursts almost as long as the commit interval look like that.
4. Stuck: one committed offset for STUCK_MS with unread records all that time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple


class PartitionLag(NamedTuple):
    """The committed offset of a reader, and the range of the log."""

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
        """The first offset that can still be read."""
        return self.committed if self.committed is None or self.start is None else max(self.committed, self.start)

    @property
    def records(self) -> int | None:
        """The number of offsets left to read."""
        first = self.first_unread
        return None if first is None or self.end is None else max(0, self.end - first)


class TotalLag(NamedTuple):
    """The lag of a group: the sum of the known lags (None if none is known), and the number of unknown ones."""

    records: int | None
    unknown: int
    seconds: float | None  # of the partition that is furthest behind


def total_lag(lags: Iterable[PartitionLag]) -> TotalLag:
    found = list(lags)
    records = [lag.records for lag in found if lag.records is not None]
    seconds = [lag.seconds for lag in found if lag.seconds is not None]
    return TotalLag(sum(records) if records else None, len(found) - len(records), max(seconds, default=None))


def seconds_behind(records: int | None, first_time_ms: int | None, now_ms: int) -> float | None:
    """The age of the first unread record. A timestamp in the future counts as 0."""
    if records == 0:
        return 0.0
    if records is None or first_time_ms is None or first_time_ms < 0:
        return None
    return max(0, now_ms - first_time_ms) / 1000


# ---- trend
POINTS_MAX: Final = 48
POINT_MS: Final = 4_000
MINUTE_MS: Final = 60_000  # a group that reaches the end once a minute keeps up
STUCK_MS: Final = 75_000  # a minute, plus the time until its commit is seen
SAMPLE_DELAY_MS: Final = 1_000  # from a commit to the sample of the log
GAP_MS_MIN: Final = 5_000  # between two samples after commits
HISTORY_MS: Final = 50_000  # of history before the last minute
GROWTH_MS: Final = 5_000
LONG_PERIODS_MS: Final = (300_000, 1_500_000)
RARE_COMMIT_MS: Final = 20_000  # between two commits
GROWTH_SHARE: Final = 0.175
STEP_SHARE: Final = 0.1
EARLY_MS: Final = 75_000
STEPS: Final = 3
UNEVENNESS_MAX: Final = 0.15  # of one step, relative to the other
FRESH_MS: Final = 3_000


class LagSample(NamedTuple):
    """A sample: what is left to read, and the log end offset."""

    at_ms: int
    lag: int
    end: int

    @property
    def offset(self) -> int:
        return self.end - self.lag


class LagTrend:
    """The lag trend of one group in one partition."""

    __slots__ = ("_at_end_ms", "_ends", "_is_first_fresh", "_lags", "_offset", "_times_ms", "lagging_since_ms")

    def __init__(self) -> None:
        self._times_ms, self._lags, self._ends = array("q"), array("q"), array("q")
        self._offset = -1  # the newest committed offset
        self._is_first_fresh = False
        self._at_end_ms = 0  # the newest sample with nothing to read
        self.lagging_since_ms: int | None = None  # since when unread records exist behind the newest offset

    def add_sample(self, offset: int, end: int, now_ms: int, commit_ms: int) -> None:
        """Add a sample: log end offset `end` at `now_ms`, newest committed offset `offset` of `commit_ms`."""
        times = self._times_ms
        if times and (now_ms < times[-1] or end < self._ends[-1]):  # the clock was set back, or the log was recreated
            del self._times_ms[:], self._lags[:], self._ends[:]
            self._offset = -1
        lag = max(0, end - offset)
        if not times:
            self._is_first_fresh = abs(now_ms - commit_ms) <= FRESH_MS
        if lag == 0:
            self.lagging_since_ms, self._at_end_ms = None, now_ms
        elif offset != self._offset or self.lagging_since_ms is None:
            self.lagging_since_ms = now_ms
        self._offset = offset
        self._add(now_ms, lag, offset + lag)

    def set_unread_since(self, offset: int, since_ms: int) -> None:
        """Set the age of the record at `offset`. While its transaction was open it was not readable."""
        if offset == self._offset and self.lagging_since_ms is not None:
            self.lagging_since_ms = min(self.lagging_since_ms, max(since_ms, self._at_end_ms))

    def clear_lag(self, offset: int) -> None:
        """Only transaction markers follow `offset`, up to the newest log end offset."""
        if offset == self._offset and self._lags:
            self.lagging_since_ms = None
            self._lags[-1] = 0
            self._ends[-1] = max(self._ends[-1], offset)

    def is_stuck(self, now_ms: int) -> bool:
        return self.lagging_since_ms is not None and now_ms - self.lagging_since_ms > STUCK_MS

    @property
    def is_falling_behind(self) -> bool:
        return bool(self._lags) and self._lags[-1] > 0 and (self._rises_with_commits() or self._rises_in_minima())

    def points(self) -> list[LagSample]:
        return [LagSample(*each) for each in zip(self._times_ms, self._lags, self._ends, strict=True)]

    def _commit_samples(self) -> Iterator[LagSample]:
        """The first sample after each commit, newest first."""
        times, lags, ends = self._times_ms, self._lags, self._ends
        for place in range(len(times) - 1, 0, -1):
            if ends[place] - lags[place] > ends[place - 1] - lags[place - 1]:
                yield LagSample(times[place], lags[place], ends[place])
        if self._is_first_fresh:
            yield LagSample(times[0], lags[0], ends[0])

    def _rises_with_commits(self) -> bool:
        """Rule 3."""
        commits: list[LagSample] = []
        for commit in self._commit_samples():
            if commits and commits[-1].at_ms - commit.at_ms < RARE_COMMIT_MS:
                break
            commits.append(commit)
            if len(commits) == STEPS + 2:
                break
        else:
            if len(commits) == STEPS and commits[0].at_ms - commits[-1].at_ms <= EARLY_MS:
                return _are_alike(_steps(commits))
        if len(commits) <= STEPS or not _is_rising(_steps(commits[: STEPS + 1])):
            return False
        if len(commits) == STEPS + 1:
            return True
        newer, older = commits[-2:]
        return older.lag <= newer.lag + GROWTH_SHARE * (newer.end - older.end)

    def _rises_in_minima(self) -> bool:
        """Rule 2."""
        times, lags, ends = self._times_ms, self._lags, self._ends
        now_ms = times[-1]
        minute = bisect_right(times, now_ms - MINUTE_MS - GAP_MS_MIN)
        before = bisect_left(times, now_ms - MINUTE_MS - GAP_MS_MIN - HISTORY_MS)
        if before == minute:
            return False
        written_per_ms = (ends[-1] - ends[before]) / (now_ms - times[before])
        if min(lags[minute:]) <= written_per_ms * (GAP_MS_MIN + SAMPLE_DELAY_MS):  # fast path for most groups
            return False
        gap_ms = max(GAP_MS_MIN, self._gap_ms(now_ms - MINUTE_MS - GAP_MS_MIN))
        small = written_per_ms * (gap_ms + SAMPLE_DELAY_MS)
        growth = max(1.0, written_per_ms * GROWTH_MS)
        minute_ms = MINUTE_MS + gap_ms + SAMPLE_DELAY_MS
        return self._rises_over(minute_ms, minute_ms + HISTORY_MS, small, growth) or any(
            self._rises_over(length_ms, 2 * length_ms, small, growth)
            and self._rises_now(minute, now_ms - length_ms // 2)
            for length_ms in LONG_PERIODS_MS
        )

    def _rises_over(self, length_ms: int, before_ms: int, small: float, growth: float) -> bool:
        """Whether the minimum of this period exceeds that of the period before, and lies in its older half."""
        times, lags = self._times_ms, self._lags
        now_ms = times[-1]
        begin, oldest = bisect_right(times, now_ms - length_ms), bisect_left(times, now_ms - before_ms)
        if oldest == begin:
            return False
        lowest = min(lags[begin:])
        return (
            lowest > small
            and times[lags.index(lowest, begin)] <= now_ms - length_ms // 2
            and lowest - min(lags[oldest:begin]) >= growth
        )

    def _rises_now(self, minute: int, since_ms: int) -> bool:
        """Whether the lags of the last minute exceed those before; in a group that catches up they do not."""
        since = bisect_left(self._times_ms, since_ms)
        return since < minute and min(self._lags[minute:]) > min(self._lags[since:minute])

    def _gap_ms(self, since_ms: int) -> int:
        """The longest time without a new offset that ended since then or still lasts."""
        later, gap_ms = self._times_ms[-1], 0
        for commit in self._commit_samples():
            gap_ms = max(gap_ms, later - commit.at_ms)
            if commit.at_ms <= since_ms:
                return gap_ms
            later = commit.at_ms
        return max(gap_ms, later - self._times_ms[0])

    def _add(self, now_ms: int, lag: int, end: int) -> None:
        times, lags, ends = self._times_ms, self._lags, self._ends
        if len(times) >= 2 and times[-1] - times[-2] < POINT_MS:
            self._remove(-1 if lags[-1] > lags[-2] else -2)
        elif len(times) >= 2 and ends[-1] == ends[-2] == end and lags[-1] == lags[-2] == lag:
            times[-1] = now_ms  # no change: keep only the first and the last sample
            return
        times.append(now_ms)
        lags.append(lag)
        ends.append(end)
        if len(times) > POINTS_MAX:
            for place in range(POINTS_MAX // 2 - 2, 0, -2):
                self._remove(place if lags[place] > lags[place + 1] else place + 1)

    def _remove(self, place: int) -> None:
        del self._times_ms[place], self._lags[place], self._ends[place]

    def __repr__(self) -> str:
        return f"<LagTrend {len(self._times_ms)} points, behind since {self.lagging_since_ms}>"


def _steps(commits: Sequence[LagSample]) -> list[tuple[int, int]]:
    """From commit to commit, newest first: growth of the lag, and records written."""
    return [(newer.lag - older.lag, newer.end - older.end) for newer, older in pairwise(commits)]


def _is_rising(steps: Sequence[tuple[int, int]]) -> bool:
    is_each = all(rise > 0 and rise >= STEP_SHARE * written for rise, written in steps)
    return is_each and sum(rise for rise, _ in steps) >= GROWTH_SHARE * sum(written for _, written in steps)


def _are_alike(steps: Sequence[tuple[int, int]]) -> bool:
    shares = [rise / max(1, written) for rise, written in steps]
    return min(shares) >= GROWTH_SHARE and max(shares) - min(shares) <= UNEVENNESS_MAX * max(shares)
