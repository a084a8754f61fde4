"""What must follow a batch and could not be done yet: when it is tried again, and when it is given up. Pure.

Dead letters and the offsets of the consumer group need a broker, and it may be away. As long as the query runs there is
no end to the patience. When it has ended by itself the run waits for PATIENCE_S more; where it was stopped or has
failed, one more try is made. What is given up then is the reason with which the run ends.
"""

from __future__ import annotations

PAUSE_S = 0.5
PAUSE_S_MAX = 15.0  # a try costs a job of Spark
PATIENCE_S = 60.0


class Owed:
    """Of one query. Times are seconds of any clock that only goes on."""

    def __init__(self, is_owed: bool = False) -> None:
        self.is_owed = is_owed
        self.problem = ""  # of the last try, since the last success
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
        """It is done."""
        self.is_owed = False
        self.problem = ""
        self._due_s, self._pause_s = 0.0, PAUSE_S

    def fail(self, now_s: float, problem: str) -> None:
        self.problem = problem
        self._due_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._tried_since_end = self._ended_s is not None

    def end(self, now_s: float, is_hurried: bool) -> None:
        """The query has ended; `is_hurried`: it was stopped or has failed, so one more try is made, at once."""
        if self._ended_s is None:
            self._ended_s = now_s
        if is_hurried and not self._is_hurried:
            self._is_hurried = True
            self._due_s = now_s

    def is_waited_for(self, now_s: float) -> bool:
        """After the end: is another try worth the wait?"""
        if not self.is_owed or self._ended_s is None:
            return False
        if self._is_hurried:
            return not self._tried_since_end
        return now_s - self._ended_s < PATIENCE_S
