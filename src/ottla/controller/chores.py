"""Things that have to be looked at: each is done once however often it was asked for, one after the other.

Events only say that something may have changed; the chore looks at what is. So events that come in a burst cost one
look, and a look that failed because the store is away is simply taken again, after a pause that grows: nothing storms
when the store is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.controller.stores.store import StoreError, StoreUnusableError

logger = logging.getLogger(__name__)

PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
UNUSABLE_SECONDS: Final = 10.0  # after what a person has to mend


class Chores:
    """Chores with lower places in the order of `add` come first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._chores: dict[str, Callable[[], Awaitable[None]]] = {}
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_seconds = PAUSE_SECONDS_MIN

    def add(self, key: str, work: Callable[[], Awaitable[None]]) -> None:
        self._chores[key] = work

    def want(self, key: str) -> None:
        self._due.add(key)
        self._wake.set()

    def start(self) -> None:
        if self._task is None:
            self._task = tasks.keep_running(self._run, self._name)

    def stop(self) -> None:
        """What is under way is cut off at its next wait."""
        self._due.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            if not self._due:
                self._wake.clear()
                await self._wake.wait()
            key = next(key for key in self._chores if key in self._due)
            self._due.discard(key)
            try:
                await self._chores[key]()
            except StoreUnusableError as problem:
                logger.error("%s: %s", self._name, problem)
                self._pause_seconds = UNUSABLE_SECONDS
                await self._pause(key)
            except (StoreError, KafkaError) as problem:
                logger.warning("%s: %s could not be looked at: %s", self._name, key, problem)
                await self._pause(key)
            except Exception:  # one of the loops that own a task
                logger.exception("%s: %s failed", self._name, key)
                await self._pause(key)
            else:
                self._pause_seconds = PAUSE_SECONDS_MIN

    async def _pause(self, key: str) -> None:
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
        self._due.add(key)

    def __repr__(self) -> str:
        return f"<Chores {self._name} due={sorted(self._due)}>"
