"""What a request costs of the broker's one thread (`request_percentage`). Compiled with mypyc where possible.

The time counts in which the loop works for it, not the time in which it waits. 100 is all of a thread, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import monotonic_ns
from typing import Any, Final

PERCENT_PER_NANOSECOND: Final = 100 / 1e9


class Charge:
    """The time of one request; `settle` is told the percentage-seconds when it is answered."""

    __slots__ = ("_settle", "_since_ns", "spent_ns")

    def __init__(self, settle: Callable[[float], None]) -> None:
        self._settle = settle
        self.spent_ns = 0
        self._since_ns = 0

    def begin(self) -> None:
        if self._since_ns == 0:
            self._since_ns = monotonic_ns()

    def pause(self) -> None:
        if self._since_ns:
            self.spent_ns += monotonic_ns() - self._since_ns
            self._since_ns = 0

    def settle(self) -> None:
        """The request is answered: what it has cost until now is its price."""
        self.pause()
        self._settle(self.spent_ns * PERCENT_PER_NANOSECOND)


class Charged:
    """Work whose steps are charged, and not its waits."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], charge: Charge) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[Any, Any, Any]:
        work, charge = self._work, self._charge
        step: Callable[[Any], Any] = work.send
        argument: Any = None
        while True:
            charge.begin()
            try:
                waited = step(argument)
            except StopIteration as end:
                return end.value
            finally:
                charge.pause()
            try:
                argument = yield waited
                step = work.send
            except BaseException as error:  # noqa: BLE001 (it is the work's to deal with)
                argument, step = error, work.throw
