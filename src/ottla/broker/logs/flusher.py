"""Flushes logs to disk in worker threads: the loop starts a flush and hears of its end, but never waits for a disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ottla.base.errors import KafkaError
from ottla.metrics.histogram import TIMES_NS, Histogram
from ottla.replication.partition import Partition
from ottla.storage.flush import FlushJob

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class Flusher:
    """Runs flushes; a log whose flush fails takes no more writes, since nobody can know what reached the disk."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self.flush_ns = Histogram(TIMES_NS)
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, partition: Partition) -> None:
        """Flush now because an append asked for it; the partition holds its replies back until on_flushed()."""
        self._run(self._flush_and_tell(partition))

    def start_rolled(self, partition: Partition) -> None:
        """A segment is full and another one takes the appends: bring it to disk, while nobody waits for that."""
        partition.log.has_rolled = False
        self._run(self.flush(partition, only_rolled=True))

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush_and_tell(self, partition: Partition) -> None:
        """Until it succeeds, or is of no use any more: nothing new is visible before, and no other flush is started."""
        while not await self.flush(partition):
            if partition.log.failure is not None or partition.is_deleted:
                partition.wake_all()
                return
            await asyncio.sleep(RETRY_SECONDS)  # a full disk
        partition.on_flushed()

    async def flush(self, partition: Partition, *, only_rolled: bool = False) -> bool:
        """Bring everything appended so far to the disk; False if the disk refused."""
        log = partition.log
        if partition.is_deleted:
            return False
        try:
            job = log.begin_flush(only_rolled=only_rolled)
            if job is not None:
                taken_ns = await asyncio.get_running_loop().run_in_executor(self._workers, _run_timed, job)
                self.flush_ns.add(taken_ns)
                log.end_flush(job)
        except KafkaError as error:
            logger.error("%s", error)
            return False
        return True


def _run_timed(job: FlushJob) -> int:
    """In a worker thread: sync, and tell how long the disk took."""
    started_ns = time.monotonic_ns()
    job.run()
    return time.monotonic_ns() - started_ns
