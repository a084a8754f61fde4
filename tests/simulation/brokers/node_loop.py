"""The event loop of one node: asyncio's order of things, the world's time.

A round is what asyncio calls an iteration: the poller hands socket events to their connections, then everything that
was ready at that moment is run. Work for threads is done here too, some time later, in one piece. Nothing of the real
world is reachable: no sockets, no signals, no threads.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVar

from tests.simulation.brokers.poller import NodePoller
from tests.simulation.brokers.world import World

T = TypeVar("T")

WORK_SECONDS: Final = (0.0002, 0.0002, 0.001, 0.004)
SLOW_WORK_SECONDS: Final = 0.15
SLOW_WORK_CHANCE: Final = 0.01


class CrashError(BaseException):
    """The node dies here: nothing that it does from now on has any effect."""


class NodeTask(asyncio.Task[T]):
    """A task with a hash that is the same in every process: sets of tasks have an order then."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class NodeFuture(asyncio.Future[T]):
    """The same for futures."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class NodeLoop(asyncio.AbstractEventLoop):
    """One node's thread."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_runnable = False
        self.is_paused = False
        self.is_dead = False
        self.poller = NodePoller(world, self)
        self.clock_step = 0.0  # seconds by which its wall clock is wrong
        self.signals: dict[int, Callable[[], None]] = {}
        self.tasks: dict[int, NodeTask[Any]] = {}  # those that are not done
        self.died: list[NodeTask[Any]] = []  # those that ended with an exception
        self._ready: deque[asyncio.Handle] = deque()
        self._numbers = 0

    def __repr__(self) -> str:
        return f"<NodeLoop {self.name}, {len(self.tasks)} tasks>"

    # ---- the world's side

    def take(self, handle: asyncio.Handle) -> None:
        """A timer's time has come."""
        self._ready.append(handle)
        if not self.is_runnable:
            self.world.wake(self)

    def run_round(self) -> None:
        ready, world = self._ready, self.world
        world.current = self
        events._set_running_loop(self)
        try:
            self.poller.poll()
            for _ in range(len(ready)):
                if self.is_dead:
                    return
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()  # type: ignore[attr-defined]
        except CrashError:
            assert self.is_dead, "only the dead crash"
        finally:
            events._set_running_loop(None)
            world.current = None
        if ready or self.poller.is_busy:
            world.wake(self)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.world.wake(self)

    def die(self) -> None:
        self.is_dead = True
        for task in self.tasks.values():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.world.graveyard.append(self)

    def clear(self) -> None:
        self._ready.clear()
        self.poller = NodePoller(self.world, self)
        self.signals.clear()
        self.tasks = {}
        self.died.clear()

    def deaths(self) -> list[str]:
        """Tasks that ended with an exception that was never retrieved."""
        return [
            f"{task.get_coro().__qualname__} died: {task._exception!r}"  # type: ignore[union-attr,attr-defined]
            for task in self.died
            if task._log_traceback  # type: ignore[attr-defined]
        ]

    # ---- asyncio's side: calling

    def time(self) -> float:
        return self.world.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self.is_runnable:
            self.world.wake(self)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.world.push(when, handle, self)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The queue drops it when its time comes."""

    # ---- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        future: NodeFuture[Any] = NodeFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        self._numbers += 1
        task: NodeTask[T] = NodeTask(coro, loop=self, name=name or coro.__qualname__, context=context)
        task.number = self._numbers
        self.tasks[task.number] = task
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        assert isinstance(task, NodeTask)
        self.tasks.pop(task.number, None)
        if not task.cancelled() and task._exception is not None:  # type: ignore[attr-defined]
            self.died.append(task)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """The work of a thread. After a cancellation it may be done or not: it may have begun."""
        done = self.create_future()
        chance = self.world.random

        def work() -> None:
            if done.cancelled() and chance.random() < 0.5:
                return
            try:
                result = func(*args)
            except CrashError:
                raise
            except BaseException as error:  # noqa: BLE001 (raised again where the result is awaited)
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        slow = chance.random() < SLOW_WORK_CHANCE
        self.call_later(SLOW_WORK_SECONDS if slow else chance.choice(WORK_SECONDS), work)
        return done

    # ---- sockets and signals

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self.poller.add_reader(fd, callback, args)

    def remove_reader(self, fd: Any) -> bool:
        return self.poller.remove_reader(fd)

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self.signals[sig] = lambda: callback(*args)

    # ---- small talk

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self.is_dead and not isinstance(error, CrashError):
            self.world.complain(f"{self.name}: {context.get('message')}: {error!r}")

    default_exception_handler = call_exception_handler

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.world.current is self

    def is_closed(self) -> bool:
        return self.is_dead
