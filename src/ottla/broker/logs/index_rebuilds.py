"""Damaged indexes that readers came across: rebuilt by workers, each once, while the readers wait."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor

from ottla.storage.index_rebuild import IndexRebuild
from ottla.storage.segment import RebuildNeededError, Segment

logger = logging.getLogger(__name__)


class IndexRebuilds:
    """The rebuilds under way."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._running: dict[Segment, asyncio.Task[None]] = {}

    async def wait_for(self, needed: RebuildNeededError) -> None:
        """Return when the segment has new indexes. Everybody who found the same damage waits for the same work."""
        segment = needed.segment
        task = self._running.get(segment)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._rebuild(IndexRebuild(segment, needed.why)))
            self._running[segment] = task
            task.add_done_callback(lambda _: self._running.pop(segment, None))
        await asyncio.shield(task)

    async def _rebuild(self, rebuild: IndexRebuild) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, rebuild.run)
        except OSError as error:
            logger.error("cannot rebuild the indexes of %r: %s", rebuild.segment, error)
        finally:
            rebuild.finish()

    def __repr__(self) -> str:
        return f"<IndexRebuilds {len(self._running)} running>"
