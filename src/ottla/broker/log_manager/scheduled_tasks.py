"""Scheduled tasks of a broker: retention, flushes by age, checkpoints, removal of deleted files (Kafka's LogManager).

Each task visits all partitions, a few at a time, and yields to the event loop in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock, SteppedClock
from ottla.base.errors import KafkaError
from ottla.base.topic_settings import NEVER_MS
from ottla.broker.log_manager.checkpoints import CheckpointWriter
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.node import Node
from ottla.broker.offload import for_each_partition, run_in_worker
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log_dirs import remove_paths
from ottla.storage.retention import SegmentRenameJob

logger = logging.getLogger(__name__)

REMOVAL_SECONDS = 1.0
FLUSH_MS_MIN = 10
CHECKPOINT_MS_MIN = 10

ScheduledTask = Callable[[], Awaitable[None]]


class TaskScheduler:
    """Starts and stops the scheduled tasks."""

    def __init__(self, node: Node, replicas: ReplicaSet, flusher: Flusher, checkpoints: CheckpointWriter) -> None:
        self._node = node
        self._replicas = replicas
        self._flusher = flusher
        self._checkpoints = checkpoints
        self._clock: Clock = node.clock
        self._stepped_clock = SteppedClock(node.clock, self._on_clock_step)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        settings = self._node.settings
        first_ms = settings.log_initial_task_delay_ms
        self.schedule(
            "retention", first_ms, lambda: self._node.settings.log_retention_check_interval_ms, self.apply_retention
        )
        self.schedule("flush", first_ms, self._flush_interval_ms, self.flush_old)
        producers_ms = settings.producer_id_expiration_check_interval_ms
        self.schedule("expired producers", producers_ms, lambda: producers_ms, self.remove_expired_producers)
        self._start_checkpoints(settings, first_ms)
        self.schedule("removal", 0, lambda: int(REMOVAL_SECONDS * 1000), self.remove_deleted)

    def _start_checkpoints(self, settings: BrokerSettings, first_ms: int) -> None:
        """Start the checkpoints of high watermarks at once, as in Kafka, which detects a failed disk early."""
        checkpoints = self._checkpoints
        recovery_ms = max(CHECKPOINT_MS_MIN, settings.log_flush_offset_checkpoint_interval_ms)
        start_ms = max(CHECKPOINT_MS_MIN, settings.log_flush_start_offset_checkpoint_interval_ms)
        watermark_ms = max(CHECKPOINT_MS_MIN, settings.replica_high_watermark_checkpoint_interval_ms)
        self.schedule("recovery points", first_ms, lambda: recovery_ms, checkpoints.write_recovery_points)
        self.schedule("start offsets", first_ms, lambda: start_ms, checkpoints.write_start_offsets)
        self.schedule("high watermarks", 0, lambda: watermark_ms, checkpoints.write_high_watermarks)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _flush_interval_ms(self) -> int:
        """Return the interval: at most a second, for the flush.ms of topics."""
        return max(FLUSH_MS_MIN, min(1000, self._node.settings.log_flush_scheduler_interval_ms))

    def schedule(self, name: str, first_ms: int, interval_ms: Callable[[], int], chore: ScheduledTask) -> None:
        """Run the task periodically until stop()."""

        async def repeat() -> None:
            nonlocal first_ms
            await asyncio.sleep(first_ms / 1000)
            first_ms = 0  # after a failure, the delay is not as long as the first one
            while True:
                await chore()
                await asyncio.sleep(interval_ms() / 1000)

        self._tasks.append(tasks.spawn_restarting(repeat, name))

    # ---- tasks

    async def apply_retention(self) -> None:
        """Delete segments beyond the retention limits; worker threads rename their files."""
        begun: list[tuple[Partition, SegmentRenameJob]] = []
        await self._for_each(lambda partition: self._apply_partition_retention(partition, begun))
        for partition, job in begun:
            await run_in_worker(self._node.workers, job.run)
            try:
                partition.log.finish_rename(job)
            except KafkaError as refusal:
                self._log_failure(partition, refusal)

    def _apply_partition_retention(self, partition: Partition, begun: list[tuple[Partition, SegmentRenameJob]]) -> None:
        try:
            job = partition.log.begin_deletion(self._clock.now_ms(), partition.high_watermark)
        except KafkaError as refusal:
            self._log_failure(partition, refusal)
        else:
            if job is not None:
                begun.append((partition, job))

    def _log_failure(self, partition: Partition, refusal: KafkaError) -> None:
        """Log the failure of a full or failing disk, and continue with the other partitions."""
        logger.warning("cannot delete old segments of %s: %s", partition.name, refusal)

    async def remove_expired_producers(self) -> None:
        """Remove producers without a write for producer.id.expiration.ms."""
        now_ms, silent_ms = self._clock.now_ms(), self._node.settings.producer_id_expiration_ms
        await for_each_partition(
            self._replicas, lambda partition: partition.log.producer_state.remove_expired(now_ms, silent_ms)
        )

    async def flush_old(self) -> None:
        """Flush logs whose oldest unflushed record is older than flush.ms."""
        now_ms = self._clock.monotonic_ms()
        due: list[Partition] = []
        await for_each_partition(
            self._replicas, lambda partition: due.append(partition) if _is_flush_due(partition, now_ms) else None
        )
        for partition in due:
            partition.flushed_ms = now_ms
            await self._flusher.flush(partition)

    async def remove_deleted(self) -> None:
        """Remove the files of deleted segments and partitions once their delay is over."""
        paths = self._replicas.log_dirs.take_deleted(self._stepped_clock.now_ms())
        if paths:
            await run_in_worker(self._node.workers, remove_paths, paths)

    def _on_clock_step(self, step_ms: int) -> None:
        self._replicas.log_dirs.on_clock_step(step_ms)

    async def _for_each(self, work: Callable[[Partition], None]) -> None:
        await for_each_partition(self._replicas, work)


def _is_flush_due(partition: Partition, now_ms: int) -> bool:
    flush_ms = partition.log.settings.flush_ms
    is_due = 0 <= flush_ms < NEVER_MS and now_ms - partition.flushed_ms >= flush_ms
    return is_due and partition.log.unflushed_messages > 0
