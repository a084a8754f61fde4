"""Moves partitions between the folders of this broker: decides when the next piece is copied, and by whom.

A move that cannot go on (the disk is full, the partition is deleted, its folder fails) ends with one line, and the
partition stays where it is. A move that a stop interrupts begins anew with the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.logs.checkpointing import CheckpointWriter
from ottla.broker.logs.flusher import Flusher
from ottla.quotas.copying import CopyRate
from ottla.quotas.shares import Windows
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.log_dir import LogDir
from ottla.storage.log_dirs import run_doomed
from ottla.storage.moving import PIECE_BYTES, CopyJob, LogMove

logger = logging.getLogger(__name__)

PIECES_A_SECOND: Final = 10  # of a move that is slowed down
PIECE_BYTES_MIN: Final = 64 << 10
RECOVERY_SECONDS: Final = 1.0  # between two looks whether a partition that was to be moved has recovered
WAIT_SECONDS: Final = 0.5  # after so long at most a new limit counts


class Moves:
    """All moves that are under way, at most one for each partition."""

    def __init__(
        self,
        replicas: ReplicaSet,
        live: LiveSettings,
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
        self._moves: dict[TopicPartition, LogMove] = {}
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        at_once = live.broker.num_replica_alter_log_dirs_threads or len(replicas.log_dirs.dirs)
        self._look_again: asyncio.TimerHandle | None = None
        self._slots = asyncio.Semaphore(at_once)
        self._bandwidth = asyncio.Lock()  # whoever copies under a limit waits for his share here
        num = live.broker.alter_log_dirs_replication_quota_window_num
        self._rate = CopyRate(Windows(num, live.broker.alter_log_dirs_replication_quota_window_size_seconds * 1000))

    def into(self, path: str) -> list[LogMove]:
        """The moves that have this folder as their aim."""
        return [move for move in self._moves.values() if move.is_wanted and move.target.path == path]

    def start(self, partition: Partition, target: LogDir) -> None:
        """Move a partition there. An earlier move to another folder ends; one to its own folder is none."""
        name = partition.name
        earlier = self._moves.get(name)
        if earlier is not None:
            if earlier.target is target:
                return
            earlier.is_wanted = False
        if self._replicas.log_dirs.folder_of(partition.log) is target:
            return
        move = self._moves[name] = LogMove(partition.log, target)
        run = self._run(partition, move, self._tasks.get(name))
        self._tasks[name] = tasks.start(run, f"moving {name}")

    def stop(self) -> None:
        """The broker stops: what is under way begins anew with the next start."""
        for task in self._tasks.values():
            task.cancel()
        if self._look_again is not None:
            self._look_again.cancel()

    def resume(self) -> None:
        """Begin moves again that the last run did not finish; what they had copied goes."""
        for log_dir in self._replicas.log_dirs.online:
            waiting = [future for future in log_dir.futures if future[0] in self._replicas.recovering]
            for name, folder in log_dir.futures:
                partition = self._replicas.get(*name)
                if partition is not None:
                    run_doomed(log_dir.doom_folder(name, folder, 0))
                    self.start(partition, log_dir)
                elif (name, folder) not in waiting:
                    logger.warning("%s is left alone: the partition it is a copy of is not served here", folder)
            log_dir.futures = waiting
        if any(log_dir.futures for log_dir in self._replicas.log_dirs.online):
            self._look_again = asyncio.get_running_loop().call_later(RECOVERY_SECONDS, self.resume)

    def _forget(self, name: TopicPartition, move: LogMove) -> None:
        if self._moves.get(name) is move:
            del self._moves[name], self._tasks[name]

    # ---- one move

    async def _run(self, partition: Partition, move: LogMove, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        has_moved = False
        try:
            async with self._slots:
                await self._in_worker(move.begin)
                has_moved = await self._copy(partition, move)
                if has_moved:
                    await self._retire_source(partition, move)
        except OSError as error:
            self._on_error(move, error)
        except KafkaError as refusal:
            logger.error("cannot move %s to %s: %s", move.partition, move.target.path, refusal)
        finally:
            move.log.is_moving = False
            move.target.arriving.pop(move.partition, None)
            self._forget(move.partition, move)
        if not has_moved:
            await self._in_worker(move.clear)

    def _on_error(self, move: LogMove, error: OSError) -> None:
        logger.error("cannot move %s to %s: %s", move.partition, move.target.path, error)
        is_of_target = bool(error.filename) and str(error.filename).startswith(f"{move.target.path}/")
        if is_of_target and not files.is_passing(error):
            self._replicas.log_dirs.fail(move.target, f"cannot write: {error}")

    async def _copy(self, partition: Partition, move: LogMove) -> bool:
        """Whether the partition is in its new folder."""
        logger.info("moving %s from %s to %s", move.partition, move.source_directory, move.target.path)
        move.log.is_moving = True
        while self._may_go_on(partition, move):
            job = move.next_job(self._piece_bytes())
            if job is not None:
                await self._copy_piece(move, job)
            elif move.target.arriving.get(move.partition) != move.log.log_start_offset:
                # Else records that were deleted would be back after a crash right behind the move.
                move.target.arriving[move.partition] = move.log.log_start_offset
                await self._checkpoints.keep_start_offsets(move.target)
            elif move.finish():
                return True
        logger.info("the move of %s to %s has ended: it is not wanted any more", move.partition, move.target.path)
        return False

    async def _copy_piece(self, move: LogMove, job: CopyJob) -> None:
        try:
            await self._wait_for_turn(move, job.length)
            await self._in_worker(job.run)
        finally:
            job.close()
        move.note(job)

    def _may_go_on(self, partition: Partition, move: LogMove) -> bool:
        has_failed = move.log.failure is not None or move.target.failure is not None
        return move.is_wanted and not partition.is_deleted and not has_failed

    async def _retire_source(self, partition: Partition, move: LogMove) -> None:
        """Only what a flush has brought to disk may replace the old files."""
        logger.info("moved %s to %s", move.partition, move.target.path)
        source = self._replicas.log_dirs.settle(move.log, move.source_directory)
        is_safe = await self._flusher.flush(partition) or partition.is_deleted
        if not is_safe or source.failure is not None:
            return  # both stay; the next start keeps the one that reaches further
        due_ms = self._clock.now_ms() + move.log.settings.file_delete_delay_ms
        doomed = source.doom_folder(move.partition, move.source_directory, due_ms)
        await self._in_worker(doomed.run)
        doomed.finish()

    # ---- speed

    @property
    def _bytes_per_second(self) -> int:
        return self._live.broker.replica_alter_log_dirs_io_max_bytes_per_second

    def _piece_bytes(self) -> int:
        return min(PIECE_BYTES, max(PIECE_BYTES_MIN, self._bytes_per_second // PIECES_A_SECOND))

    async def _wait_for_turn(self, move: LogMove, length: int) -> None:
        """Keep all moves together below the limit, which may change at any time."""
        async with self._bandwidth:
            while move.is_wanted and (wait_ms := self._wait_ms()) > 0:
                await asyncio.sleep(min(WAIT_SECONDS, wait_ms / 1000))
            self._rate.note(length, self._clock.monotonic_ms())

    def _wait_ms(self) -> int:
        return self._rate.wait_ms(self._bytes_per_second, self._clock.monotonic_ms())

    async def _in_worker(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._workers, work)

    def __repr__(self) -> str:
        return f"<Moves {list(self._moves.values())}>"
