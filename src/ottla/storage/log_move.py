"""Moving the log of a partition to another log directory while it serves clients (KIP-113).

The copy is made in `<topic>-<partition>.<id>-future`, as in Kafka, in pieces: the owner of the log requests the next
job, any thread runs it. When only a small tail is missing, finish() copies the tail on the owner's thread, renames the
copy and switches the log to it, in one step: no append can happen in between.

Rule 1: the old directory is deleted only after a flush of the new one. Until then both exist under the same name, and
the next start keeps the longer one (see `LogDirLoader`): a crash at any moment leaves a complete log.
Rule 2: a segment that was replaced is copied again, a deleted one is deleted from the copy. After a truncation
everything is copied again: a follower may have fetched other bytes for the same offsets.
"""

from __future__ import annotations

import os
from typing import Final

from ottla.storage import files
from ottla.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from ottla.storage.log import Log
from ottla.storage.log_dir import FUTURE_SUFFIX, LogDir, renamed_dir_name
from ottla.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.segment import FILE_SUFFIXES, Segment

COPY_BYTES_MAX: Final = 4 << 20
CHUNK_BYTES: Final = 1 << 20
TAIL_BYTES_MAX: Final = 512 << 10  # copied by finish() while the event loop waits
INDEX_SUFFIXES: Final = tuple(suffix for suffix in FILE_SUFFIXES if suffix != files.LOG_SUFFIX)


class SegmentCopyJob:
    """The copy of one piece of a log file, with a sync; the last piece of a full segment includes its indexes."""

    def __init__(self, segment: Segment, target: str, position: int, length: int, is_last: bool) -> None:
        self.segment = segment
        self.target = target
        self.position = position
        self.length = length
        self.is_last = is_last
        # Its own descriptor: the segment's may be closed in the meantime.
        self.source = os.dup(segment.open_descriptor())
        self.index_paths = {suffix: segment.path(suffix) for suffix in INDEX_SUFFIXES} if is_last else {}

    def run(self) -> None:
        """Copy one piece, in any thread. Raises OSError."""
        path = files.segment_path(self.target, self.segment.base_offset, files.LOG_SUFFIX)
        flags = files.CREATE_FLAGS if self.position else files.CREATE_FLAGS | os.O_TRUNC
        with files.open_descriptor(path, flags) as descriptor:
            copy_range(self.source, descriptor, self.position, self.length)
            files.sync(descriptor)  # sync each piece: too many dirty pages would block every writer
        for suffix, source in self.index_paths.items():
            copy_file(source, files.segment_path(self.target, self.segment.base_offset, suffix), durable=True)

    def close(self) -> None:
        """Close the descriptor, even if the job was never run."""
        files.close(self.source)

    def __repr__(self) -> str:
        return f"<SegmentCopyJob {self.length} bytes at {self.position} of {self.segment!r}>"


class FutureLog:
    """The move of one log. Everything but SegmentCopyJob.run() and clear() belongs to the owner's thread."""

    def __init__(self, log: Log, target: LogDir) -> None:
        self.log = log
        self.partition = log.partition
        self.target = target
        self.is_wanted = True  # no other log directory was requested in the meantime
        self.directory = f"{target.path}/{renamed_dir_name(log.partition, FUTURE_SUFFIX)}"
        self.source_directory = log.directory
        self._copied: dict[int, tuple[Segment, int]] = {}  # segment and copied bytes of its log file, by base offset
        self._copied_segments: set[int] = set()  # base offsets of full segments that are copied and synced
        self._truncation_count = log.truncation_count  # of the log, at the start of the copy

    @property
    def copied_bytes(self) -> int:
        return sum(length for _, length in self._copied.values())

    @property
    def lag(self) -> int:
        """The number of offsets that are not copied yet, in whole segments."""
        for segment in self.log.segments:
            if segment.base_offset not in self._copied_segments:
                return self.log.end_offset - segment.base_offset
        return 0

    def begin(self) -> None:
        files.make_directory(self.directory)

    def next_job(self, bytes_max: int = COPY_BYTES_MAX) -> SegmentCopyJob | None:
        """Return the next piece to copy; None when only a small tail is missing."""
        self._restart_if_truncated()
        segment = self._next_segment()
        if segment is None:
            return None
        position = self._position(segment)
        length = min(segment.size - position, bytes_max)
        is_last = segment is not self.log.active and position + length == segment.size
        if is_last:
            segment.write_pending()
        return SegmentCopyJob(segment, self.directory, position, length, is_last)

    def _restart_if_truncated(self) -> None:
        if self._truncation_count != self.log.truncation_count:
            self._truncation_count = self.log.truncation_count
            self._copied = {base_offset: (segment, 0) for base_offset, (segment, _) in self._copied.items()}
            self._copied_segments.clear()

    def _next_segment(self) -> Segment | None:
        """Return the first segment with more missing bytes than a small tail of the active one."""
        for segment in self.log.segments:
            position = self._position(segment)
            if segment is self.log.active:
                return segment if segment.size - position > TAIL_BYTES_MAX else None
            if segment.base_offset not in self._copied_segments:
                return segment
        return None

    def _position(self, segment: Segment) -> int:
        """Return the copied length of its log file. A segment that replaces another one starts at 0."""
        known, position = self._copied.get(segment.base_offset, (segment, 0))
        if known is segment:
            return position
        self._copied_segments.discard(segment.base_offset)
        return 0

    def finish_job(self, job: SegmentCopyJob) -> None:
        """Record a finished copy. Ignored if the log was truncated in the meantime."""
        if self._truncation_count != self.log.truncation_count:
            return
        base_offset = job.segment.base_offset
        self._copied[base_offset] = (job.segment, job.position + job.length)
        if job.is_last:
            self._copied_segments.add(base_offset)

    def finish(self) -> bool:
        """Copy the rest and switch the log to the copy. Returns False if too many bytes are missing.

        After an OSError the log stays in its directory.
        """
        self._restart_if_truncated()
        if self._next_segment() is not None:
            return False
        self._copy_tail(self.log.active)
        self._copy_small_files()
        self._delete_removed_segments()
        descriptors = self._open_copies()
        place = f"{self.target.path}/{self.partition}"
        try:
            files.rename(self.directory, place)
        except OSError:
            close_all(descriptors)
            raise
        self.directory = place
        self.log.switch_directory(place, descriptors, self.log.active.base_offset)
        return True

    def _copy_tail(self, active: Segment) -> None:
        position = self._position(active)
        active.write_pending()
        path = files.segment_path(self.directory, active.base_offset, files.LOG_SUFFIX)
        with files.open_descriptor(path, files.CREATE_FLAGS) as descriptor:
            copy_range(active.open_descriptor(), descriptor, position, active.size - position)
            files.truncate(descriptor, active.size)
        for suffix in INDEX_SUFFIXES:
            copy_file(active.path(suffix), files.segment_path(self.directory, active.base_offset, suffix))
        self._copied[active.base_offset] = (active, active.size)

    def _copy_small_files(self) -> None:
        for name in os.listdir(self.source_directory):
            if name in (EPOCHS_FILE, PARTITION_METADATA) or name.endswith(files.SNAPSHOT_SUFFIX):
                copy_file(f"{self.source_directory}/{name}", f"{self.directory}/{name}")

    def _delete_removed_segments(self) -> None:
        present = {segment.base_offset for segment in self.log.segments}
        for base_offset in self._copied.keys() - present:
            for suffix in FILE_SUFFIXES:
                files.remove_if_exists(files.segment_path(self.directory, base_offset, suffix))

    def _open_copies(self) -> dict[int, int]:
        """Return a descriptor of the copy for each segment whose file is open."""
        descriptors: dict[int, int] = {}
        try:
            for segment in self.log.segments:
                if segment.descriptor >= 0:
                    path = files.segment_path(self.directory, segment.base_offset, files.LOG_SUFFIX)
                    descriptors[segment.base_offset] = files.open_file(path, files.READ_WRITE_FLAGS)
        except OSError:
            close_all(descriptors)
            raise
        return descriptors

    def delete_copy(self) -> None:
        """Delete an obsolete copy; in any thread."""
        files.remove_tree(self.directory, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<FutureLog of {self.partition} to {self.target.path}, {self.copied_bytes} bytes copied>"


def copy_range(source: int, target: int, position: int, length: int) -> None:
    end = position + length
    while position < end:
        chunk = os.pread(source, min(CHUNK_BYTES, end - position), position)
        if not chunk:
            raise OSError(f"the file is {end - position} bytes too short")
        files.write_all(target, chunk, position)
        position += len(chunk)


def copy_file(source: str, target: str, *, durable: bool = False) -> None:
    """Copy a small file, if it exists."""
    try:
        descriptor = files.open_file(source, files.READ_FLAGS)
    except FileNotFoundError:
        return
    try:
        with files.open_descriptor(target, files.CREATE_FLAGS | os.O_TRUNC) as copy:
            copy_range(descriptor, copy, 0, os.fstat(descriptor).st_size)
            if durable:
                files.sync(copy)
    finally:
        files.close(descriptor)


def close_all(descriptors: dict[int, int]) -> None:
    for descriptor in descriptors.values():
        files.close(descriptor)
