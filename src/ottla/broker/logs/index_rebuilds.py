"""Damaged indexes that readers came across: rebuilt by workers, each once, while the readers wait."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor

from ottla.base import tasks
from ottla.storage.index_rebuild import IndexRebuild
from ottla.storage.log import Log
from ottla.storage.segment import RebuildNeededError, Segment
from ottla.storage.transaction_check import TransactionIndexWrongError, TransactionRebuild

logger = logging.getLogger(__name__)


class IndexRebuilds:
    """The rebuilds under way."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._running: dict[Segment | Log, asyncio.Task[None]] = {}

    async def wait_for(self, needed: RebuildNeededError | TransactionIndexWrongError) -> None:
        """Return when there are new indexes. Everybody who found the same damage waits for the same work."""
        if isinstance(needed, RebuildNeededError):
            if needed.segment not in self._running:
                self._start(needed.segment, IndexRebuild(needed.segment, needed.why))
            await asyncio.shield(self._running[needed.segment])
        else:
            await self.check_transactions(needed.log)

    async def check_transactions(self, log: Log) -> None:
        """Return when the log's transaction indexes are what its markers say."""
        if log not in self._running:
            self._start(log, TransactionRebuild(log))
        await asyncio.shield(self._running[log])

    def _start(self, subject: Segment | Log, rebuild: IndexRebuild | TransactionRebuild) -> None:
        task = self._running[subject] = tasks.start(self._rebuild(rebuild), repr(rebuild))
        task.add_done_callback(lambda _: self._running.pop(subject, None))

    async def _rebuild(self, rebuild: IndexRebuild | TransactionRebuild) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, rebuild.run)
        except OSError as error:
            logger.error("%r failed: %s", rebuild, error)
        finally:
            rebuild.finish()

    def __repr__(self) -> str:
        return f"<IndexRebuilds {len(self._running)} running>"
