"""An event loop on which time passes only when nothing is left to do.

A test of a driver that waits, backs off or gives up runs at once and is deterministic on a busy machine: `sleep`
and timers jump to the next moment that a task waits for. Work for threads is done on the loop, after a pause of
virtual time, so that a caller that awaits it really waits.

With `run(main, poller)` there are real sockets, both ends of which this loop serves: time passes when none of them has
an event. So a timeout depends on the test, never on the machine.
"""

from __future__ import annotations

import asyncio
import heapq
import select
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.network.poller import Poller

T = TypeVar("T")

START_SECONDS = 1_000.0
WORK_SECONDS = 0.001
QUIET_SECONDS = 0.02  # of real time: the loopback hands over what was sent in microseconds
CALLBACKS_MAX = 5_000_000  # a loop that spins without time passing is a bug, and not a slow test


class StuckError(AssertionError):
    """No event can happen any more, but the test still waits."""


class _NoSelector(selectors.BaseSelector):
    """asyncio asks for events of sockets: there are none, so time goes on instead."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None

    def select(self, timeout: float | None = None) -> list[Any]:
        assert self.loop is not None
        self.loop.pass_time(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, 0, None)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return {}

    def close(self) -> None: ...


class _QuietSelector(_NoSelector):
    """Polls the broker's own connections; time passes when there was no event for a moment."""

    def __init__(self, poller: Poller) -> None:
        super().__init__()
        self.poller = poller

    def select(self, timeout: float | None = None) -> list[Any]:
        assert self.loop is not None
        events = self.poller.select(0)
        if timeout != 0 and not events and not self.loop.has_callbacks() and not self._is_anything_left():
            self.loop.pass_time(timeout)
        return events

    def _is_anything_left(self) -> bool:
        """A descriptor of epoll is readable when one of those that it watches is ready."""
        watch = select.poll()
        watch.register(self.poller._epoll.fileno(), select.POLLIN)
        return bool(watch.poll(QUIET_SECONDS * 1000))

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.poller.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.poller.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.poller.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self.poller.get_map()

    def close(self) -> None:
        self.poller.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with another clock. `loop.time()` is the only time there is."""

    def __init__(self, poller: Poller | None = None) -> None:
        selector = _QuietSelector(poller) if poller is not None else _NoSelector()
        self.now = START_SECONDS
        self.callbacks = 0
        self._work_s = 0.0  # when the last piece of work for a thread is done
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now

    def pass_time(self, timeout: float | None) -> None:
        """Called when nothing is ready: `timeout` is what asyncio would sleep, None if nothing is scheduled."""
        self.callbacks += 1
        if self.callbacks > CALLBACKS_MAX:
            raise StuckError("the loop goes round and round")
        if timeout is None:
            raise StuckError("all tasks wait, and nothing will ever happen")
        if timeout > 0:
            self.now = max(self.now, self._next_timer())

    def has_callbacks(self) -> bool:
        return bool(self._ready)  # type: ignore[attr-defined]

    def _next_timer(self) -> float:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        return scheduled[0].when() if scheduled else self.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """The work of a thread, done on the loop a moment later: one piece after the other."""
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 (raised again where the result is awaited)
                done.set_exception(error)
            else:
                done.set_result(result)

        self._work_s = max(self.now + WORK_SECONDS, self._work_s + 1e-6)
        self.call_at(self._work_s, work)
        return done


def run(main: Coroutine[Any, Any, T], poller: Poller | None = None) -> T:
    """As asyncio.run(), in virtual time; with the poller of the connections, if there are any."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(poller)) as runner:
        return runner.run(main)


class LoopClock:
    """A Clock with the time of the running loop, or the time at which one will start."""

    def __init__(self, epoch_ms: int = 1_700_000_000_000) -> None:
        self.epoch_ms = epoch_ms  # a test that changes it sets the system clock

    def now_ms(self) -> int:
        return self.epoch_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        loop = asyncio._get_running_loop()
        return int((loop.time() if loop is not None else START_SECONDS) * 1000)
