"""The thread time of a request (`request_percentage`). 100 is one whole thread, as with Kafka.

It includes the time of the event loop and of worker threads (decompression, cold reads, thousands of rows), but no
waits. It is charged when the response is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from time import monotonic_ns
from typing import Any, Final, TypeVar

PERCENT_PER_NANOSECOND: Final = 100 / 1e9

T = TypeVar("T")


class RequestTimeCharge:
    """The time of one request; at its end, `settle` gets its percentage-seconds."""

    __slots__ = ("_record", "_since_ns", "_worker_ns", "spent_ns")

    def __init__(self, settle: Callable[[float], None]) -> None:
        self._record = settle
        self.spent_ns = 0
        self._since_ns = 0
        self._worker_ns: list[int] = []  # appended by worker threads, several at a time

    def begin(self) -> None:
        if self._since_ns == 0:
            self._since_ns = monotonic_ns()
            loop_work.charge = self

    def pause(self) -> None:
        if self._since_ns:
            self.spent_ns += monotonic_ns() - self._since_ns
            self._since_ns = 0
            loop_work.charge = None

    def run_in_worker(self, work: Callable[[], T]) -> T:
        """Run work in a worker thread, and charge its time."""
        since_ns = monotonic_ns()
        try:
            return work()
        finally:
            self._worker_ns.append(monotonic_ns() - since_ns)

    def finish(self) -> None:
        """Charge the time up to now, at the end of the request."""
        self.pause()
        self._record((self.spent_ns + sum(self._worker_ns)) * PERCENT_PER_NANOSECOND)


class LoopWork:
    """The request that the event loop works for at the moment, if its time is charged."""

    __slots__ = ("charge",)

    def __init__(self) -> None:
        self.charge: RequestTimeCharge | None = None


loop_work: Final = LoopWork()  # one, because there is one event loop


def charged(work: Callable[[], T]) -> Callable[[], T]:
    """Wrap work for a worker thread, so that its time is charged to the current request."""
    charge = loop_work.charge
    return work if charge is None else partial(charge.run_in_worker, work)


class ChargedCoroutine:
    """An awaitable whose steps are charged, but not its waits."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], charge: RequestTimeCharge) -> None:
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
            except BaseException as error:  # noqa: BLE001 (the wrapped work handles it)
                argument, step = error, work.throw
