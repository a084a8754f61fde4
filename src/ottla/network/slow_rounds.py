"""Where the time of a long round of the loop went: at work, waiting for a core, or asleep in the kernel.

The three have different cures. What the loop itself does is cut into slices; who waits for a core has too many beside
it; and a loop that sleeps in the middle of a round waits for a disk. Only the kernel knows which it was, and to ask it
in every round would cost more than it is worth: so it is asked every millisecond, and again when a round was long.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ottla.network.run_delay import RunDelay


class Spent(NamedTuple):
    """Nanoseconds of one round, or of many."""

    running_ns: int = 0
    waiting_ns: int = 0  # for a core
    asleep_ns: int = 0


class SlowRounds:
    """Of the thread that makes it."""

    def __init__(self, run_delay: RunDelay) -> None:
        self._run_delay = run_delay
        self._marked_cpu_ns = 0
        self._marked_delay_ns = 0
        self.total = Spent()
        self.longest = Spent()
        self.longest_running_ns = 0

    def mark(self) -> None:
        """A round begins; whatever is used up from here on may belong to a long one."""
        self._marked_cpu_ns = time.thread_time_ns()
        self._marked_delay_ns = self._run_delay.total()

    def note(self, taken_ns: int, is_longest: bool) -> None:
        """A round that has begun after the last mark was long."""
        running_ns = min(taken_ns, time.thread_time_ns() - self._marked_cpu_ns)
        waiting_ns = min(taken_ns - running_ns, self._run_delay.total() - self._marked_delay_ns)
        spent = Spent(running_ns, waiting_ns, taken_ns - running_ns - waiting_ns)
        self.total = Spent(*(before + now for before, now in zip(self.total, spent, strict=True)))
        self.longest_running_ns = max(self.longest_running_ns, running_ns)
        if is_longest:
            self.longest = spent

    def forget(self) -> None:
        self.total = self.longest = Spent()
        self.longest_running_ns = 0

    def __repr__(self) -> str:
        running, waiting, asleep = (nanoseconds / 1e6 for nanoseconds in self.longest)
        return f"<SlowRounds {running:.1f} ms at work, {waiting:.1f} waiting for a core, {asleep:.1f} asleep>"
