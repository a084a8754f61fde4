"""Imports the partitions of foreign log directories: copies or links their files, then verifies them.

Rules:
1. Files of the source are never opened for writing.
2. Sparse files stay sparse: a killed Kafka leaves indexes of 10 MB that are almost all hole.
3. Only full segments below the recovery point may be linked: neither side writes to such a file again. Indexes are
   always copied, because a damaged one is rebuilt in place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.cli.migration.foreign_dirs import ForeignFolder, ForeignLog
from ottla.storage import files
from ottla.storage.checkpoints import (
    CLEANED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    write_offsets,
    write_transaction,
)
from ottla.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from ottla.storage.log_dir import write_clean_shutdown_marker
from ottla.storage.meta_properties import check_meta_properties, write_meta_properties
from ottla.storage.partition_metadata import write_topic_id
from ottla.storage.scan import BatchScan
from ottla.storage.segment import FILE_SUFFIXES

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
"""Called with the number of additional bytes."""


class ReadLog:
    """The result of reading all batches of a partition."""

    def __init__(self) -> None:
        self.producer_id_max = -1
        self.leader_epoch = -1
        self.end_offset = 0
        self.warnings: list[str] = []

    def __repr__(self) -> str:
        return f"<ReadLog to {self.end_offset}, epoch {self.leader_epoch}, {len(self.warnings)} warnings>"


def copy_log(log: ForeignLog, directory: str, recovery_point: int, *, links: bool, progress: Progress) -> None:
    """Copy all files that a broker needs to a new directory."""
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
    """Log files that are never written again: a later segment exists, and all of the file is durable."""
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
    """Where the file system supports it, copy_file_range() shares the data until one of the files is changed."""
    try:
        with (
            files.open_descriptor(source, files.READ_FLAGS) as reader,
            files.open_descriptor(target, files.CREATE_FLAGS) as writer,
        ):
            copy_data(reader, writer, progress)
    except OSError as error:
        error.filename = error.filename or target  # ENOSPC does not name the file
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
    """Start and end of the next part that is not a hole."""
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
        return start, min(size, os.lseek(descriptor, start, os.SEEK_HOLE))
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole follows
            return size, size
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system does not support holes
            return position, size
        raise


def copy_piece(reader: int, writer: int, position: int, length: int) -> int:
    try:
        return files.copy_range(reader, writer, length, position, position)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise
    data = os.pread(reader, min(length, 1 << 20), position)
    files.write_all(writer, data, position)
    return len(data)


def read_log(log: ForeignLog, directory: str, is_clean: bool, progress: Progress) -> ReadLog:
    """Verify every batch once. Damage is only reported; the broker repairs it when it opens the log."""
    found = ReadLog()
    found.leader_epoch = log.leader_epoch
    for base_offset in log.segments:
        path = files.segment_path(directory, base_offset, files.LOG_SUFFIX)
        found.end_offset = max(found.end_offset, base_offset)
        with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
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
    """For files that do not count as progress."""


UNKNOWN_EPOCH = -1


class Arrival:
    """An import of partitions with one node id and cluster id.

    With a target the partitions are copied there. Without one they stay in place, and only the missing files of ottla
    are added. Before finish() nothing at the source has changed, and undo() removes what was created.
    """

    def __init__(
        self, folders: Sequence[ForeignFolder], target: str | None, node_id: int, cluster_id: str, *, links: bool
    ) -> None:
        self.folders = folders
        self.target = None if target is None else os.path.abspath(target)
        self._is_target_new = target is not None and not os.path.exists(target)
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.links = links
        self.producer_id_max = -1
        self.warnings: list[str] = []
        self._ids: list[tuple[str, UUID]] = []  # directories that need a partition.metadata
        self._made: list[str] = []  # removed by undo()
        self._taken: list[tuple[ForeignFolder, TopicPartition]] = []

    @property
    def store_directory(self) -> str:
        """The directory of the metadata store: the first log directory."""
        return self.target or self.folders[0].path

    def prepare(self) -> None:
        if self.target is not None:
            files.make_directories(self.target, exist_ok=True)

    def take(self, log: ForeignLog, topic_id: UUID, progress: Progress) -> int:
        """Import and verify one partition; returns its last leader epoch."""
        folder = next(f for f in self.folders if f.path == os.path.dirname(log.directory))
        directory = log.directory
        if self.target is not None:
            directory = f"{self.target}/{log.partition}"
            self._made.append(directory)
            point = folder.recovery_points.get(log.partition, 0)
            copy_log(log, directory, point, links=self.links, progress=progress)
        found = read_log(log, directory, folder.is_clean, progress)
        if self.target is not None or log.topic_id is None:
            self._ids.append((directory, topic_id))
        self.producer_id_max = max(self.producer_id_max, found.producer_id_max)
        self.warnings += found.warnings
        self._taken.append((folder, log.partition))
        return found.leader_epoch

    def make_empty(self, topic: str, index: int, topic_id: UUID) -> None:
        """Create an empty log for a partition without files."""
        directory = f"{self.store_directory}/{TopicPartition(topic, index)}"
        files.make_directory(directory)
        self._made.append(directory)
        for suffix in FILE_SUFFIXES[:3]:  # the log file and its two indexes
            files.create_empty(files.segment_path(directory, 0, suffix))
        self._ids.append((directory, topic_id))
        self.warnings.append(f"{directory} was created empty")

    def finish(self) -> None:
        """Write topic ids, checkpoints, meta.properties and the clean shutdown marker."""
        for directory, topic_id in self._ids:
            write_topic_id(directory, topic_id)
        if self.target is None:
            for folder in self.folders:
                if check_meta_properties(folder.path, self.node_id, self.cluster_id) is None:
                    write_meta_properties(folder.path, self.node_id, self.cluster_id)
            return
        write_offsets(self.target, RECOVERY_POINT_FILE, self._offsets("recovery_points"))
        write_offsets(self.target, LOG_START_OFFSET_FILE, self._offsets("start_offsets"))
        write_offsets(self.target, HIGH_WATERMARK_FILE, self._offsets("high_watermarks"))
        write_offsets(self.target, CLEANED_OFFSET_FILE, self._offsets("cleaned_offsets"))
        write_meta_properties(self.target, self.node_id, self.cluster_id)
        if all(folder.is_clean for folder in self.folders):
            write_clean_shutdown_marker(self.target, UNKNOWN_EPOCH)

    def record_transaction(self, number: int) -> None:
        """Record the metadata transaction; partitions that were not imported become stray."""
        for path in [self.target] if self.target is not None else [folder.path for folder in self.folders]:
            write_transaction(path, number)

    def undo(self) -> None:
        """Remove the copies; a directory that was used in place keeps its own files."""
        if self._is_target_new and self.target is not None:
            self._made.append(self.target)
        for directory in self._made:
            files.remove_tree(directory, ignore_errors=True)

    def _offsets(self, kind: str) -> dict[TopicPartition, int]:
        known = [(partition, getattr(folder, kind).get(partition)) for folder, partition in self._taken]
        return {partition: offset for partition, offset in known if offset is not None}

    def __repr__(self) -> str:
        return f"<Arrival in {self.target or 'place'}, {len(self._taken)} partitions>"
