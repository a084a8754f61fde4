"""Meters of quotas: the rate of an entity, and its throttle time. Compiled with mypyc where possible.

Rules:
1. `Meter` is Kafka's rate over the last windows (`quota.window.num` of `quota.window.size.seconds`): a window begins
   with the first amount after the end of the previous one. An entity without recent use may use at once what all
   windows allow.
2. An entity above that waits until old windows have expired and its average is within the bound. From then on it is
   paced: every amount costs the time that it takes at the entity's rate, with a credit of one window after a pause.
   Kafka would allow the whole amount at once again, and then none for ten seconds. So within the span of all windows an
   entity never gets more than they allow plus one request.
3. An entity that was not throttled during the span of all windows starts again as in rule 1.
4. A request that is larger than all windows allow waits as long as it takes at the entity's rate, as with Kafka; but at
   most ten times the span of all windows, because other requests wait for it.
5. `TokenBucket` is Kafka's token bucket for topic changes: it fills at the rate up to all windows' worth, and one
   change at most may overdraw it.
6. Time is monotonic, in milliseconds.
"""

from __future__ import annotations

from math import inf
from typing import Final

UNBOUNDED: Final = inf
WAIT_LONGEST: Final = 10  # times the span of all windows
PEAK_MS: Final = 3_600_000  # how long the highest rate is kept


class Window:
    """The amount of one window."""

    __slots__ = ("amount", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.amount = 0.0


class Meter:
    """The recent use of one quota by one entity."""

    __slots__ = (
        "_ends_ms",
        "_last_held_ms",
        "_last_wait_ms",
        "_most",
        "_peaks",
        "_smoothed_until_ms",
        "_windows",
        "bound",
        "free_ms",
        "last_ms",
        "longest_ms",
        "reported_ms",
        "throttle_count",
        "throttle_ms_sum",
        "throttled_until_ms",
        "total",
        "window_ms",
        "windows",
    )

    def __init__(self, bound: float, windows: int, window_ms: int) -> None:
        self.total = 0.0  # of all current windows
        self.last_ms = 0  # the time of the last use
        self.throttle_count = 0  # throttled requests: number, total wait, end of the wait, time of the last log line
        self.throttle_ms_sum = 0
        self.throttled_until_ms = 0
        self.reported_ms = -1
        self._last_wait_ms = self._last_held_ms = 0
        self._windows: list[Window] = []
        self._ends_ms = 0  # the end of the newest window
        self.free_ms = 0.0  # if paced: the time when it may be used again
        self._smoothed_until_ms = -1.0
        self._peaks: list[tuple[int, float]] = []  # the highest rates of the last two half-hours
        self.change(bound, windows, window_ms)

    def change(self, bound: float, windows: int, window_ms: int) -> None:
        """Apply a changed rule; recorded use stays, but waits under the old rule end."""
        self.bound = bound
        self.windows = windows
        self.window_ms = window_ms
        self.longest_ms = windows * window_ms
        self._most = bound * self.longest_ms / 1000
        self.free_ms = 0.0
        self._smoothed_until_ms = -1.0
        self.throttled_until_ms = 0

    def record(self, amount: float, now_ms: int) -> int:
        """Record an amount; returns the throttle time in milliseconds."""
        if now_ms >= self._ends_ms:
            self._begin(now_ms)
        self._windows[-1].amount += amount
        self.last_ms = now_ms
        self.total += amount
        if now_ms < self._smoothed_until_ms:
            free_ms = max(self.free_ms, float(now_ms - self.window_ms)) + amount * 1000 / self.bound
            if self.total > self._most:
                free_ms = max(free_ms, self._fitting_ms())
            self._wait_until(free_ms, now_ms)
        elif self.total > self._most:
            paid_ms = self._windows[0].start_ms + self.total * 1000 / self.bound
            self._wait_until(max(self._fitting_ms(), paid_ms), now_ms)
        else:
            return 0
        return self.throttle_time_ms(now_ms)

    def throttle_time_ms(self, now_ms: int) -> int:
        """Return the current throttle time."""
        return int(self.free_ms - now_ms + 0.5) if self.free_ms > now_ms else 0

    def left(self, now_ms: int) -> float:
        """Return the amount that can be used now without a long wait; at least a minimum, to avoid tiny responses."""
        if now_ms < self._smoothed_until_ms:
            saved_ms = min(now_ms - self.free_ms, float(self.window_ms))
        else:
            self._drop_old_windows(now_ms)
            saved_ms = self.longest_ms - self.total * 1000 / self.bound
        return self.bound * max(saved_ms, self.window_ms / 4) / 1000

    def _wait_until(self, free_ms: float, now_ms: int) -> None:
        self.free_ms = free_ms = min(free_ms, now_ms + float(WAIT_LONGEST * self.longest_ms))
        if free_ms > now_ms:
            self._smoothed_until_ms = free_ms + self.longest_ms

    def _fitting_ms(self) -> float:
        """Return the time when enough old windows have expired for the rest to be within the bound."""
        excess = self.total - self._most
        for window in self._windows:
            excess -= window.amount
            if excess <= 0:
                break
        return float(window.start_ms + self.longest_ms)

    def record_throttle(self, wait_ms: int, now_ms: int) -> None:
        """Record a throttled request."""
        self.throttle_count += 1
        self.throttle_ms_sum += wait_ms
        self.throttled_until_ms = max(self.throttled_until_ms, now_ms + wait_ms)
        self._last_wait_ms = wait_ms
        self._last_held_ms = now_ms

    def recent_wait_ms(self, now_ms: int) -> int:
        """Return the last throttle time, as long as windows keep it."""
        return self._last_wait_ms if now_ms - self._last_held_ms < self.longest_ms else 0

    def rate(self, now_ms: int) -> float:
        """Return the rate per second over the current windows."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self.total * 1000 / elapsed_ms

    def peak(self, now_ms: int) -> float:
        """Return the highest rate of the last hour."""
        rates = [rate for since_ms, rate in self._peaks if now_ms - since_ms < PEAK_MS]
        return max([self.rate(now_ms), *rates])

    def _begin(self, now_ms: int) -> None:
        self._drop_old_windows(now_ms)
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
        self._drop_old_windows(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(1, elapsed_ms)

    def _drop_old_windows(self, now_ms: int) -> None:
        """Remove expired windows."""
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


class TokenBucket(Meter):
    """The token bucket for topic changes, which are counted in advance."""

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self, bound: float, windows: int, window_ms: int) -> None:
        self._tokens = 0.0
        self._filled_ms = -1
        super().__init__(bound, windows, window_ms)

    @property
    def burst(self) -> float:
        return self.bound * self.windows * self.window_ms / 1000

    def record(self, amount: float, now_ms: int) -> int:
        super().record(amount, now_ms)
        self._fill(now_ms)
        self._tokens -= amount
        return self.throttle_time_ms(now_ms)

    def throttle_time_ms(self, now_ms: int) -> int:
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
