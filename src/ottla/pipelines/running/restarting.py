"""When a run that failed is tried again, and after which pause.

    never        it ends (the default)
    on-failure   it is tried again if it had been running: what fails at the first start is told to who has started it
    always       it is tried again also if it could not start: a broker that comes up later, say

Pauses grow from a second to five minutes, and begin anew after ten minutes of good work. What is wrong in the file,
checkpoints that do not fit and too many dead rows are never tried again: they would be the same the next time.

Rule: no clock, no I/O.
"""

from __future__ import annotations

from typing import Literal

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 300.0
GOOD_WORK_S = 600.0

Policy = Literal["never", "on-failure", "always"]


class Restarts:
    """Of one run. `count` is how often it was started again."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.count = 0
        self._pause_s = PAUSE_MIN_S

    def __repr__(self) -> str:
        return f"Restarts({self.policy}, {self.count}, next after {self._pause_s:g} s)"

    def are_wanted(self, has_run: bool) -> bool:
        """After a failure that may pass; `has_run`: it had been started before."""
        return self.policy == "always" or (self.policy == "on-failure" and has_run)

    def next_pause_s(self, worked_s: float) -> float:
        """It has failed after working for so long, and is to be started again."""
        pause_s = PAUSE_MIN_S if worked_s >= GOOD_WORK_S else self._pause_s
        self._pause_s = min(pause_s * 2, PAUSE_MAX_S)
        self.count += 1
        return pause_s
