"""How the time of a slow event loop iteration was spent: running, waiting for a CPU, or blocked in the kernel.

They have different fixes: split the work of the loop, run fewer processes, or move disk access to a thread.
Only the kernel knows the difference. It is read every millisecond and after each slow iteration, because reading it in
every iteration would cost too much.
"""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

PATH: Final = "/proc/thread-self/schedstat"  # nanoseconds running and waiting, and number of time slices
BYTES_MAX: Final = 128


class SchedulerDelay:
    """How long the creating thread waited for a CPU, as counted by the kernel; 0 if the kernel does not count."""

    def __init__(self) -> None:
        self._last_ns = 0
        try:
            self._descriptor = os.open(PATH, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def since_last(self) -> int:
        """Return the nanoseconds since the last call; 0 at first."""
        waited_ns = self.total()
        last_ns, self._last_ns = self._last_ns, waited_ns
        return waited_ns - last_ns if last_ns and waited_ns else 0

    def total(self) -> int:
        """Return the nanoseconds since the thread started."""
        return int(os.pread(self._descriptor, BYTES_MAX, 0).split()[1]) if self._descriptor >= 0 else 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<SchedulerDelay {self._last_ns / 1e6:.0f} ms>"


class IterationTime(NamedTuple):
    """Nanoseconds of one iteration, or of many."""

    running_ns: int = 0
    waiting_ns: int = 0  # for a CPU
    asleep_ns: int = 0


class SlowIterations:
    """The slow iterations of the creating thread."""

    def __init__(self, run_delay: SchedulerDelay) -> None:
        self._run_delay = run_delay
        self._marked_cpu_ns = 0
        self._marked_delay_ns = 0
        self.total = IterationTime()
        self.longest = IterationTime()
        self.longest_running_ns = 0

    def begin(self) -> None:
        """Mark the begin of an iteration, which may become a slow one."""
        self._marked_cpu_ns = time.thread_time_ns()
        self._marked_delay_ns = self._run_delay.total()

    def record(self, taken_ns: int, is_longest: bool) -> None:
        """Record a slow iteration, which began after the last mark."""
        running_ns = min(taken_ns, time.thread_time_ns() - self._marked_cpu_ns)
        waiting_ns = min(taken_ns - running_ns, self._run_delay.total() - self._marked_delay_ns)
        spent = IterationTime(running_ns, waiting_ns, taken_ns - running_ns - waiting_ns)
        self.total = IterationTime(*(before + now for before, now in zip(self.total, spent, strict=True)))
        self.longest_running_ns = max(self.longest_running_ns, running_ns)
        if is_longest:
            self.longest = spent

    def reset(self) -> None:
        self.total = self.longest = IterationTime()
        self.longest_running_ns = 0

    def __repr__(self) -> str:
        running, waiting, asleep = (nanoseconds / 1e6 for nanoseconds in self.longest)
        return f"<SlowIterations {running:.1f} ms at work, {waiting:.1f} waiting for a core, {asleep:.1f} asleep>"
