"""The only functions that start tasks and a broker's threads, so that no failure of background work is lost.

Rules:
1. `spawn_restarting` is for loops that run as long as their owner. A loop that fails is logged, counted and restarted
   after a pause that grows while it keeps failing.
2. `spawn` is for work that is not awaited. A failure is logged and counted, and `on_failure` closes what depends on the
   work: for instance the connection whose request it was to answer.
3. `spawn_awaited` is for work whose result its owner awaits, beside other work: the owner handles the errors. If the
   owner was cancelled meanwhile, asyncio reports nothing.
4. asyncio keeps only weak references to tasks; here they are held until they are done.
5. No other module calls create_task or ensure_future (tools/check_rules.py).
6. `start_thread` runs a function in a daemon thread; its failure is logged and counted. A thread that serves others
   guards each job, so that a failing one does not end the thread.
7. `notify_safely` calls a listener and logs its exception, so that a failing listener affects neither the caller nor
   the listeners after it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
STABLE_SECONDS: Final = 60.0  # after so long the task has recovered: its next failure begins with the shortest pause


class TaskCounts:
    """Counts of failed tasks and restarted loops of this process, for the metrics."""

    def __init__(self) -> None:
        self.failed = 0  # one-off tasks and listeners that ended with an error
        self.restarted = 0  # loops that were restarted after an error

    def __repr__(self) -> str:
        return f"<TaskCounts {self.failed} failed, {self.restarted} restarted>"


counts: Final = TaskCounts()
_running: Final[set[asyncio.Task[Any]]] = set()


def spawn_restarting(begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Run a loop until it returns or is cancelled; `begin` creates it, and creates it again after a failure."""
    return _keep_reference(_restart(begin, name), name)


def spawn(
    work: Coroutine[Any, Any, object], name: str, on_failure: Callable[[], None] | None = None
) -> asyncio.Task[None]:
    """Run work that is not awaited."""
    return _keep_reference(_guard(work, name, on_failure), name)


def spawn_awaited(work: Awaitable[T], name: str) -> asyncio.Task[T]:
    """Run work whose result its owner awaits."""
    task = _keep_reference(_await(work), name)
    task.add_done_callback(_record_failure)
    return task


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Run a function in a thread that does not keep the process alive."""
    thread = threading.Thread(target=_guard_thread, args=(work, name), name=name, daemon=True)
    thread.start()
    return thread


def notify_safely(listener: Callable[..., object], *news: object) -> None:
    """Call a listener; its exceptions are logged and counted."""
    try:
        listener(*news)
    except Exception:
        counts.failed += 1
        logger.exception("listener %r failed for %r", listener, news)


def _keep_reference(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def _record_failure(task: asyncio.Task[Any]) -> None:
    """Retrieves the exception, so that asyncio does not report it when the owner was cancelled."""
    if not task.cancelled():
        task.exception()


async def _await(work: Awaitable[T]) -> T:
    return await work


async def _guard(work: Coroutine[Any, Any, object], name: str, on_failure: Callable[[], None] | None) -> None:
    try:
        await work
    except Exception:
        counts.failed += 1
        logger.exception("%s failed", name)
        if on_failure is not None:
            on_failure()


def _guard_thread(work: Callable[[], object], name: str) -> None:
    try:
        work()
    except Exception:
        counts.failed += 1
        logger.exception("the thread %s failed", name)


async def _restart(begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    loop = asyncio.get_running_loop()
    pause_seconds = PAUSE_SECONDS_MIN
    while True:
        began = loop.time()
        try:
            await begin()
        except Exception:
            counts.restarted += 1
            if loop.time() - began >= STABLE_SECONDS:
                pause_seconds = PAUSE_SECONDS_MIN
            logger.exception("%s failed; it begins anew in %.1f s", name, pause_seconds)
        else:
            return
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
