"""Writes the checkpoint files of the log folders: one file at a time, in a worker thread.

What a file says is gathered when its turn comes, so that of two writers the later one always has the later word. A
file that says so already is not written again: many callers at once cost one or two writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

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
from ottla.storage.log_dir import Checkpoints, LogDir

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]


class CheckpointWriter:
    """The only one who writes checkpoint files while the broker runs."""

    def __init__(self, replicas: ReplicaSet, workers: ThreadPoolExecutor) -> None:
        self._replicas = replicas
        self._workers = workers
        self._one_at_a_time = asyncio.Lock()
        self._written: dict[tuple[str, str], Offsets] = {}  # what stands in which file of which folder

    # ---- by the clock

    async def write_recovery_points(self) -> None:
        for log_dir in self._replicas.log_dirs.online:
            async with self._one_at_a_time:
                await self._write(log_dir, RECOVERY_POINT_FILE, log_dir.recovery_points())

    async def write_start_offsets(self) -> None:
        for log_dir in self._replicas.log_dirs.online:
            async with self._one_at_a_time:
                await self._write(log_dir, LOG_START_OFFSET_FILE, log_dir.start_offsets())

    async def write_high_watermarks(self) -> None:
        for log_dir in self._replicas.log_dirs.online:
            async with self._one_at_a_time:
                offsets = log_dir.replicated_offsets(self._replicas.high_watermarks())
                await self._write(log_dir, HIGH_WATERMARK_FILE, offsets)

    async def write_cleaned_offsets(self) -> None:
        for log_dir in self._replicas.log_dirs.online:
            async with self._one_at_a_time:
                await self._write(log_dir, CLEANED_OFFSET_FILE, log_dir.cleaned_offsets())

    # ---- on request

    async def keep_start_offsets(self, log_dir: LogDir) -> None:
        """Return when where logs start now would survive a crash; KafkaError if the disk does not take it."""
        async with self._one_at_a_time:
            if log_dir.failure is None:
                await self._write(log_dir, LOG_START_OFFSET_FILE, log_dir.start_offsets())
        if log_dir.failure is not None or self._written.get((log_dir.path, LOG_START_OFFSET_FILE)) is None:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Cannot write to {log_dir.path}")

    # ---- one file

    async def _write(self, log_dir: LogDir, name: str, offsets: Offsets) -> None:
        key = (log_dir.path, name)
        loop = asyncio.get_running_loop()
        is_there = await loop.run_in_executor(self._workers, os.path.exists, f"{log_dir.path}/{name}")
        if is_there and self._written.get(key) == offsets:
            return  # a file that has vanished is written anew: so a folder that has vanished is noticed
        checkpoints = Checkpoints(log_dir.path, {name: dict(offsets)})
        self._written.pop(key, None)
        await loop.run_in_executor(self._workers, self._write_timed, checkpoints)
        if checkpoints.is_written:
            self._written[key] = offsets
        elif checkpoints.error is not None and not files.is_passing(checkpoints.error):
            self._replicas.log_dirs.fail(log_dir, f"cannot write {name}: {checkpoints.error}")

    def _write_timed(self, checkpoints: Checkpoints) -> None:
        """In a worker thread. It is little: so how long it takes tells how the disk is."""
        with self._replicas.log_dirs.sync_times.timed(checkpoints.path):
            checkpoints.write()

    def __repr__(self) -> str:
        return f"<CheckpointWriter {len(self._written)} files up to date>"
