"""Moves of partitions between log directories of this broker (Kafka's ReplicaAlterLogDirs).

A move that cannot continue (disk full, partition deleted, directory failed) ends with one log line; the partition stays
in its directory. A move interrupted by a stop is restarted at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.log_manager.checkpoints import CheckpointWriter
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.offload import run_in_worker
from ottla.quotas.meter_registry import Windows
from ottla.quotas.replication_rate import ReplicationQuotaRate
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.log_dir import LogDir
from ottla.storage.log_dirs import run_dir_delete
from ottla.storage.log_move import COPY_BYTES_MAX, FutureLog, SegmentCopyJob

logger = logging.getLogger(__name__)

CHUNKS_PER_SECOND: Final = 10  # of a throttled move
CHUNK_BYTES_MIN: Final = 64 << 10
RECOVERY_CHECK_SECONDS: Final = 1.0  # between two checks whether a partition to move has recovered
WAIT_SECONDS: Final = 0.5  # maximum time until a changed limit takes effect


class LogDirMoves:
    """All running moves, at most one per partition."""

    def __init__(
        self,
        replicas: ReplicaSet,
        live: DynamicBrokerConfig,
        clock: Clock,
        checkpoints: CheckpointWriter,
        flusher: Flusher,
        workers: ThreadPoolExecutor,
    ) -> None:
        self._replicas = replicas
        self._live = live
        self._clock = clock
        self._checkpoints = checkpoints
        self._flusher = flusher
        self._workers = workers
        self._moves: dict[TopicPartition, FutureLog] = {}
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        at_once = live.broker.num_replica_alter_log_dirs_threads or len(replicas.log_dirs.dirs)
        self._recovery_timer: asyncio.TimerHandle | None = None
        self._slots = asyncio.Semaphore(at_once)
        self._bandwidth = asyncio.Lock()  # throttled copies wait here for bandwidth
        num = live.broker.alter_log_dirs_replication_quota_window_num
        self._rate = ReplicationQuotaRate(
            Windows(num, live.broker.alter_log_dirs_replication_quota_window_size_seconds * 1000)
        )

    def moves_into(self, path: str) -> list[FutureLog]:
        """Return the moves into this directory."""
        return [move for move in self._moves.values() if move.is_wanted and move.target.path == path]

    def start(self, partition: Partition, target: LogDir) -> None:
        """Move a partition. An earlier move of it to another directory ends; a move to its current directory does
        nothing.
        """
        name = partition.name
        earlier = self._moves.get(name)
        if earlier is not None:
            if earlier.target is target:
                return
            earlier.is_wanted = False
        if self._replicas.log_dirs.log_dir_of(partition.log) is target:
            return
        move = self._moves[name] = FutureLog(partition.log, target)
        run = self._run(partition, move, self._tasks.get(name))
        self._tasks[name] = tasks.spawn(run, f"moving {name}")

    def stop(self) -> None:
        """Stop all moves; they are restarted at the next start of the broker."""
        for task in self._tasks.values():
            task.cancel()
        if self._recovery_timer is not None:
            self._recovery_timer.cancel()

    def resume(self) -> None:
        """Restart moves that the last run did not finish; their partial copies are deleted."""
        for log_dir in self._replicas.log_dirs.online:
            waiting = [future for future in log_dir.future_dirs if future[0] in self._replicas.recovering_partitions]
            for name, folder in log_dir.future_dirs:
                partition = self._replicas.get(*name)
                if partition is not None:
                    run_dir_delete(log_dir.delete_directory(name, folder, 0))
                    self.start(partition, log_dir)
                elif (name, folder) not in waiting:
                    logger.warning("%s is kept unused: its partition is not served here", folder)
            log_dir.future_dirs = waiting
        if any(log_dir.future_dirs for log_dir in self._replicas.log_dirs.online):
            self._recovery_timer = asyncio.get_running_loop().call_later(RECOVERY_CHECK_SECONDS, self.resume)

    def _remove(self, name: TopicPartition, move: FutureLog) -> None:
        if self._moves.get(name) is move:
            del self._moves[name], self._tasks[name]

    # ---- one move

    async def _run(self, partition: Partition, move: FutureLog, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        has_moved = False
        try:
            async with self._slots:
                await run_in_worker(self._workers, move.begin)
                has_moved = await self._copy(partition, move)
                if has_moved:
                    await self._retire_source(partition, move)
        except OSError as error:
            self._on_error(move, error)
        except KafkaError as refusal:
            logger.error("cannot move %s to %s: %s", move.partition, move.target.path, refusal)
        finally:
            move.log.is_moving_log_dir = False
            move.target.incoming_start_offsets.pop(move.partition, None)
            self._remove(move.partition, move)
        if not has_moved:
            await run_in_worker(self._workers, move.delete_copy)

    def _on_error(self, move: FutureLog, error: OSError) -> None:
        logger.error("cannot move %s to %s: %s", move.partition, move.target.path, error)
        is_of_target = bool(error.filename) and str(error.filename).startswith(f"{move.target.path}/")
        if is_of_target and not files.is_transient(error):
            self._replicas.log_dirs.take_offline(move.target, f"cannot write: {error}")

    async def _copy(self, partition: Partition, move: FutureLog) -> bool:
        """Return whether the partition is in its new directory."""
        logger.info("moving %s from %s to %s", move.partition, move.source_directory, move.target.path)
        move.log.is_moving_log_dir = True
        while self._may_continue(partition, move):
            job = move.next_job(self._piece_bytes())
            if job is not None:
                await self._copy_piece(move, job)
            elif move.target.incoming_start_offsets.get(move.partition) != move.log.log_start_offset:
                # Otherwise a crash right after the move would restore deleted records.
                move.target.incoming_start_offsets[move.partition] = move.log.log_start_offset
                await self._checkpoints.sync_start_offsets(move.target)
            elif move.finish():
                return True
        logger.info("the move of %s to %s was cancelled", move.partition, move.target.path)
        return False

    async def _copy_piece(self, move: FutureLog, job: SegmentCopyJob) -> None:
        try:
            await self._wait_for_turn(move, job.length)
            await run_in_worker(self._workers, job.run)
        finally:
            job.close()
        move.finish_job(job)

    def _may_continue(self, partition: Partition, move: FutureLog) -> bool:
        has_failed = move.log.offline_reason is not None or move.target.offline_reason is not None
        return move.is_wanted and not partition.is_deleted and not has_failed

    async def _retire_source(self, partition: Partition, move: FutureLog) -> None:
        """Flush the copy and remove the source: only flushed data may replace the old files."""
        logger.info("moved %s to %s", move.partition, move.target.path)
        source = self._replicas.log_dirs.complete_move(move.log, move.source_directory)
        is_safe = await self._flusher.flush(partition) or partition.is_deleted
        if not is_safe or source.offline_reason is not None:
            return  # both copies stay; the next start keeps the longer one
        if source.metadata_transaction is not None:  # the number must survive the removal of the old directory
            await run_in_worker(self._workers, move.target.record_transaction, source.metadata_transaction)
        due_ms = self._clock.now_ms() + move.log.settings.file_delete_delay_ms
        doomed = source.delete_directory(move.partition, move.source_directory, due_ms)
        await run_in_worker(self._workers, doomed.run)
        doomed.finish()

    # ---- speed

    @property
    def _bytes_per_second(self) -> int:
        return self._live.broker.replica_alter_log_dirs_io_max_bytes_per_second

    def _piece_bytes(self) -> int:
        return min(COPY_BYTES_MAX, max(CHUNK_BYTES_MIN, self._bytes_per_second // CHUNKS_PER_SECOND))

    async def _wait_for_turn(self, move: FutureLog, length: int) -> None:
        """Wait until the next chunk keeps all moves below the limit, which may change at any time."""
        async with self._bandwidth:
            while move.is_wanted and (wait_ms := self._wait_ms()) > 0:
                await asyncio.sleep(min(WAIT_SECONDS, wait_ms / 1000))
            self._rate.record(length, self._clock.monotonic_ms())

    def _wait_ms(self) -> int:
        return self._rate.wait_ms(self._bytes_per_second, self._clock.monotonic_ms())

    def __repr__(self) -> str:
        return f"<LogDirMoves {list(self._moves.values())}>"
