"""Retention: which segments are deleted, and their deletion in the background.

Kafka's rules: whole segments are deleted, oldest first, and never one with offsets at or past the high watermark. The
active segment is also deleted when it expires; the log then continues in a new, empty one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.storage.leader_epochs import LeaderEpochCache
from ottla.storage.segment import Segment, retention_timestamp

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.storage.retention")

IsDeletable = Callable[[Segment, int], bool]
"""Called with a segment and the base offset of the next one."""


def delete_old_segments(log: Log, now_ms: int, high_watermark: int) -> int:
    """Delete the segments that the topic's settings do not keep; returns their number."""
    deleted = delete_log_start_offset_breached_segments(log, now_ms, high_watermark)
    if "delete" in log.settings.cleanup_policy:
        deleted += delete_retention_size_breached_segments(log, now_ms, high_watermark)
        deleted += delete_retention_ms_breached_segments(log, now_ms, high_watermark)
    return deleted


def delete_log_start_offset_breached_segments(log: Log, now_ms: int, high_watermark: int) -> int:
    """Delete segments below the log start offset; the active segment stays, as in Kafka."""

    def is_hidden(segment: Segment, next_base: int) -> bool:
        return next_base <= log.log_start_offset and segment is not log.active

    return delete_while(log, now_ms, high_watermark, "below the log start offset", is_hidden)


def delete_retention_size_breached_segments(log: Log, now_ms: int, high_watermark: int) -> int:
    if log.settings.retention_bytes < 0:
        return 0
    surplus_bytes = log.size_bytes - log.settings.retention_bytes

    def is_surplus(segment: Segment, _: int) -> bool:
        nonlocal surplus_bytes
        if segment.size > surplus_bytes:
            return False
        surplus_bytes -= segment.size
        return True

    return delete_while(log, now_ms, high_watermark, "over retention.bytes", is_surplus)


def delete_retention_ms_breached_segments(log: Log, now_ms: int, high_watermark: int) -> int:
    retention_ms = log.settings.retention_ms
    if retention_ms < 0:
        return 0

    def is_expired(segment: Segment, _: int) -> bool:
        return now_ms - retention_timestamp(segment) > retention_ms

    return delete_while(log, now_ms, high_watermark, "over retention.ms", is_expired)


def delete_while(log: Log, now_ms: int, high_watermark: int, why: str, is_deletable: IsDeletable) -> int:
    """Delete segments from the oldest on while `is_deletable` allows it."""
    count = 0
    for place, segment in enumerate(log.segments):
        is_last = place + 1 == len(log.segments)
        if is_last and segment.size == 0:
            break
        next_base = log.end_offset if is_last else log.segments[place + 1].base_offset
        if next_base > high_watermark or not is_deletable(segment, next_base):
            break
        count += 1
    if count == 0:
        return 0
    if count == len(log.segments):
        log.roll(now_ms)
    gone = log.segments[:count]
    # The SegmentRenameJob writes the epochs before it renames files.
    log.raise_log_start_offset(log.segments[count].base_offset, writes_epochs=False)
    log.remove_and_delete_segments(count, now_ms)
    logger.info("Deleted %d segments of %s up to offset %d: %s", count, log.partition, log.log_start_offset, why)
    return len(gone)


class DeletedSegments:
    """Segments that were removed from a log: a worker renames their files, which are removed after a delay.

    A crash before the rename leaves them in the log, and retention deletes them again. The leader epochs are written
    first: from them the next start knows that the missing records were deleted and not lost.
    """

    def __init__(self, epochs: LeaderEpochCache) -> None:
        self.renamed: list[tuple[int, Segment]] = []  # (when to remove the files, segment)
        self._epochs = epochs
        self._pending: list[tuple[int, Segment]] = []  # not renamed yet
        self._job: SegmentRenameJob | None = None  # the running job, if there is one

    def add(self, due_ms: int, segment: Segment) -> None:
        self._pending.append((due_ms, segment))

    def begin_rename(self) -> SegmentRenameJob | None:
        if self._job is not None:
            return None  # another job is running; the next round renames the rest
        if self._pending:
            dropped, self._pending = self._pending, []
            self._job = SegmentRenameJob(self._epochs.begin_write(), dropped)
        return self._job

    def current_or_next_rename(self) -> SegmentRenameJob | None:
        """Return the running job, or a new one."""
        return self._job if self._job is not None else self.begin_rename()

    def finish_rename(self, job: SegmentRenameJob) -> OSError | None:
        if job is not self._job:
            return None  # finish_renames() has already renamed them
        self._job = None
        self._epochs.is_unsynced = True  # a flush may have run before the job
        self.renamed += job.renamed
        self._pending = [*job.pending, *self._pending]
        return job.error

    def on_clock_step(self, step_ms: int) -> None:
        self.renamed = [(due_ms + step_ms, segment) for due_ms, segment in self.renamed]
        self._pending = [(due_ms + step_ms, segment) for due_ms, segment in self._pending]

    def take_due_paths(self, now_ms: int) -> list[str]:
        due = [segment for due_ms, segment in self.renamed if due_ms <= now_ms]
        self.renamed = [item for item in self.renamed if item[0] > now_ms]
        return [path for segment in due for path in segment.deleted_paths()]

    def __repr__(self) -> str:
        return f"<DeletedSegments {len(self._pending)} dropped, {len(self.renamed)} renamed>"


class SegmentRenameJob:
    """Renames of segment files. run() may be called again, and by two threads at once: then one waits."""

    def __init__(self, write_epochs: Callable[[], None], segments: list[tuple[int, Segment]]) -> None:
        self.renamed: list[tuple[int, Segment]] = []  # (when to remove the files, segment)
        self.pending = segments
        self.error: OSError | None = None
        self._write_epochs = write_epochs
        self._lock = threading.Lock()

    def run(self) -> None:
        """Rename the files. Never raises; segments that could not be renamed are in `pending`, with the `error`."""
        with self._lock:
            self._write_epochs()
            try:
                while self.pending:
                    self.pending[0][1].rename_to_deleted()
                    self.renamed.append(self.pending.pop(0))
            except OSError as error:
                self.error = error

    def __repr__(self) -> str:
        return f"<SegmentRenameJob {len(self.renamed)} renamed, {len(self.pending)} left>"
