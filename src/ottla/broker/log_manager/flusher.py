"""Flushing of logs to disk by worker threads: the event loop never waits for a disk."""

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
from ottla.storage.flush import FlushJob, SyncLatency

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class Flusher:
    """Runs flushes. A log whose flush failed accepts no more appends: the state of the disk is unknown."""

    def __init__(self, workers: ThreadPoolExecutor, sync_times: SyncLatency) -> None:
        self._workers = workers
        self._sync_times = sync_times
        self.flush_ns = Histogram(TIMES_NS)

    def start(self, partition: Partition) -> None:
        """Flush now for an append; the partition defers its responses until on_flushed()."""
        tasks.spawn_restarting(partial(self._flush_until_done, partition), f"flushing {partition.name}")

    def start_rolled(self, partition: Partition) -> None:
        """Flush a rolled segment in the background."""
        partition.log.has_rolled = False
        tasks.spawn(self.flush(partition, only_rolled=True), f"flushing {partition.name}")

    async def _flush_until_done(self, partition: Partition) -> None:
        """Repeat until the flush succeeds or is obsolete. Until then no new record is visible and no other flush
        starts.
        """
        while not await self.flush(partition):
            if partition.log.offline_reason is not None or partition.is_deleted:
                partition.wake_all()
                return
            await asyncio.sleep(RETRY_SECONDS)  # a full disk
        partition.on_flushed()

    async def flush(self, partition: Partition, *, only_rolled: bool = False) -> bool:
        """Flush everything appended so far; False if the disk failed."""
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
        """Sync in a worker thread, and return how long the disk took."""
        started_ns = time.monotonic_ns()
        with self._sync_times.measure(folder):
            job.run()
        return time.monotonic_ns() - started_ns
