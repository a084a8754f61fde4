"""Compaction: chooses the log that needs it most, has it cleaned by another process, and puts the result in place.

The decisions are in storage/cleaning/plan.py, the work in storage/cleaning/process.py. Here are the lanes
(`log.cleaner.threads`, one process each) in which both are brought together. A log may be shortened, moved or deleted
while it is cleaned: then the result is thrown away as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, ParamSpec, TypeVar

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.cleanup_policies import DELETE, is_custom
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.broker.logs.checkpointing import CheckpointWriter
from ottla.broker.logs.cleaner_backoff import CleanerBackoff
from ottla.broker.logs.cleaner_process import CleanerDiedError, CleanerProcess
from ottla.broker.logs.index_rebuilds import IndexRebuilds
from ottla.broker.node import Node
from ottla.broker.slices import for_each_partition
from ottla.metrics.cleaner import CleanerCounters
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.cleaning.job import (
    FINAL_FAILURES,
    GONE,
    STARVED,
    CleanedGroup,
    CleanFailure,
    CleanJob,
    CleanReport,
    SegmentFacts,
)
from ottla.storage.cleaning.plan import Cleanable, LogFacts, decide_cleanable
from ottla.storage.cleaning.swap import SegmentSwap
from ottla.storage.cleaning.writer import remove_cleaned
from ottla.storage.log import Log
from ottla.storage.segment import RebuildNeededError, Segment
from ottla.storage.segment_times import first_timestamp_of, max_timestamp_of

logger = logging.getLogger(__name__)

BACKOFF_MS_MIN: Final = 50
MAP_BYTES_MAX: Final = 64 << 20  # of one process: it stays under 100 MB with all else
BUFFER_BYTES_MIN: Final = 4096
PATIENT_BYTES_MIN: Final = 64 << 20  # smaller jobs are done before anybody notices
DEATHS_MAX: Final = 10  # so often the process may end over one log

P = ParamSpec("P")
T = TypeVar("T")


class Chosen:
    """A log that is due, and the segments of it that are to be cleaned."""

    def __init__(self, partition: Partition, cleanable: Cleanable) -> None:
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
        """Whether the result would still be wanted."""
        is_same = self.partition.log is self.log and not self.partition.is_deleted
        return is_same and self.log.settings.cleanup_policy == self.settings.cleanup_policy

    def __repr__(self) -> str:
        return f"<Chosen {self.name}, {len(self.segments)} segments, {self.cleanable}>"


class Cleaning:
    """All lanes, and what they must not do twice."""

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
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, CleanerProcess] = {}
        self._changed = asyncio.Event()
        self._in_progress: set[TopicPartition] = set()
        self._deaths: dict[TopicPartition, int] = {}
        self._starved: set[TopicPartition] = set()  # their cleaner waited in vain for an idle processor
        self._backoff = CleanerBackoff()
        self._cleaner_settings = cleaner_settings(node.settings)
        self.set_aside: dict[TopicPartition, tuple[Log, TopicSettings]] = {}  # not tried again before a change
        self._counters = counters
        self._counters.uncleanable = self.set_aside.keys()

    def start(self) -> None:
        if self._node.settings.log_cleaner_enable:
            self._node.live.on_change(self._follow)
            self._open_lanes()

    async def stop(self) -> None:
        """End at once: what is half done does not count, and leaves nothing but files that the next start removes."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)

    def _follow(self, settings: BrokerSettings) -> None:
        """As with Kafka, another setting of the cleaner starts it anew."""
        new = cleaner_settings(settings)
        if new == self._cleaner_settings:
            return
        self._cleaner_settings = new
        self.set_aside.clear()
        for process in self._processes.values():
            process.kill()
        self._changed.set()
        self._open_lanes()

    # ---- lanes

    def _open_lanes(self) -> None:
        for number in range(self._node.settings.log_cleaner_threads):
            if number not in self._lanes:
                self._lanes[number] = tasks.keep_running(partial(self._run_lane, number), f"cleaner {number}")

    async def _run_lane(self, number: int) -> None:
        process = self._processes[number] = CleanerProcess(self._node.workers)
        try:
            while number < self._node.settings.log_cleaner_threads:
                if not await self._clean_next(process):
                    await self._wait()
            del self._lanes[number]  # there are to be fewer now
        finally:
            del self._processes[number]
            await process.end()

    async def _wait(self) -> None:
        backoff_ms = max(BACKOFF_MS_MIN, self._node.settings.log_cleaner_backoff_ms)
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_ms / 1000):
                await self._changed.wait()

    # ---- choosing

    async def _clean_next(self, process: CleanerProcess) -> bool:
        """Clean the log that needs it most; False if none does, or if that went wrong."""
        chosen = await self._choose()
        if chosen is None:
            self._starved.clear()
            return False
        self._in_progress.add(chosen.name)
        try:
            return await self._clean(process, chosen)
        except CleanerDiedError as died:
            self._note_death(chosen, died)
            return False
        finally:
            self._in_progress.discard(chosen.name)

    async def _choose(self) -> Chosen | None:
        now_ms = self._node.clock.now_ms()
        due: list[Chosen] = []
        dirtiest = 0.0
        damaged: list[RebuildNeededError] = []

        def look_at(partition: Partition) -> None:
            nonlocal dirtiest
            if not self._may_clean(partition, now_ms):
                return
            try:
                cleanable = decide_cleanable(facts_of(partition), now_ms)
            except RebuildNeededError as needed:
                damaged.append(needed)
            except (OSError, KafkaError) as error:
                logger.warning("cannot tell whether %s needs to be cleaned: %s", partition.name, error)
            else:
                dirtiest = max(dirtiest, cleanable.ratio)
                if cleanable.is_checkpoint_wrong:  # retention was faster, or the end of the log is gone
                    partition.log.cleaned_offset = cleanable.first_dirty_offset
                if cleanable.is_due(partition.log.settings):
                    due.append(Chosen(partition, cleanable))

        await for_each_partition(self._replicas, look_at)
        self._counters.note_look(dirtiest, now_ms)
        for needed in damaged:  # these have their turn the next time
            await self._index_rebuilds.wait_for(needed)
        current = [chosen for chosen in due if chosen.is_current() and chosen.name not in self._in_progress]
        return max(current, key=lambda chosen: chosen.cleanable.ratio, default=None)

    def _may_clean(self, partition: Partition, now_ms: int) -> bool:
        log = partition.log
        if log.settings.cleanup_policy <= {DELETE} or log.failure is not None or partition.name in self._in_progress:
            return False
        if log.is_moving:
            return False  # what is replaced now would have to be copied again
        if not self._backoff.may_try(os.path.dirname(log.directory), now_ms):
            return False
        aside = self.set_aside.get(partition.name)
        if aside is None:
            return True
        if aside == (log, log.settings):
            return False
        del self.set_aside[partition.name]
        return True

    # ---- cleaning

    async def _clean(self, process: CleanerProcess, chosen: Chosen) -> bool:
        if not chosen.log.has_checked_transactions:  # what the indexes call aborted is removed for good
            await self._index_rebuilds.check_transactions(chosen.log)
        try:
            sizes = await self._in_worker(index_sizes, chosen.directory, list(chosen.segments))
        except FileNotFoundError:
            return False  # it was shortened or moved meanwhile
        job = make_job(chosen, self._node.settings, self._node.clock.now_ms(), sizes)
        if chosen.name in self._starved:
            job = replace(job, is_patient=False)
        is_done = False
        try:
            async for reply in process.run(job):
                if isinstance(reply, CleanReport):
                    is_done = await self._finish(chosen, reply)
                elif isinstance(reply, CleanFailure):
                    self._note_failure(chosen, reply)
                elif not chosen.is_current() or not (reply.is_unchanged or await self._swap(chosen, reply)):
                    logger.info("%s has changed while it was cleaned: the result is thrown away", chosen.name)
                    break
        finally:
            if not is_done:
                await process.end()
                await self._in_worker(remove_leftovers, chosen.directory)
        return is_done

    async def _swap(self, chosen: Chosen, group: CleanedGroup) -> bool:
        """Put one cleaned segment into its place; False if the log is not what it was."""
        old = [chosen.segments[base_offset] for base_offset in group.base_offsets]
        swap = SegmentSwap(chosen.log, chosen.directory, old, group)
        counts = False  # from here on a failure must not remove the new files: opening the log completes the swap
        try:
            if swap.is_possible():
                await self._in_worker(swap.prepare)
                await self._in_worker(swap.sync)
                if swap.is_possible() and chosen.is_current():
                    counts = True
                    swap.complete(self._node.clock.now_ms())
                    await self._in_worker(swap.sync)
                    await self._in_worker(swap.tidy)
                    return True
        except OSError as error:
            self._note_disk_failure(chosen, f"cannot put a cleaned segment of {chosen.name} into its place: {error}")
        except KafkaError as error:  # the log is out of service and has said why
            logger.debug("%s", error)
        finally:
            if not counts:
                swap.cancel()
        return False

    async def _finish(self, chosen: Chosen, report: CleanReport) -> bool:
        if not chosen.is_current():
            return False
        chosen.log.cleaned_offset = min(report.end_offset, chosen.log.end_offset)
        self._deaths.pop(chosen.name, None)
        self._backoff.note_success(chosen.folder)
        self._counters.note_run(
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

    # ---- what goes wrong

    def _note_failure(self, chosen: Chosen, failure: CleanFailure) -> None:
        if failure.kind in FINAL_FAILURES:
            self._put_aside(chosen, failure.message)
        elif failure.kind == STARVED:
            self._starved.add(chosen.name)
        elif failure.kind != GONE:
            self._note_disk_failure(chosen, f"cannot clean {chosen.name}: {failure.message}")

    def _note_disk_failure(self, chosen: Chosen, problem: str) -> None:
        if self._backoff.note_failure(chosen.folder, self._node.clock.now_ms()):
            logger.warning("%s; logs in %s are tried again now and then", problem, chosen.folder)

    def _note_death(self, chosen: Chosen, died: CleanerDiedError) -> None:
        if died.is_our_doing:
            return
        deaths = self._deaths[chosen.name] = self._deaths.get(chosen.name, 0) + 1
        logger.warning("the cleaner did not finish %s: %s", chosen.name, died)
        if died.is_stalled or deaths >= DEATHS_MAX:
            del self._deaths[chosen.name]
            self._put_aside(chosen, f"the cleaner did not finish it {deaths} times, the last time because {died}")

    def _put_aside(self, chosen: Chosen, why: str) -> None:
        self.set_aside[chosen.name] = (chosen.log, chosen.log.settings)
        logger.error("%s is not cleaned until its settings change or the broker starts again: %s", chosen.name, why)

    async def _in_worker(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._node.workers, call)


def cleaner_settings(settings: BrokerSettings) -> tuple[float, ...]:
    """All that makes a difference to work under way."""
    return (
        settings.log_cleaner_threads,
        settings.log_cleaner_backoff_ms,
        settings.log_cleaner_dedupe_buffer_size,
        settings.log_cleaner_io_buffer_load_factor,
        settings.log_cleaner_io_buffer_size,
        settings.log_cleaner_io_max_bytes_per_second,
    )


def facts_of(partition: Partition) -> LogFacts:
    log = partition.log
    return LogFacts(
        log_start_offset=log.log_start_offset,
        end_offset=log.end_offset,
        last_stable_offset=partition.last_stable_offset,
        segments=[SegmentFacts(segment.base_offset, segment.size) for segment in log.segments],
        cleaned_offset=log.cleaned_offset,
        settings=log.settings,
        max_timestamp=lambda place: max_timestamp_of(log.segments[place]),
        first_timestamp=lambda place: first_timestamp_of(log.segments[place]),
    )


def make_job(chosen: Chosen, settings: BrokerSettings, now_ms: int, sizes: list[tuple[int, int]]) -> CleanJob:
    """The whole task in numbers; `sizes` are those of the index files."""
    log = chosen.log
    topic_settings = chosen.settings
    end = chosen.cleanable.first_uncleanable_offset
    threads = max(1, settings.log_cleaner_threads)
    segments = [
        SegmentFacts(segment.base_offset, segment.size, index_bytes, time_index_bytes)
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
        last_records=[last for last in log.last_records_of_producers() if last[1] < end],
        transaction_indexes=[segment.base_offset for segment in log.segments if segment.has_transactions],
        map_bytes=min(settings.log_cleaner_dedupe_buffer_size // threads, MAP_BYTES_MAX),
        load_factor=settings.log_cleaner_io_buffer_load_factor,
        buffer_bytes=max(BUFFER_BYTES_MIN, settings.log_cleaner_io_buffer_size // threads // 2),
        bytes_per_second=settings.log_cleaner_io_max_bytes_per_second / threads,
        is_patient=sum(segment.size for segment in segments) >= PATIENT_BYTES_MIN,
    )


def index_sizes(directory: str, base_offsets: list[int]) -> list[tuple[int, int]]:
    """Sizes of both indexes of each segment; FileNotFoundError if one has gone."""
    return [
        (
            os.stat(files.segment_path(directory, base_offset, files.INDEX_SUFFIX)).st_size,
            os.stat(files.segment_path(directory, base_offset, files.TIME_INDEX_SUFFIX)).st_size,
        )
        for base_offset in base_offsets
    ]


def remove_leftovers(directory: str) -> None:
    """Whatever the process had begun to write; if that fails, the next cleaning or start removes it."""
    with contextlib.suppress(OSError):
        remove_cleaned(directory)
