"""Automatic creation of topics that clients request (auto.create.topics.enable).

Requests for a topic whose creation is in progress wait for it; other names are collected for the next transaction. A
token bucket limits the rate. Topics above the limit are not created now: the client gets UNKNOWN_TOPIC_OR_PARTITION
and retries.
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
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult

logger = logging.getLogger(__name__)

BURST_MAX: Final = 1_000
TOPICS_PER_SECOND: Final = 100
BATCH_MAX: Final = 100

CreateTopics = Callable[[Sequence[NewTopic]], Awaitable[list[TopicResult]]]


class AutoTopicCreationManager:
    """Creates topics with the broker's defaults, each once."""

    def __init__(self, create: CreateTopics, clock: Clock) -> None:
        self._create = create
        self._clock = clock
        self._tokens = float(BURST_MAX)
        self._tokens_at_ms = clock.monotonic_ms()
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._worker: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AutoTopicCreationManager waiting={len(self._pending)} allowance={self._tokens:.0f}>"

    async def create_missing(self, names: Iterable[str]) -> None:
        """Wait until the creation of each topic was attempted. Internal topics are created by their coordinators."""
        futures = [future for name in names if (future := self._enqueue(name)) is not None]
        if futures:
            await asyncio.wait(futures)

    def _enqueue(self, name: str) -> asyncio.Future[None] | None:
        found = self._pending.get(name)
        if found is not None:
            return found
        if name in INTERNAL_TOPICS or not self._take_token():
            return None
        future = self._pending[name] = asyncio.get_running_loop().create_future()
        if self._worker is None:
            self._worker = tasks.spawn(self._create_pending(), "automatic topic creation")
        return future

    def _take_token(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._tokens_at_ms) * TOPICS_PER_SECOND / 1000
        self._tokens = min(BURST_MAX, self._tokens + earned)
        self._tokens_at_ms = now_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    async def _create_pending(self) -> None:
        """Create the pending topics in batches. Errors are only logged: the requests look up the image afterwards."""
        try:
            while self._pending:
                batch = list(self._pending)[:BATCH_MAX]
                try:
                    await self._create([NewTopic(name) for name in batch])
                except KafkaError as refusal:
                    logger.warning("cannot create %d topics automatically: %s", len(batch), refusal)
                except Exception:  # the next batch must still be created
                    logger.exception("cannot create %d topics automatically", len(batch))
                finally:
                    for name in batch:
                        self._pending.pop(name).set_result(None)
        finally:
            self._worker = None
