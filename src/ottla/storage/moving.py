"""Moving the log of a partition to another folder while it serves: a growing copy that takes its place at the end.

The copy is made in `<topic>-<partition>.<id>-future`, as with Kafka, piece by piece: the owner of the log asks for the
next job, any thread runs it. When only a small tail is missing, finish() copies that on the owner's thread, renames the
copy and lets the log go on in it, all in one step: nothing can be appended in between.

Rule 1: the old folder goes only after a flush of the new one. Until then both stand under the same name, and the next
start keeps the one that reaches further (see `LogLoading`): a crash at any moment leaves a complete log.
Rule 2: a segment that was replaced or deleted meanwhile is copied anew or dropped again. After a truncation all is
copied anew: what a follower has cut off and got again may be other bytes.
"""

from __future__ import annotations

import os
from typing import Final

from ottla.storage import files
from ottla.storage.epochs import FILE_NAME as EPOCHS_FILE
from ottla.storage.log import Log
from ottla.storage.log_dir import FUTURE_SUFFIX, LogDir, renamed_folder
from ottla.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.segment import FILE_SUFFIXES, Segment

PIECE_BYTES: Final = 4 << 20
CHUNK_BYTES: Final = 1 << 20
TAIL_BYTES_MAX: Final = 512 << 10  # what finish() may copy while everybody waits
INDEX_SUFFIXES: Final = tuple(suffix for suffix in FILE_SUFFIXES if suffix != files.LOG_SUFFIX)


class CopyJob:
    """A piece of one log file, brought to disk; with the last piece of a full segment come its indexes."""

    def __init__(self, segment: Segment, target: str, position: int, length: int, is_last: bool) -> None:
        self.segment = segment
        self.target = target
        self.position = position
        self.length = length
        self.is_last = is_last
        self.source = os.dup(segment.open_descriptor())  # its own: that of the segment may be closed meanwhile
        self.index_paths = {suffix: segment.path(suffix) for suffix in INDEX_SUFFIXES} if is_last else {}

    def run(self) -> None:
        """Copy, in any thread; OSError if one of the disks does not play along."""
        path = files.segment_path(self.target, self.segment.base_offset, files.LOG_SUFFIX)
        flags = files.CREATE_FLAGS if self.position else files.CREATE_FLAGS | os.O_TRUNC
        with files.opened(path, flags) as descriptor:
            copy_range(self.source, descriptor, self.position, self.length)
            files.sync(descriptor)  # now: when too much is to be written back, the kernel makes every writer wait
        for suffix, source in self.index_paths.items():
            copy_file(source, files.segment_path(self.target, self.segment.base_offset, suffix), durable=True)

    def close(self) -> None:
        """Give the descriptor back; also for a job that was never run."""
        files.close(self.source)

    def __repr__(self) -> str:
        return f"<CopyJob {self.length} bytes at {self.position} of {self.segment!r}>"


class LogMove:
    """One log on its way. All but CopyJob.run() and clear() belongs to the thread that owns the log."""

    def __init__(self, log: Log, target: LogDir) -> None:
        self.log = log
        self.partition = log.partition
        self.target = target
        self.is_wanted = True  # nobody has asked for another folder meanwhile
        self.directory = f"{target.path}/{renamed_folder(log.partition, FUTURE_SUFFIX)}"
        self.source_directory = log.directory
        self._copied: dict[int, tuple[Segment, int]] = {}  # by base offset: which segment, how many bytes of its log
        self._complete: set[int] = set()  # base offsets of full segments that are there and synced
        self._truncation_count = log.truncation_count  # of the log, when the copy was begun

    @property
    def copied_bytes(self) -> int:
        return sum(length for _, length in self._copied.values())

    @property
    def lag(self) -> int:
        """Offsets that are not in the copy yet, counted in whole segments."""
        for segment in self.log.segments:
            if segment.base_offset not in self._complete:
                return self.log.end_offset - segment.base_offset
        return 0

    def begin(self) -> None:
        files.make_directory(self.directory)

    def next_job(self, bytes_max: int = PIECE_BYTES) -> CopyJob | None:
        """The next piece to copy; None when only a small tail is missing."""
        self._begin_anew_if_truncated()
        segment = self._unfinished()
        if segment is None:
            return None
        position = self._position(segment)
        length = min(segment.size - position, bytes_max)
        is_last = segment is not self.log.active and position + length == segment.size
        if is_last:
            segment.write_pending()
        return CopyJob(segment, self.directory, position, length, is_last)

    def _begin_anew_if_truncated(self) -> None:
        if self._truncation_count != self.log.truncation_count:
            self._truncation_count = self.log.truncation_count
            self._copied = {base_offset: (segment, 0) for base_offset, (segment, _) in self._copied.items()}
            self._complete.clear()

    def _unfinished(self) -> Segment | None:
        """The first segment of which more is missing than a small tail of the active one."""
        for segment in self.log.segments:
            position = self._position(segment)
            if segment is self.log.active:
                return segment if segment.size - position > TAIL_BYTES_MAX else None
            if segment.base_offset not in self._complete:
                return segment
        return None

    def _position(self, segment: Segment) -> int:
        """How far its log is copied. One that took the place of another begins anew."""
        known, position = self._copied.get(segment.base_offset, (segment, 0))
        if known is segment:
            return position
        self._complete.discard(segment.base_offset)
        return 0

    def note(self, job: CopyJob) -> None:
        """Take a finished job back."""
        if self._truncation_count != self.log.truncation_count:
            return
        base_offset = job.segment.base_offset
        self._copied[base_offset] = (job.segment, job.position + job.length)
        if job.is_last:
            self._complete.add(base_offset)

    def finish(self) -> bool:
        """Copy the rest and take the place of the old log. False if there is more to copy than may be done here.

        OSError leaves the log where it was.
        """
        self._begin_anew_if_truncated()
        if self._unfinished() is not None:
            return False
        self._copy_tail(self.log.active)
        self._copy_small_files()
        self._drop_what_is_gone()
        descriptors = self._open_copies()
        place = f"{self.target.path}/{self.partition}"
        try:
            files.rename(self.directory, place)
        except OSError:
            close_all(descriptors)
            raise
        self.directory = place
        self.log.take_new_place(place, descriptors, self.log.active.base_offset)
        return True

    def _copy_tail(self, active: Segment) -> None:
        position = self._position(active)
        active.write_pending()
        path = files.segment_path(self.directory, active.base_offset, files.LOG_SUFFIX)
        with files.opened(path, files.CREATE_FLAGS) as descriptor:
            copy_range(active.open_descriptor(), descriptor, position, active.size - position)
            files.truncate(descriptor, active.size)
        for suffix in INDEX_SUFFIXES:
            copy_file(active.path(suffix), files.segment_path(self.directory, active.base_offset, suffix))
        self._copied[active.base_offset] = (active, active.size)

    def _copy_small_files(self) -> None:
        for name in os.listdir(self.source_directory):
            if name in (EPOCHS_FILE, PARTITION_METADATA) or name.endswith(files.SNAPSHOT_SUFFIX):
                copy_file(f"{self.source_directory}/{name}", f"{self.directory}/{name}")

    def _drop_what_is_gone(self) -> None:
        present = {segment.base_offset for segment in self.log.segments}
        for base_offset in self._copied.keys() - present:
            for suffix in FILE_SUFFIXES:
                files.remove_if_there(files.segment_path(self.directory, base_offset, suffix))

    def _open_copies(self) -> dict[int, int]:
        """A descriptor of the copy for each segment whose file is open."""
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

    def clear(self) -> None:
        """Remove a copy that is not wanted any more; in any thread."""
        files.remove_tree(self.directory, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<LogMove of {self.partition} to {self.target.path}, {self.copied_bytes} bytes copied>"


def copy_range(source: int, target: int, position: int, length: int) -> None:
    end = position + length
    while position < end:
        chunk = os.pread(source, min(CHUNK_BYTES, end - position), position)
        if not chunk:
            raise OSError(f"the file ends {end - position} bytes too early")
        files.write_whole(target, chunk, position)
        position += len(chunk)


def copy_file(source: str, target: str, *, durable: bool = False) -> None:
    """Copy a small file as a whole, if it is there."""
    try:
        descriptor = files.open_file(source, files.READ_FLAGS)
    except FileNotFoundError:
        return
    try:
        with files.opened(target, files.CREATE_FLAGS | os.O_TRUNC) as copy:
            copy_range(descriptor, copy, 0, os.fstat(descriptor).st_size)
            if durable:
                files.sync(copy)
    finally:
        files.close(descriptor)


def close_all(descriptors: dict[int, int]) -> None:
    for descriptor in descriptors.values():
        files.close(descriptor)
