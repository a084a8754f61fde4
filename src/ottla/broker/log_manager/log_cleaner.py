"""Log cleaner: selects the dirtiest log, starts its compaction in another process, and replaces its segments.

storage/cleaning/plan.py makes the decisions, storage/cleaning/process.py does the work. This module connects both in
cleaner tasks (`log.cleaner.threads`, one process each). If a log is truncated, moved or deleted while it is cleaned,
the whole result is discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import DELETE, TopicSettings, is_custom
from ottla.broker.log_manager.checkpoints import CheckpointWriter
from ottla.broker.log_manager.log_dir_loader import IndexRebuilds
from ottla.broker.node import Node
from ottla.broker.offload import for_each_partition, run_in_worker
from ottla.metrics.counters import CleanerCounters
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.cleaning.job import (
    FILES_MISSING,
    FINAL_FAILURES,
    STARVED,
    CleanedGroup,
    CleanFailure,
    CleanJob,
    CleanReport,
    SegmentInfo,
    decode_reply,
)
from ottla.storage.cleaning.plan import CleanableLog, LogToClean, plan_cleaning
from ottla.storage.cleaning.swap import SegmentSwap
from ottla.storage.cleaning.writer import remove_cleaned
from ottla.storage.log import Log
from ottla.storage.segment import RebuildNeededError, Segment, first_timestamp_of, max_timestamp_of

COMMAND: Final = (sys.executable, "-m", "ottla.storage.cleaning.process")
READ_BYTES: Final = 1 << 16
STALL_TIMEOUT_SECONDS: Final = 120.0  # a working process reports progress at least every second
ENDED: Final = b""

WAIT_MS_MIN: Final = 1_000
WAIT_MS_MAX: Final = 60_000

logger = logging.getLogger(__name__)

BACKOFF_MS_MIN: Final = 50
MAP_BYTES_MAX: Final = 64 << 20  # of one process, which stays below 100 MB in total
BUFFER_BYTES_MIN: Final = 4096
IDLE_PRIORITY_BYTES_MIN: Final = 64 << 20  # smaller jobs are short enough for normal priority
FAILED_PROCESSES_MAX: Final = 10  # failed processes over one log


class CleanerDiedError(Exception):
    """The process ended, or was killed, before it was done."""

    def __init__(self, message: str, *, is_our_doing: bool = False, is_stalled: bool = False) -> None:
        super().__init__(message)
        self.was_killed = is_our_doing
        self.is_stalled = is_stalled  # the process made no progress


class CleanerProcess:
    """A cleaner process for one job at a time, started with its first job.

    The loop never waits for it: a worker thread writes jobs, and replies are read when they arrive.
    """

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._received = bytearray()
        self._is_killed = False
        self._is_idle_priority = False  # the process runs with idle priority

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else -1

    async def run(self, job: CleanJob) -> AsyncIterator[CleanedGroup | CleanReport | CleanFailure]:
        """Run a job: yields each cleaned group, then the report or the failure. Raises CleanerDiedError."""
        await self._ensure_started(job)
        self._is_idle_priority = job.uses_sched_idle
        await self._send(job.encode())
        while True:
            try:
                async with asyncio.timeout(
                    STALL_TIMEOUT_SECONDS
                ):  # wait_for() of Python 3.11 may swallow a cancellation
                    line = await self._lines.get()
            except TimeoutError:
                problem = f"it made no progress for {STALL_TIMEOUT_SECONDS:.0f} s"
                raise CleanerDiedError(problem, is_stalled=True) from None
            if line == ENDED:
                is_our_doing = self._is_killed
                raise CleanerDiedError(f"it ended with code {await self.end()}", is_our_doing=is_our_doing)
            reply = decode_reply(line)
            if isinstance(reply, int):
                continue
            yield reply
            if not isinstance(reply, CleanedGroup):
                return

    def kill(self) -> None:
        """Start ending the process; the caller of run() gets an error."""
        if self._process is not None:
            self._is_killed = True
            self._process.kill()

    async def end(self) -> int:
        """End the process and wait for its end, even if a disk does not respond; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        return await loop.run_in_executor(self._workers, process.wait)

    async def _ensure_started(self, job: CleanJob) -> None:
        fits = job.uses_sched_idle or not self._is_idle_priority
        if fits and self._process is not None and self._process.poll() is None and self._lines.empty():
            return
        await self.end()
        self._lines = asyncio.Queue()
        self._received.clear()
        self._is_killed = False
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)
        logger.info("started the cleaner as process %d", self._process.pid)

    async def _send(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, _write_whole, descriptor, data)
        except OSError as error:
            raise CleanerDiedError(f"it accepts no job: {error}") from None

    def _read(self, descriptor: int) -> None:
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            asyncio.get_running_loop().remove_reader(descriptor)
            self._lines.put_nowait(ENDED)
            if self._process is not None:
                self._process.poll()  # idle processes exit by themselves; reap them
            return
        self._received += chunk
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self._lines.put_nowait(line)

    def __repr__(self) -> str:
        return f"<CleanerProcess {self.pid}>"


def _write_whole(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class CleanerBackoff:
    """Pauses cleaning in a log directory after disk errors, usually a full disk. Each consecutive failure doubles the
    pause.
    """

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, int]] = {}  # by directory: earliest next attempt, and length of the pause

    def is_allowed(self, folder: str, now_ms: int) -> bool:
        wait = self._waits.get(folder)
        return wait is None or now_ms >= wait[0]

    def record_failure(self, folder: str, now_ms: int) -> bool:
        """Record a failure. Returns whether it is the first since the last success: only that one is logged."""
        before = self._waits.get(folder)
        wait_ms = WAIT_MS_MIN if before is None else min(2 * before[1], WAIT_MS_MAX)
        self._waits[folder] = (now_ms + wait_ms, wait_ms)
        return before is None

    def record_success(self, folder: str) -> None:
        self._waits.pop(folder, None)

    def __repr__(self) -> str:
        return f"<CleanerBackoff {self._waits}>"


class SelectedLog:
    """A log to clean, with the segments to clean."""

    def __init__(self, partition: Partition, cleanable: LogToClean) -> None:
        self.partition = partition
        self.log: Log = partition.log
        self.directory = partition.log.directory
        self.settings = partition.log.settings
        self.cleanable = cleanable
        end = cleanable.first_uncleanable_offset
        self.segments: dict[int, Segment] = {s.base_offset: s for s in self.log.segments if s.base_offset < end}

    @property
    def name(self) -> TopicPartition:
        return self.partition.name

    @property
    def folder(self) -> str:
        return os.path.dirname(self.directory)

    def is_current(self) -> bool:
        """Return whether the log is still the one that was selected."""
        is_same = self.partition.log is self.log and not self.partition.is_deleted
        return is_same and self.log.settings.cleanup_policy == self.settings.cleanup_policy

    def __repr__(self) -> str:
        return f"<SelectedLog {self.name}, {len(self.segments)} segments, {self.cleanable}>"


class LogCleaner:
    """All cleaner tasks and their shared state."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        checkpoints: CheckpointWriter,
        index_rebuilds: IndexRebuilds,
        counters: CleanerCounters,
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._index_rebuilds = index_rebuilds
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, CleanerProcess] = {}
        self._changed = asyncio.Event()
        self._in_progress: set[TopicPartition] = set()
        self._failed_processes: dict[TopicPartition, int] = {}
        self._starved: set[TopicPartition] = set()  # the processor was never idle for them
        self._backoff = CleanerBackoff()
        self._cleaner_settings = cleaner_settings(node.settings)
        self.uncleanable: dict[TopicPartition, tuple[Log, TopicSettings]] = {}  # uncleanable until they change
        self._counters = counters
        self._counters.uncleanable = self.uncleanable.keys()

    def start(self) -> None:
        if self._node.settings.log_cleaner_enable:
            self._node.dynamic_config.on_change(self._apply_settings)
            self._start_tasks()

    async def stop(self) -> None:
        """Stop at once. Unfinished work is discarded; the next start removes its files."""
        lanes = list(self._tasks.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)

    def _apply_settings(self, settings: BrokerSettings) -> None:
        """Apply changed settings. As in Kafka, they restart the cleaner."""
        new = cleaner_settings(settings)
        if new == self._cleaner_settings:
            return
        self._cleaner_settings = new
        self.uncleanable.clear()
        for process in self._processes.values():
            process.kill()
        self._changed.set()
        self._start_tasks()

    # ---- tasks

    def _start_tasks(self) -> None:
        for number in range(self._node.settings.log_cleaner_threads):
            if number not in self._tasks:
                self._tasks[number] = tasks.spawn_restarting(partial(self._run_task, number), f"cleaner {number}")

    async def _run_task(self, number: int) -> None:
        process = self._processes[number] = CleanerProcess(self._node.workers)
        try:
            while number < self._node.settings.log_cleaner_threads:
                if not await self._clean_next(process):
                    await self._wait()
            del self._tasks[number]  # log.cleaner.threads was lowered
        finally:
            del self._processes[number]
            await process.end()

    async def _wait(self) -> None:
        backoff_ms = max(BACKOFF_MS_MIN, self._node.settings.log_cleaner_backoff_ms)
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_ms / 1000):
                await self._changed.wait()

    # ---- selection

    async def _clean_next(self, process: CleanerProcess) -> bool:
        """Clean the dirtiest log; False if none is dirty or cleaning failed."""
        chosen = await self._select_log()
        if chosen is None:
            self._starved.clear()
            return False
        self._in_progress.add(chosen.name)
        try:
            return await self._clean(process, chosen)
        except CleanerDiedError as died:
            self._on_process_failure(chosen, died)
            return False
        finally:
            self._in_progress.discard(chosen.name)

    async def _select_log(self) -> SelectedLog | None:
        now_ms = self._node.clock.now_ms()
        due: list[SelectedLog] = []
        dirtiest = 0.0
        damaged: list[RebuildNeededError] = []

        def look_at(partition: Partition) -> None:
            nonlocal dirtiest
            if not self._may_clean(partition):
                return
            try:
                cleanable = plan_cleaning(log_facts(partition), now_ms)
            except RebuildNeededError as needed:
                damaged.append(needed)
            except (OSError, KafkaError) as error:
                logger.warning("cannot determine whether %s needs cleaning: %s", partition.name, error)
            else:
                dirtiest = max(dirtiest, cleanable.ratio)
                if cleanable.is_checkpoint_wrong:  # retention has removed the segments, or the end of the log was lost
                    partition.log.cleaned_offset = cleanable.first_dirty_offset
                if cleanable.needs_cleaning(partition.log.settings):
                    due.append(SelectedLog(partition, cleanable))

        await for_each_partition(self._replicas, look_at)
        self._counters.record_check(dirtiest, now_ms)
        for needed in damaged:  # these are selected next time
            await self._index_rebuilds.wait_for(needed)
        current = [chosen for chosen in due if chosen.is_current() and chosen.name not in self._in_progress]
        return max(current, key=lambda chosen: chosen.cleanable.ratio, default=None)

    def _may_clean(self, partition: Partition) -> bool:
        log = partition.log
        if (
            log.settings.cleanup_policy <= {DELETE}
            or log.offline_reason is not None
            or partition.name in self._in_progress
        ):
            return False
        if log.is_moving_log_dir:
            return False  # replaced segments would have to be copied again
        if not self._backoff.is_allowed(os.path.dirname(log.directory), self._node.clock.monotonic_ms()):
            return False
        aside = self.uncleanable.get(partition.name)
        if aside is None:
            return True
        if aside == (log, log.settings):
            return False
        del self.uncleanable[partition.name]
        return True

    # ---- cleaning

    async def _clean(self, process: CleanerProcess, chosen: SelectedLog) -> bool:
        # records of aborted transactions are removed for good: the indexes must be right
        if not chosen.log.has_verified_txn_index:
            await self._index_rebuilds.check_transactions(chosen.log)
        try:
            sizes = await run_in_worker(self._node.workers, index_sizes, chosen.directory, list(chosen.segments))
        except FileNotFoundError:
            return False  # it was truncated or moved meanwhile
        job = make_job(chosen, self._node.settings, self._node.clock.now_ms(), sizes)
        if chosen.name in self._starved:
            job = replace(job, uses_sched_idle=False)
        is_done = False
        try:
            async for reply in process.run(job):
                if isinstance(reply, CleanReport):
                    is_done = await self._finish(chosen, reply)
                elif isinstance(reply, CleanFailure):
                    self._on_failure(chosen, reply)
                elif not chosen.is_current() or not (reply.is_unchanged or await self._swap(chosen, reply)):
                    logger.info("%s has changed while it was cleaned: the result is dropped", chosen.name)
                    break
        finally:
            if not is_done:
                await process.end()
                await run_in_worker(self._node.workers, remove_leftovers, chosen.directory)
        return is_done

    async def _swap(self, chosen: SelectedLog, group: CleanedGroup) -> bool:
        """Replace segments by one cleaned segment; False if the log has changed."""
        old = [chosen.segments[base_offset] for base_offset in group.base_offsets]
        swap = SegmentSwap(chosen.log, chosen.directory, old, group)
        counts = False  # from here on a failure must not remove the new files: opening the log completes the swap
        try:
            if swap.is_possible():
                await run_in_worker(self._node.workers, swap.prepare)
                await run_in_worker(self._node.workers, swap.sync)
                if swap.is_possible() and chosen.is_current():
                    counts = True
                    swap.complete(self._node.clock.now_ms())
                    await run_in_worker(self._node.workers, swap.sync)
                    await run_in_worker(self._node.workers, swap.remove_swap_names)
                    return True
        except OSError as error:
            self._on_disk_failure(chosen, f"cannot swap in a cleaned segment of {chosen.name}: {error}")
        except KafkaError as error:  # the log is closed and has logged the reason
            logger.debug("%s", error)
        finally:
            if not counts:
                swap.cancel()
        return False

    async def _finish(self, chosen: SelectedLog, report: CleanReport) -> bool:
        if not chosen.is_current():
            return False
        chosen.log.cleaned_offset = min(report.end_offset, chosen.log.end_offset)
        self._failed_processes.pop(chosen.name, None)
        self._backoff.record_success(chosen.folder)
        self._counters.record_run(
            bytes_read=report.bytes_read,
            bytes_written=report.bytes_written,
            records_read=report.records_read,
            records_kept=report.records_kept,
            seconds=report.seconds,
        )
        logger.info(
            "cleaned %s from offset %d to %d: %d of %d records left, %.1f MB read in %.1f s",
            chosen.name,
            chosen.cleanable.first_dirty_offset,
            report.end_offset,
            report.records_kept,
            report.records_read,
            report.bytes_read / 1e6,
            report.seconds,
        )
        await self._checkpoints.write_cleaned_offsets()
        return True

    # ---- failures

    def _on_failure(self, chosen: SelectedLog, failure: CleanFailure) -> None:
        if failure.kind in FINAL_FAILURES:
            self._mark_uncleanable(chosen, failure.message)
        elif failure.kind == STARVED:
            self._starved.add(chosen.name)
        elif failure.kind != FILES_MISSING:
            self._on_disk_failure(chosen, f"cannot clean {chosen.name}: {failure.message}")

    def _on_disk_failure(self, chosen: SelectedLog, problem: str) -> None:
        if self._backoff.record_failure(chosen.folder, self._node.clock.monotonic_ms()):
            logger.warning("%s; cleaning in %s will be retried", problem, chosen.folder)

    def _on_process_failure(self, chosen: SelectedLog, died: CleanerDiedError) -> None:
        if died.was_killed:
            return
        deaths = self._failed_processes[chosen.name] = self._failed_processes.get(chosen.name, 0) + 1
        logger.warning("the cleaner did not finish %s: %s", chosen.name, died)
        if died.is_stalled or deaths >= FAILED_PROCESSES_MAX:
            del self._failed_processes[chosen.name]
            self._mark_uncleanable(
                chosen, f"the cleaner did not finish it {deaths} times, the last time because {died}"
            )

    def _mark_uncleanable(self, chosen: SelectedLog, why: str) -> None:
        self.uncleanable[chosen.name] = (chosen.log, chosen.log.settings)
        logger.error("%s is not cleaned until its settings change or the broker starts again: %s", chosen.name, why)


def cleaner_settings(settings: BrokerSettings) -> tuple[float, ...]:
    """Return the settings that affect running work."""
    return (
        settings.log_cleaner_threads,
        settings.log_cleaner_backoff_ms,
        settings.log_cleaner_dedupe_buffer_size,
        settings.log_cleaner_io_buffer_load_factor,
        settings.log_cleaner_io_buffer_size,
        settings.log_cleaner_io_max_bytes_per_second,
    )


def log_facts(partition: Partition) -> CleanableLog:
    log = partition.log
    return CleanableLog(
        log_start_offset=log.log_start_offset,
        end_offset=log.end_offset,
        last_stable_offset=partition.last_stable_offset,
        segments=[SegmentInfo(segment.base_offset, segment.size) for segment in log.segments],
        cleaned_offset=log.cleaned_offset,
        settings=log.settings,
        max_timestamp=lambda place: max_timestamp_of(log.segments[place]),
        first_timestamp=lambda place: first_timestamp_of(log.segments[place]),
    )


def make_job(chosen: SelectedLog, settings: BrokerSettings, now_ms: int, sizes: list[tuple[int, int]]) -> CleanJob:
    """Return the job for the cleaner process; `sizes` are those of the index files."""
    log = chosen.log
    topic_settings = chosen.settings
    end = chosen.cleanable.first_uncleanable_offset
    threads = max(1, settings.log_cleaner_threads)
    segments = [
        SegmentInfo(segment.base_offset, segment.size, index_bytes, time_index_bytes)
        for segment, (index_bytes, time_index_bytes) in zip(chosen.segments.values(), sizes, strict=True)
    ]
    return CleanJob(
        topic=chosen.name.topic,
        partition=chosen.name.partition,
        directory=chosen.directory,
        segments=segments,
        first_dirty_offset=chosen.cleanable.first_dirty_offset,
        first_uncleanable_offset=end,
        log_start_offset=log.log_start_offset,
        end_offset=log.end_offset,
        now_ms=now_ms,
        is_compacted=topic_settings.is_compacted,
        policies=sorted(filter(is_custom, topic_settings.cleanup_policy)),
        delete_retention_ms=topic_settings.delete_retention_ms,
        segment_bytes=topic_settings.segment_bytes,
        segment_index_bytes=topic_settings.segment_index_bytes,
        index_interval_bytes=topic_settings.index_interval_bytes,
        last_records=[last for last in log.producer_state.last_records() if last[1] < end],
        transaction_indexes=[segment.base_offset for segment in log.segments if segment.has_transactions],
        map_bytes=min(settings.log_cleaner_dedupe_buffer_size // threads, MAP_BYTES_MAX),
        load_factor=settings.log_cleaner_io_buffer_load_factor,
        buffer_bytes=max(BUFFER_BYTES_MIN, settings.log_cleaner_io_buffer_size // threads // 2),
        bytes_per_second=settings.log_cleaner_io_max_bytes_per_second / threads,
        uses_sched_idle=sum(segment.size for segment in segments) >= IDLE_PRIORITY_BYTES_MIN,
    )


def index_sizes(directory: str, base_offsets: list[int]) -> list[tuple[int, int]]:
    """Return the sizes of both indexes of each segment. Raises FileNotFoundError if one is missing."""
    return [
        (
            os.stat(files.segment_path(directory, base_offset, files.INDEX_SUFFIX)).st_size,
            os.stat(files.segment_path(directory, base_offset, files.TIME_INDEX_SUFFIX)).st_size,
        )
        for base_offset in base_offsets
    ]


def remove_leftovers(directory: str) -> None:
    """Remove partial output of the process; if that fails, the next cleaning or start removes it."""
    with contextlib.suppress(OSError):
        remove_cleaned(directory)
