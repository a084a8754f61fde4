"""Bringing the files of a foreign partition over: copied or linked, then read once as a whole.

Rules:
1. Nothing at the source is opened for writing.
2. Holes stay holes: a killed Kafka leaves indexes of 10 MB that are almost all hole.
3. Only whole segments below the recovery point may be linked: neither side ever writes to such a file again. Indexes
   are always copied, because a damaged one is rebuilt in place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from ottla.storage import files
from ottla.storage.adoption import ForeignLog
from ottla.storage.epochs import FILE_NAME as EPOCHS_FILE
from ottla.storage.scan import BatchScan

PIECE_BYTES: Final = 8 << 20
WANTED_SUFFIXES: Final = (
    files.LOG_SUFFIX,
    files.INDEX_SUFFIX,
    files.TIME_INDEX_SUFFIX,
    files.TRANSACTION_INDEX_SUFFIX,
    files.SNAPSHOT_SUFFIX,
    files.LOG_SUFFIX + files.SWAP_SUFFIX,
)

Progress = Callable[[int], None]
"""Is told how many bytes more are done."""


class ReadLog:
    """What reading all batches of a partition has shown."""

    def __init__(self) -> None:
        self.producer_id_max = -1
        self.leader_epoch = -1
        self.end_offset = 0
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<ReadLog to {self.end_offset}, epoch {self.leader_epoch}, {len(self.warnings)} warnings>"


def copy_log(log: ForeignLog, directory: str, recovery_point: int, *, links: bool, progress: Progress) -> None:
    """All files that a broker needs, into a new folder."""
    files.make_directory(directory)
    linked = set(finished_segments(log, recovery_point)) if links else set()
    for name in sorted(os.listdir(log.directory)):
        if not name.endswith(WANTED_SUFFIXES) and name != EPOCHS_FILE:
            continue
        source, target = f"{log.directory}/{name}", f"{directory}/{name}"
        if name.endswith(files.LOG_SUFFIX) and name in linked:
            link_or_copy(source, target, progress)
        else:
            copy_file(source, target, progress if name.endswith(files.LOG_SUFFIX) else ignore)
    files.sync_path(directory)


def finished_segments(log: ForeignLog, recovery_point: int) -> list[str]:
    """Log files that nobody will ever write to again: another one follows, and all of it has reached the disk."""
    names = []
    for base_offset, next_base_offset in zip(log.segments, log.segments[1:], strict=False):
        if next_base_offset <= recovery_point:
            names.append(f"{base_offset:020d}{files.LOG_SUFFIX}")
    return names


def link_or_copy(source: str, target: str, progress: Progress) -> None:
    try:
        files.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        copy_file(source, target, progress)
    else:
        progress(os.path.getsize(target))


def copy_file(source: str, target: str, progress: Progress) -> None:
    """On file systems that can, the two share their bytes until one of them is changed (copy_file_range does that)."""
    try:
        with files.opened(source, files.READ_FLAGS) as reader, files.opened(target, files.CREATE_FLAGS) as writer:
            copy_data(reader, writer, progress)
    except OSError as error:
        error.filename = error.filename or target  # a full disk does not say which file it was
        raise


def copy_data(reader: int, writer: int, progress: Progress) -> None:
    size = os.fstat(reader).st_size
    position = 0
    while position < size:
        start, end = next_data(reader, position, size)
        progress(start - position)
        position = start
        while position < end:
            count = copy_piece(reader, writer, position, min(PIECE_BYTES, end - position))
            if count == 0:
                raise OSError(errno.EIO, "the source became shorter while it was copied")
            position += count
            progress(count)
    files.truncate(writer, size)
    files.sync(writer)


def next_data(descriptor: int, position: int, size: int) -> tuple[int, int]:
    """Where the next piece that is no hole starts and ends."""
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
        return start, min(size, os.lseek(descriptor, start, os.SEEK_HOLE))
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole follows
            return size, size
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # this file system knows no holes
            return position, size
        raise


def copy_piece(reader: int, writer: int, position: int, length: int) -> int:
    try:
        return files.copy_range(reader, writer, length, position, position)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise
    data = os.pread(reader, min(length, 1 << 20), position)
    files.write_whole(writer, data, position)
    return len(data)


def read_log(log: ForeignLog, directory: str, is_clean: bool, progress: Progress) -> ReadLog:
    """Check every batch once. What is damaged is told, not mended: that is the broker's business when it opens it."""
    found = ReadLog()
    found.leader_epoch = log.leader_epoch
    for base_offset in log.segments:
        path = files.segment_path(directory, base_offset, files.LOG_SUFFIX)
        found.end_offset = max(found.end_offset, base_offset)
        with files.opened(path, files.READ_FLAGS) as descriptor:
            size = os.fstat(descriptor).st_size
            scan = BatchScan(descriptor, 0, size, True)
            read_segment(scan, found)
        progress(size)
        is_torn_tail = base_offset == log.segments[-1] and not is_clean
        if scan.problem is not None:
            outcome = "is cut there at the first start" if is_torn_tail else "is not served from there on"
            found.warnings.append(f"{path}: {scan.problem} at position {scan.position} of {size}; it {outcome}")
    return found


def read_segment(scan: BatchScan, found: ReadLog) -> None:
    while scan.advance():
        found.producer_id_max = max(found.producer_id_max, scan.producer_id)
        found.leader_epoch = max(found.leader_epoch, scan.leader_epoch)
        found.end_offset = scan.last_offset + 1


def ignore(_count: int) -> None:
    """For files whose bytes nobody counts."""
