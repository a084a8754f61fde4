"""A work queue with keys: each key runs once however often it was enqueued, and only one handler runs at a time.

Events only report that something may have changed; the handler reads the current state. So a burst of events runs a
handler once. A handler that fails because the store is unavailable is repeated after a growing pause, which avoids a
burst of requests when the store is available again.
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
UNUSABLE_PAUSE_SECONDS: Final = 10.0  # after an error that an operator must fix


class WorkQueue:
    """Keys run in the order in which they were added."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._handlers: dict[str, Callable[[], Awaitable[None]]] = {}
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_seconds = PAUSE_SECONDS_MIN

    def add_handler(self, key: str, work: Callable[[], Awaitable[None]]) -> None:
        self._handlers[key] = work

    def enqueue(self, key: str) -> None:
        self._due.add(key)
        self._wake.set()

    def start(self) -> None:
        if self._task is None:
            self._task = tasks.spawn_restarting(self._run, self._name)

    def stop(self) -> None:
        """Cancel the running handler."""
        self._due.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            if not self._due:
                self._wake.clear()
                await self._wake.wait()
            key = next(key for key in self._handlers if key in self._due)
            self._due.discard(key)
            try:
                await self._handlers[key]()
            except StoreUnusableError as problem:
                logger.error("%s: %s", self._name, problem)
                self._pause_seconds = UNUSABLE_PAUSE_SECONDS
                await self._pause(key)
            except (StoreError, KafkaError) as problem:
                logger.warning("%s: %s could not be processed: %s", self._name, key, problem)
                await self._pause(key)
            except Exception:  # this loop must survive any error
                logger.exception("%s: %s failed", self._name, key)
                await self._pause(key)
            else:
                self._pause_seconds = PAUSE_SECONDS_MIN

    async def _pause(self, key: str) -> None:
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
        self._due.add(key)

    def __repr__(self) -> str:
        return f"<WorkQueue {self._name} due={sorted(self._due)}>"
