"""Flushes logs to disk in worker threads: the loop starts a flush and hears of its end, but never waits for a disk."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.metrics.histogram import TIMES_NS, Histogram
from ottla.replication.partition import Partition
from ottla.storage.flush import FlushJob
from ottla.storage.sync_times import SyncTimes

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class Flusher:
    """Runs flushes; a log whose flush fails takes no more writes, since nobody can know what reached the disk."""

    def __init__(self, workers: ThreadPoolExecutor, sync_times: SyncTimes) -> None:
        self._workers = workers
        self._sync_times = sync_times
        self.flush_ns = Histogram(TIMES_NS)

    def start(self, partition: Partition) -> None:
        """Flush now because an append asked for it; the partition holds its replies back until on_flushed()."""
        tasks.keep_running(partial(self._flush_and_tell, partition), f"flushing {partition.name}")

    def start_rolled(self, partition: Partition) -> None:
        """A segment is full and another one takes the appends: bring it to disk, while nobody waits for that."""
        partition.log.has_rolled = False
        tasks.start(self.flush(partition, only_rolled=True), f"flushing {partition.name}")

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
                folder = os.path.dirname(log.directory)
                taken_ns = await asyncio.get_running_loop().run_in_executor(self._workers, self._run_timed, job, folder)
                self.flush_ns.add(taken_ns)
                log.end_flush(job)
        except KafkaError as error:
            logger.error("%s", error)
            return False
        return True

    def _run_timed(self, job: FlushJob, folder: str) -> int:
        """In a worker thread: sync, and tell how long the disk took."""
        started_ns = time.monotonic_ns()
        with self._sync_times.timed(folder):
            job.run()
        return time.monotonic_ns() - started_ns
