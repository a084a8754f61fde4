"""The one way to start a task: nothing that runs beside the loop's callbacks dies in silence.

Rules:
1. `keep_running` is for loops that must not end while their owner lives. One that fails is logged, counted and begun
   anew after a pause that grows while it keeps failing.
2. `start` is for work that nobody awaits. If it fails, that is logged and counted, and `on_failure` closes whatever
   depends on it: the connection whose request it was to answer, for instance.
3. `ask` is for work whose result its owner awaits, beside other things: what goes wrong is the owner's to deal with. An
   owner that was cancelled meanwhile leaves no complaint behind.
4. asyncio forgets tasks that nobody holds; here they are held until they are done.
5. Nobody else calls create_task or ensure_future (tools/check_house.py).
6. Whoever tells others that something has happened does so with `tell`: what they make of it cannot hurt him, nor those
   whom he tells next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
STEADY_SECONDS: Final = 60.0  # whoever ran so long has recovered: its next failure begins with the shortest pause


class TaskCounts:
    """What became of the tasks of this process; metrics show it."""

    def __init__(self) -> None:
        self.failed = 0  # one-off tasks, and listeners, that ended with an error
        self.restarted = 0  # loops that were begun anew after an error

    def __repr__(self) -> str:
        return f"<TaskCounts {self.failed} failed, {self.restarted} restarted>"


counts: Final = TaskCounts()
_running: Final[set[asyncio.Task[Any]]] = set()


def keep_running(begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Run a loop until it returns or is cancelled; `begin` makes it, and makes it anew after a failure."""
    return _hold(_restart(begin, name), name)


def start(
    work: Coroutine[Any, Any, object], name: str, on_failure: Callable[[], None] | None = None
) -> asyncio.Task[None]:
    """Run work that nobody awaits."""
    return _hold(_guard(work, name, on_failure), name)


def ask(work: Awaitable[T], name: str) -> asyncio.Task[T]:
    """Run work whose result somebody awaits."""
    task = _hold(_await(work), name)
    task.add_done_callback(_look_at_failure)
    return task


def tell(listener: Callable[..., object], *news: object) -> None:
    """Call somebody who waits for news."""
    try:
        listener(*news)
    except Exception:
        counts.failed += 1
        logger.exception("%r failed when it was told %r", listener, news)


def _hold(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def _look_at_failure(task: asyncio.Task[Any]) -> None:
    """So that asyncio does not call it forgotten when its owner was cancelled."""
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


async def _restart(begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    loop = asyncio.get_running_loop()
    pause_seconds = PAUSE_SECONDS_MIN
    while True:
        began = loop.time()
        try:
            await begin()
        except Exception:
            counts.restarted += 1
            if loop.time() - began >= STEADY_SECONDS:
                pause_seconds = PAUSE_SECONDS_MIN
            logger.exception("%s failed; it begins anew in %.1f s", name, pause_seconds)
        else:
            return
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
