"""Checkpoint files of the log directories, and the last metadata transaction recorded in each of them.

Checkpoint files are written one at a time, by a worker thread. Their content is collected right before the write: the
later of two writers writes the later state. A file with unchanged content is not written: many simultaneous callers
cost one or two writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Final

from ottla.base import tasks
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.checkpoints import (
    CLEANED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.log_dir import CheckpointWrite, LogDir

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]

PAUSE_SECONDS: Final = 0.05


class CheckpointWriter:
    """Writes all checkpoint files while the broker runs."""

    def __init__(self, replicas: ReplicaSet, workers: ThreadPoolExecutor) -> None:
        self._replicas = replicas
        self._workers = workers
        self._write_lock = asyncio.Lock()
        self._written: dict[tuple[str, str], Offsets] = {}  # content by directory and file name

    # ---- periodic

    async def write_recovery_points(self) -> None:
        await self._write_in_all_dirs(RECOVERY_POINT_FILE, LogDir.recovery_points)

    async def write_start_offsets(self) -> None:
        await self._write_in_all_dirs(LOG_START_OFFSET_FILE, LogDir.start_offsets)

    async def write_high_watermarks(self) -> None:
        await self._write_in_all_dirs(
            HIGH_WATERMARK_FILE,
            lambda log_dir: log_dir.high_watermark_checkpoint(self._replicas.high_watermarks()),
        )

    async def write_cleaned_offsets(self) -> None:
        await self._write_in_all_dirs(CLEANED_OFFSET_FILE, LogDir.cleaned_offsets)

    async def _write_in_all_dirs(self, name: str, collect: Callable[[LogDir], Offsets]) -> None:
        for log_dir in self._replicas.log_dirs.online:
            async with self._write_lock:
                await self._write(log_dir, name, collect(log_dir))

    # ---- on request

    async def sync_start_offsets(self, log_dir: LogDir) -> None:
        """Write the log start offsets; on return they would survive a crash. Raises KafkaError."""
        async with self._write_lock:
            if log_dir.offline_reason is None:
                await self._write(log_dir, LOG_START_OFFSET_FILE, log_dir.start_offsets())
        if log_dir.offline_reason is not None or self._written.get((log_dir.path, LOG_START_OFFSET_FILE)) is None:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Cannot write to {log_dir.path}")

    # ---- one file

    async def _write(self, log_dir: LogDir, name: str, offsets: Offsets) -> None:
        key = (log_dir.path, name)
        loop = asyncio.get_running_loop()
        is_there = await loop.run_in_executor(self._workers, os.path.exists, f"{log_dir.path}/{name}")
        if is_there and self._written.get(key) == offsets:
            return  # a missing file is written again, which detects a missing directory
        checkpoints = CheckpointWrite(log_dir.path, {name: dict(offsets)})
        self._written.pop(key, None)
        await loop.run_in_executor(self._workers, self._write_timed, checkpoints)
        if checkpoints.is_written:
            self._written[key] = offsets
        elif checkpoints.error is not None and not files.is_transient(checkpoints.error):
            self._replicas.log_dirs.take_offline(log_dir, f"cannot write {name}: {checkpoints.error}")

    def _write_timed(self, checkpoints: CheckpointWrite) -> None:
        """Write a checkpoint file, in a worker thread.

        The file is small, so the duration shows the state of the disk.
        """
        with self._replicas.log_dirs.sync_times.measure(checkpoints.path):
            checkpoints.write()

    def __repr__(self) -> str:
        return f"<CheckpointWriter {len(self._written)} files up to date>"


class MetadataTransactionRecorder:
    """Records in each log directory the last metadata transaction that created or deleted a partition in it.

    Only standalone brokers have one. The number is read when the store has committed the transaction, and written by a
    worker thread while the partition directories are created; nothing waits for it. It is written at once, which covers
    a killed process, and synced for all transactions within PAUSE_SECONDS. A power failure can only leave a number that
    is too low, which reports no loss. All methods run on the event loop.
    """

    def __init__(self, workers: Executor, last_transaction: Callable[[], int]) -> None:
        self._workers = workers
        self._last_transaction = last_transaction
        self._due: dict[LogDir, int] = {}
        self._is_woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def record(self, log_dir: LogDir) -> None:
        """Record that the last transaction created or deleted a partition in this directory."""
        number = self._last_transaction()
        if number <= max(log_dir.metadata_transaction or 0, self._due.get(log_dir, 0)):
            return
        self._due[log_dir] = number
        self._is_woken.set()
        if self._task is None:
            self._task = tasks.spawn(self._run(), "recording metadata transactions")

    async def wait_until_recorded(self) -> None:
        """Wait until all numbers are written."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            while self._due:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await self._write_pending()
                due, self._due = self._due, {}
                await self._write(due, is_durable=True)
        finally:
            self._task = None

    async def _write_pending(self) -> None:
        while True:
            self._is_woken.clear()
            await self._write(dict(self._due), is_durable=False)
            await self._is_woken.wait()

    async def _write(self, due: dict[LogDir, int], *, is_durable: bool) -> None:
        work = partial(write_all, due, is_durable=is_durable)
        await asyncio.get_running_loop().run_in_executor(self._workers, work)

    def __repr__(self) -> str:
        return f"<MetadataTransactionRecorder {self._due}>"


def write_all(due: dict[LogDir, int], *, is_durable: bool) -> None:
    """Write all numbers, in a worker thread. After a failure the number stays too low, which reports no loss, until the
    next one.
    """
    for log_dir, number in due.items():
        try:
            log_dir.record_transaction(number, is_durable=is_durable)
        except OSError as error:
            logger.warning("cannot record metadata transaction %d in %s: %s", number, log_dir.path, error)
