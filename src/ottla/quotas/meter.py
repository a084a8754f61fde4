"""How fast somebody is, and how long he has to wait for it. Compiled with mypyc where possible.

Rules:
1. `Meter` is Kafka's rate over the last windows (`quota.window.num` of `quota.window.size.seconds`): a window begins
   with the first amount after the one before has ended, and the elapsed time counts as all but one of them at least,
   so that a beginner may use at once what he may use in so many windows.
2. Who is over his bound waits until the amount would be the bound's over the longer time: Kafka's formula.
3. `Bucket` is Kafka's for changes of topics: it fills with the rate up to all windows' worth, and is overdrawn by one
   change at most.
4. Time is monotonic, in milliseconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

UNBOUNDED: Final = inf
PEAK_MS: Final = 3_600_000  # so long the highest rate is remembered


class Window:
    """What came in one of the windows."""

    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.amount = 0.0


class Meter:
    """One share of one kind: what was used of it lately."""

    def __init__(self, bound: float, windows: int, window_ms: int) -> None:
        self.total = 0.0  # of all windows that count
        self.last_ms = 0  # when something was used last
        self.uses = 0  # how many requests were measured
        self.held_count = 0  # how many of them were held up, by how much all together, until when, and when told last
        self.held_ms_sum = 0
        self.held_until_ms = 0
        self.told_ms = -1
        self._windows: list[Window] = []
        self._ends_ms = 0  # when the newest window is over
        self._peaks: list[tuple[int, float]] = []  # the highest rates of the last two halves of an hour
        self.change(bound, windows, window_ms)

    def change(self, bound: float, windows: int, window_ms: int) -> None:
        """Another rule from now on; what was used stays used."""
        self.bound = bound
        self.windows = windows
        self.window_ms = window_ms
        self.shortest_ms = max(1, (windows - 1) * window_ms)
        self._surely_below = bound * self.shortest_ms / 1000

    def note(self, amount: float, now_ms: int) -> int:
        """So much was used; how long its user has to wait now, in milliseconds."""
        if now_ms >= self._ends_ms:
            self._begin(now_ms)
        window = self._windows[-1]
        window.amount += amount
        window.last_ms = now_ms
        self.last_ms = now_ms
        self.uses += 1
        self.total += amount
        return 0 if self.total <= self._surely_below else self.wait_ms(now_ms)

    def take_back(self, amount: float) -> None:
        """What was noted last did not happen."""
        self._windows[-1].amount -= amount
        self.total -= amount

    def wait_ms(self, now_ms: int) -> int:
        """How long its user has to wait as it stands."""
        if self.total <= self._surely_below:
            return 0
        elapsed_ms = self._elapsed_ms(now_ms)
        wait_ms = self.total * 1000 / self.bound - elapsed_ms
        return int(min(wait_ms, 2**31 - 1) + 0.5) if wait_ms > 0 else 0

    def left(self, now_ms: int) -> float:
        """What may still be used at once: at least what one window may bring, so that nobody gets crumbs."""
        allowed = self.bound * self._elapsed_ms(now_ms) / 1000
        return max(allowed - self.total, self.bound * self.window_ms / 1000)

    def note_held(self, wait_ms: int, now_ms: int) -> None:
        """Somebody is held up by it."""
        self.held_count += 1
        self.held_ms_sum += wait_ms
        self.held_until_ms = max(self.held_until_ms, now_ms + wait_ms)

    def rate(self, now_ms: int) -> float:
        """A second, over the windows that count."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self.total * 1000 / elapsed_ms

    def peak(self, now_ms: int) -> float:
        """The highest rate of the last hour."""
        rates = [rate for since_ms, rate in self._peaks if now_ms - since_ms < PEAK_MS]
        return max([self.rate(now_ms), *rates])

    def is_empty(self, now_ms: int) -> bool:
        """Whether nothing was used in any window that counts."""
        self._forget(now_ms)
        return self.total <= 0

    def _begin(self, now_ms: int) -> None:
        if self._windows:
            self._note_peak(self.rate(now_ms), now_ms)
        self._forget(now_ms)
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
        """Windows that nothing came in for as long as all of them last do not count any more."""
        oldest_ms = now_ms - self.windows * self.window_ms
        windows = self._windows
        while windows and windows[0].last_ms <= oldest_ms:
            self.total -= windows.pop(0).amount
        if not windows:
            self.total = 0.0
            self._ends_ms = 0

    def __repr__(self) -> str:
        return f"<Meter {self.total:.0f} used, bound {self.bound:g}/s>"


class Bucket(Meter):
    """The same for changes of topics, which are counted before they happen."""

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
