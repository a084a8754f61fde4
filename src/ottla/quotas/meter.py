"""How fast somebody is, and how long he has to wait for it. Compiled with mypyc where possible.

Rules:
1. `Meter` is Kafka's rate over the last windows (`quota.window.num` of `quota.window.size.seconds`): a window begins
   with the first amount after the one before has ended. A beginner may use at once what all of them allow.
2. Who has used more than that waits until old windows have left, and until he is not over any more on the average.
   From then on he is paced: every amount costs the time that it takes at his rate, with one window's worth of credit
   for who comes late. Kafka would let him have all of it at once again, and again nothing for ten seconds. So nobody
   ever gets more than all windows allow and one request in as long as they last.
3. Whoever was not held up for as long as all windows last is a beginner again.
4. A request that is larger than all windows allow is paid for by waiting as long as it takes at its rate, as with
   Kafka; but at most ten times as long as all windows last, because others wait with him.
5. `Bucket` is Kafka's for changes of topics: it fills with the rate up to all windows' worth, and is overdrawn by one
   change at most.
6. Time is monotonic, in milliseconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

UNBOUNDED: Final = inf
WAIT_LONGEST: Final = 10  # times all windows
PEAK_MS: Final = 3_600_000  # so long the highest rate is remembered


class Window:
    """What came in one of the windows."""

    __slots__ = ("amount", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.amount = 0.0


class Meter:
    """One share of one kind: what was used of it lately."""

    __slots__ = (
        "_ends_ms",
        "_last_held_ms",
        "_last_wait_ms",
        "_most",
        "_paced_until_ms",
        "_peaks",
        "_windows",
        "bound",
        "free_ms",
        "held_count",
        "held_ms_sum",
        "held_until_ms",
        "last_ms",
        "longest_ms",
        "told_ms",
        "total",
        "uses",
        "window_ms",
        "windows",
    )

    def __init__(self, bound: float, windows: int, window_ms: int) -> None:
        self.total = 0.0  # of all windows that count
        self.last_ms = 0  # when something was used last
        self.uses = 0  # how many requests were measured
        self.held_count = 0  # how many of them were held up, by how much all together, until when, and when told last
        self.held_ms_sum = 0
        self.held_until_ms = 0
        self.told_ms = -1
        self._last_wait_ms = self._last_held_ms = 0
        self._windows: list[Window] = []
        self._ends_ms = 0  # when the newest window is over
        self.free_ms = 0.0  # when it may be used again; once paced
        self._paced_until_ms = -1.0
        self._peaks: list[tuple[int, float]] = []  # the highest rates of the last two halves of an hour
        self.change(bound, windows, window_ms)

    def change(self, bound: float, windows: int, window_ms: int) -> None:
        """Another rule from now on; what was used stays used, but nobody waits for what the old one said."""
        self.bound = bound
        self.windows = windows
        self.window_ms = window_ms
        self.longest_ms = windows * window_ms
        self._most = bound * self.longest_ms / 1000
        self.free_ms = 0.0
        self._paced_until_ms = -1.0
        self.held_until_ms = 0

    def note(self, amount: float, now_ms: int) -> int:
        """So much was used; how long its user has to wait now, in milliseconds."""
        if now_ms >= self._ends_ms:
            self._begin(now_ms)
        self._windows[-1].amount += amount
        self.last_ms = now_ms
        self.uses += 1
        self.total += amount
        if now_ms < self._paced_until_ms:
            free_ms = max(self.free_ms, float(now_ms - self.window_ms)) + amount * 1000 / self.bound
            if self.total > self._most:
                free_ms = max(free_ms, self._fitting_ms())
            self._wait_until(free_ms, now_ms)
        elif self.total > self._most:
            paid_ms = self._windows[0].start_ms + self.total * 1000 / self.bound
            self._wait_until(max(self._fitting_ms(), paid_ms), now_ms)
        else:
            return 0
        return self.wait_ms(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long its user has to wait as it stands."""
        return int(self.free_ms - now_ms + 0.5) if self.free_ms > now_ms else 0

    def left(self, now_ms: int) -> float:
        """What may be used at once without waiting long for it; never so little that somebody would get crumbs."""
        if now_ms < self._paced_until_ms:
            saved_ms = min(now_ms - self.free_ms, float(self.window_ms))
        else:
            self._forget(now_ms)
            saved_ms = self.longest_ms - self.total * 1000 / self.bound
        return self.bound * max(saved_ms, self.window_ms / 4) / 1000

    def _wait_until(self, free_ms: float, now_ms: int) -> None:
        self.free_ms = free_ms = min(free_ms, now_ms + float(WAIT_LONGEST * self.longest_ms))
        if free_ms > now_ms:
            self._paced_until_ms = free_ms + self.longest_ms

    def _fitting_ms(self) -> float:
        """When so many of the old windows have left that the others are within the bound."""
        excess = self.total - self._most
        for window in self._windows:
            excess -= window.amount
            if excess <= 0:
                break
        return float(window.start_ms + self.longest_ms)

    def note_held(self, wait_ms: int, now_ms: int) -> None:
        """Somebody is held up by it."""
        self.held_count += 1
        self.held_ms_sum += wait_ms
        self.held_until_ms = max(self.held_until_ms, now_ms + wait_ms)
        self._last_wait_ms = wait_ms
        self._last_held_ms = now_ms

    def recent_wait_ms(self, now_ms: int) -> int:
        """How long somebody was held up last, as long as windows remember it."""
        return self._last_wait_ms if now_ms - self._last_held_ms < self.longest_ms else 0

    def rate(self, now_ms: int) -> float:
        """A second, over the windows that count."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self.total * 1000 / elapsed_ms

    def peak(self, now_ms: int) -> float:
        """The highest rate of the last hour."""
        rates = [rate for since_ms, rate in self._peaks if now_ms - since_ms < PEAK_MS]
        return max([self.rate(now_ms), *rates])

    def _begin(self, now_ms: int) -> None:
        self._forget(now_ms)
        if self._windows:
            self._note_peak(self.total * 1000 / self.longest_ms, now_ms)
        self._windows.append(Window(now_ms))
        self._ends_ms = now_ms + self.window_ms

    def _note_peak(self, rate: float, now_ms: int) -> None:
        peaks = self._peaks
        if not peaks or now_ms - peaks[-1][0] >= PEAK_MS // 2:
            self._peaks = [*peaks[-1:], (now_ms, rate)]
        elif rate > peaks[-1][1]:
            peaks[-1] = (peaks[-1][0], rate)

    def _elapsed_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(1, elapsed_ms)

    def _forget(self, now_ms: int) -> None:
        """Windows that began longer ago than all of them last do not count any more."""
        oldest_ms = now_ms - self.longest_ms
        windows = self._windows
        if windows and windows[0].start_ms <= oldest_ms:
            self._note_peak(self.total * 1000 / self.longest_ms, now_ms)
        while windows and windows[0].start_ms <= oldest_ms:
            self.total -= windows.pop(0).amount
        if not windows:
            self.total = 0.0
            self._ends_ms = 0

    def __repr__(self) -> str:
        return f"<Meter {self.total:.0f} used, bound {self.bound:g}/s>"


class Bucket(Meter):
    """The same for changes of topics, which are counted before they happen."""

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self, bound: float, windows: int, window_ms: int) -> None:
        self._tokens = 0.0
        self._filled_ms = -1
        super().__init__(bound, windows, window_ms)

    @property
    def burst(self) -> float:
        return self.bound * self.windows * self.window_ms / 1000

    def note(self, amount: float, now_ms: int) -> int:
        super().note(amount, now_ms)
        self._fill(now_ms)
        self._tokens -= amount
        return self.wait_ms(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        self._fill(now_ms)
        wait_ms = -self._tokens / self.bound * 1000
        return int(min(wait_ms, 2**31 - 1) + 0.5) if wait_ms > 0 else 0

    def tokens(self, now_ms: int) -> float:
        self._fill(now_ms)
        return self._tokens

    def _fill(self, now_ms: int) -> None:
        if self._filled_ms < 0:
            self._tokens = self.burst
        else:
            self._tokens = min(self.burst, self._tokens + self.bound * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
