"""The Clock interface: code that needs the time takes a Clock, so that tests can control it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

CLOCK_STEP_MS_MIN: Final = 100  # the two clocks are not read at the same moment, and drift apart slowly


class Clock(Protocol):
    """Wall time for timestamps that are stored, monotonic time for every time-out."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SteppedClock:
    """Wall time, because the times in records are compared on other brokers and after restarts.

    When the system clock is set (by NTP, or an operator), `on_step` gets the difference before the next time is used:
    deadlines must move with the clock, or sessions and transactions would expire at once or much too late.
    """

    def __init__(self, clock: Clock, on_step: Callable[[int], None]) -> None:
        self._clock = clock
        self._on_step = on_step
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        now_ms = self._clock.now_ms()
        step_ms = now_ms - self._clock.monotonic_ms() - self._offset_ms
        if abs(step_ms) >= CLOCK_STEP_MS_MIN:
            self._offset_ms += step_ms
            self._on_step(step_ms)
        return now_ms
