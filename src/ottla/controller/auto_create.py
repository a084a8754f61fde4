"""Topics that come into being because somebody asks for them.

Many clients ask at once, and ask again: a name that is being created is waited for, not created twice, and names that
come in meanwhile share the next transaction. A client that makes up names is held to a rate: what exceeds it is not
created now, the client is told that the topic is unknown, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.controller.decisions.machine import NewTopic, TopicResult

logger = logging.getLogger(__name__)

BURST_MAX: Final = 1_000
TOPICS_PER_SECOND: Final = 100
BATCH_MAX: Final = 100

CreateTopics = Callable[[Sequence[NewTopic]], Awaitable[list[TopicResult]]]


class AutoCreation:
    """Creates topics with the broker's defaults, each once."""

    def __init__(self, create: CreateTopics, clock: Clock) -> None:
        self._create = create
        self._clock = clock
        self._allowance = float(BURST_MAX)
        self._allowance_at_ms = clock.monotonic_ms()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._worker: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AutoCreation waiting={len(self._waiting)} allowance={self._allowance:.0f}>"

    async def ensure(self, names: Iterable[str]) -> None:
        """Wait until each of the names was tried. Internal topics are left to the coordinators that own them."""
        futures = [future for name in names if (future := self._enter(name)) is not None]
        if futures:
            await asyncio.wait(futures)

    def _enter(self, name: str) -> asyncio.Future[None] | None:
        found = self._waiting.get(name)
        if found is not None:
            return found
        if name in INTERNAL_TOPICS or not self._take_allowance():
            return None
        future = self._waiting[name] = asyncio.get_running_loop().create_future()
        if self._worker is None:
            self._worker = tasks.start(self._work(), "topics that were asked for")
        return future

    def _take_allowance(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._allowance_at_ms) * TOPICS_PER_SECOND / 1000
        self._allowance = min(BURST_MAX, self._allowance + earned)
        self._allowance_at_ms = now_ms
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    async def _work(self) -> None:
        """Create what is waiting, batch by batch. A refusal is no failure: whoever asked looks at the image."""
        try:
            while self._waiting:
                batch = list(self._waiting)[:BATCH_MAX]
                try:
                    await self._create([NewTopic(name) for name in batch])
                except KafkaError as refusal:
                    logger.warning("cannot create %d topics that were asked for: %s", len(batch), refusal)
                except Exception:  # others wait behind these
                    logger.exception("cannot create %d topics that were asked for", len(batch))
                finally:
                    for name in batch:
                        self._waiting.pop(name).set_result(None)
        finally:
            self._worker = None
