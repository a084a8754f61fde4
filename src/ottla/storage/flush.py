"""Flushing a log without blocking the event loop, and the sync latency of log directories.

The log prepares a FlushJob on its own thread: pending index entries are written and descriptors duplicated. Any thread
may run the job, and the log processes the result on its own thread. A failed sync is final: the kernel may have dropped
the dirty pages, so a successful retry would prove nothing (W3 in docs/reliability.md).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.base.clock import Clock
from ottla.storage import files
from ottla.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.producer_state import ProducerSnapshotJob
from ottla.storage.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log import Log


class FlushJob:
    """The files to sync, and the end offset that is durable after success."""

    def __init__(self, end_offset: int, truncations: int) -> None:
        self.end_offset = end_offset
        self.truncations = truncations  # a truncation since then makes the result void
        self.descriptors: list[int] = []  # duplicates of log file descriptors, which may be closed in the meantime
        self.snapshot: ProducerSnapshotJob | None = None  # to be written first
        self.paths: list[str] = []  # smaller files and directories; a deleted one needs no sync
        self.is_done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Sync everything, in any thread. Never raises; the outcome is in `error`."""
        try:
            if self.snapshot is not None:
                self.snapshot.run()
            for descriptor in self.descriptors:
                files.sync(descriptor)
            for path in self.paths:
                with contextlib.suppress(FileNotFoundError):
                    files.sync_path(path)
        except OSError as error:
            self.error = error
        finally:
            self.is_done = True
            self.close()

    def close(self) -> None:
        """Close the descriptors, even if the job was never run."""
        while self.descriptors:
            files.close(self.descriptors.pop())

    def __repr__(self) -> str:
        return f"<FlushJob up to {self.end_offset}, {'done' if self.is_done else 'to do'}, error {self.error}>"


def prepare_flush(log: Log, only_rolled: bool) -> FlushJob | None:
    """Prepare a flush, on the thread that owns the log; None if there is nothing to do."""
    job = FlushJob(log.active.base_offset if only_rolled else log.end_offset, log.truncation_count)
    next_base = log.end_offset
    try:
        for segment in reversed(log.segments):
            is_due = next_base > log.recovery_point or segment.has_unsynced_indexes
            if is_due and not (only_rolled and segment is log.active):
                add_segment(job, segment)
            next_base = segment.base_offset
            if next_base <= log.recovery_point:
                break
    except OSError:
        job.close()
        raise
    job.snapshot = log.producer_state.take_snapshot_job()
    add_directory(job, log)
    return job if job.descriptors or job.paths else None


def add_segment(job: FlushJob, segment: Segment) -> None:
    segment.write_pending()
    job.descriptors.append(os.dup(segment.open_descriptor()))
    if segment.has_unsynced_indexes:
        segment.has_unsynced_indexes = False
        job.paths += [segment.path(files.INDEX_SUFFIX), segment.path(files.TIME_INDEX_SUFFIX)]
        if segment.has_transactions:
            job.paths.append(segment.path(files.TRANSACTION_INDEX_SUFFIX))


def add_directory(job: FlushJob, log: Log) -> None:
    if log.is_directory_unsynced:
        snapshot_offset = log.producer_state.snapshot_offset
        if job.snapshot is not None:
            job.paths.append(job.snapshot.path)
        elif snapshot_offset >= 0:
            job.paths.append(files.segment_path(log.directory, snapshot_offset, files.SNAPSHOT_SUFFIX))
        job.paths.append(log.directory)
        log.is_directory_unsynced = False
    if log.is_new:
        job.paths += [f"{log.directory}/{PARTITION_METADATA}", os.path.dirname(log.directory)]
        log.is_new = False
    if log.epochs.is_unsynced:
        job.paths.append(log.epochs.path())
        log.epochs.is_unsynced = False


PERIOD_MS: Final = 10_000  # the results of this period and the previous one are used


class SyncLatency:
    """The sync latency of a broker's log directories; any thread may report a sync.

    For each directory the fastest sync of the last seconds is used. A slow sync of a large amount of data, or one
    queued after it, gives no information about the disk; a disk is slow if even its fastest sync is. A sync that has
    not returned is included with its time so far.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._fastest_by_period: dict[int, dict[str, int]] = {}  # by period, then log directory
        self._running: dict[object, tuple[str, int]] = {}  # log directory and start time

    @contextmanager
    def measure(self, folder: str) -> Iterator[None]:
        """Measure the sync inside this context."""
        began_ms = self._clock.monotonic_ms()
        key = object()
        with self._lock:
            self._running[key] = (folder, began_ms)
        try:
            yield
        finally:
            ended_ms = self._clock.monotonic_ms()
            with self._lock:
                del self._running[key]
                found = self._recent_periods(ended_ms).setdefault(ended_ms // PERIOD_MS, {})
                found[folder] = min(ended_ms - began_ms, found.get(folder, ended_ms - began_ms))

    def slowest_ms(self) -> int:
        """Return the latency of the slowest log directory; 0 without any sync."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            waiting: dict[str, int] = {}
            for folder, began_ms in self._running.values():
                waiting[folder] = max(now_ms - began_ms, waiting.get(folder, 0))
            ended: dict[str, int] = {}
            for found in self._recent_periods(now_ms).values():
                for folder, ms in found.items():
                    ended[folder] = min(ms, ended.get(folder, ms))
        return max({**waiting, **ended}.values(), default=0)

    def _recent_periods(self, now_ms: int) -> dict[int, dict[str, int]]:
        """Return the recorded periods, after expired ones are removed."""
        oldest = now_ms // PERIOD_MS - 1
        if any(period < oldest for period in self._fastest_by_period):
            self._fastest_by_period = {
                period: found for period, found in self._fastest_by_period.items() if period >= oldest
            }
        return self._fastest_by_period

    def __repr__(self) -> str:
        return f"<SyncLatency {self.slowest_ms()} ms>"
