"""Pending work after a batch: when to retry it, and when to give up. Pure.

Dead letters and consumer group offsets need a broker, which may be unavailable. While the query runs, retries never
end. After a normal end the run waits for PATIENCE_S; after a stop or failure it retries once. If that fails, it is the
error of the run.
"""

from __future__ import annotations

PAUSE_S = 0.5
PAUSE_S_MAX = 15.0  # each attempt costs a Spark job
PATIENCE_S = 60.0


class Owed:
    """The pending work of one query. Times are seconds of a monotonic clock."""

    def __init__(self, is_owed: bool = False) -> None:
        self.is_owed = is_owed
        self.problem = ""  # error of the last attempt since the last success
        self._due_s = 0.0
        self._pause_s = PAUSE_S
        self._ended_s: float | None = None
        self._is_hurried = False
        self._tried_since_end = False

    def __repr__(self) -> str:
        return f"Owed({'owed' if self.is_owed else 'nothing'}{f', {self.problem}' if self.problem else ''})"

    def add(self) -> None:
        self.is_owed = True

    def is_due(self, now_s: float) -> bool:
        return self.is_owed and now_s >= self._due_s

    def settle(self) -> None:
        """Mark the work as done."""
        self.is_owed = False
        self.problem = ""
        self._due_s, self._pause_s = 0.0, PAUSE_S

    def fail(self, now_s: float, problem: str) -> None:
        self.problem = problem
        self._due_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._tried_since_end = self._ended_s is not None

    def end(self, now_s: float, is_hurried: bool) -> None:
        """The query has ended; `is_hurried`: after a stop or failure one immediate attempt is made."""
        if self._ended_s is None:
            self._ended_s = now_s
        if is_hurried and not self._is_hurried:
            self._is_hurried = True
            self._due_s = now_s

    def is_waited_for(self, now_s: float) -> bool:
        """After the end: whether another attempt is worth waiting for."""
        if not self.is_owed or self._ended_s is None:
            return False
        if self._is_hurried:
            return not self._tried_since_end
        return now_s - self._ended_s < PATIENCE_S
