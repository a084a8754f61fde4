"""Flushes logs to disk in worker threads: the loop starts a flush and hears of its end, but never waits for a disk."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from ottla.base.errors import KafkaError
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)


class Flusher:
    """Runs flushes; a log whose flush fails takes no more writes, since nobody can know what reached the disk."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, partition: Partition) -> None:
        """Flush now because an append asked for it; the partition holds its replies back until on_flushed()."""
        task = asyncio.get_running_loop().create_task(self._flush_and_tell(partition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush_and_tell(self, partition: Partition) -> None:
        if await self.flush(partition):
            partition.on_flushed()
        else:
            partition.wake_all()

    async def flush(self, partition: Partition) -> bool:
        """Bring everything appended so far to the disk; False if the disk refused."""
        log = partition.log
        try:
            job = log.begin_flush()
            if job is not None:
                await asyncio.get_running_loop().run_in_executor(self._workers, job.run)
                log.end_flush(job)
        except KafkaError as error:
            logger.error("%s", error)
            return False
        return True
