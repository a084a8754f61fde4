"""What a request costs of the broker's threads (`request_percentage`). 100 is all of one thread, as with Kafka.

The time counts in which the loop works for it, and that in which workers do what it needs (decompression, cold reads,
thousands of rows): not the time in which it waits. All of it is counted when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import monotonic_ns
from typing import Any, Final, TypeVar

PERCENT_PER_NANOSECOND: Final = 100 / 1e9

T = TypeVar("T")


class Charge:
    """The time of one request; `settle` is told the percentage-seconds when it is answered."""

    __slots__ = ("_apart_ns", "_settle", "_since_ns", "spent_ns")

    def __init__(self, settle: Callable[[float], None]) -> None:
        self._settle = settle
        self.spent_ns = 0
        self._since_ns = 0
        self._apart_ns: list[int] = []  # workers append to it, several at a time

    def begin(self) -> None:
        if self._since_ns == 0:
            self._since_ns = monotonic_ns()
            loop_work.charge = self

    def pause(self) -> None:
        if self._since_ns:
            self.spent_ns += monotonic_ns() - self._since_ns
            self._since_ns = 0
            loop_work.charge = None

    def run_apart(self, work: Callable[[], T]) -> T:
        """In a worker."""
        since_ns = monotonic_ns()
        try:
            return work()
        finally:
            self._apart_ns.append(monotonic_ns() - since_ns)

    def settle(self) -> None:
        """The request is answered: what it has cost until now is its price."""
        self.pause()
        self._settle((self.spent_ns + sum(self._apart_ns)) * PERCENT_PER_NANOSECOND)


class LoopWork:
    """For whose request the loop works at this moment, if that is counted."""

    __slots__ = ("charge",)

    def __init__(self) -> None:
        self.charge: Charge | None = None


loop_work: Final = LoopWork()  # one, as there is one loop


def charged(work: Callable[[], T]) -> Callable[[], T]:
    """Work that the loop is about to give to a worker, on the account of whoever needs it."""
    charge = loop_work.charge
    return work if charge is None else partial(charge.run_apart, work)


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
