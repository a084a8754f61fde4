"""When a failed run is restarted, and after which pause.

    never        it ends (the default)
    on-failure   it is restarted if it had been running; failures of the first start are reported to the caller
    always       it is restarted even if it could not start, for example because the broker starts later

Pauses grow from a second to five minutes, and reset after ten minutes of work. Errors in the file, mismatching
checkpoints and too many dead rows are never retried: they would recur.

Rule: no clock, no I/O.
"""

from __future__ import annotations

from typing import Literal

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 300.0
GOOD_WORK_S = 600.0

Policy = Literal["never", "on-failure", "always"]


class Restarts:
    """The restarts of one run. `count` is the number of restarts so far."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.count = 0
        self._pause_s = PAUSE_MIN_S

    def __repr__(self) -> str:
        return f"Restarts({self.policy}, {self.count}, next after {self._pause_s:g} s)"

    def are_wanted(self, has_run: bool) -> bool:
        """After a transient failure; `has_run`: it had been started before."""
        return self.policy == "always" or (self.policy == "on-failure" and has_run)

    def next_pause_s(self, worked_s: float) -> float:
        """The pause after a failure that followed this much work."""
        pause_s = PAUSE_MIN_S if worked_s >= GOOD_WORK_S else self._pause_s
        self._pause_s = min(pause_s * 2, PAUSE_MAX_S)
        self.count += 1
        return pause_s
