"""Read-only inspection of log directories of Apache Kafka, or of another ottla.

Each partition is checked: whether its files are readable, its topic id, its size. `log_import.py` copies the data;
`controller/migration/adoption.py` creates the metadata.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.storage import files
from ottla.storage.checkpoints import (
    CLEANED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_offsets,
    read_transaction,
)
from ottla.storage.errors import LogDirError
from ottla.storage.leader_epochs import load_epochs
from ottla.storage.log_dir import (
    DELETE_SUFFIX,
    KRAFT_METADATA_TOPIC,
    LOCK_FILE,
    STRAY_SUFFIX,
    parse_topic_partition_name,
    read_clean_shutdown_marker,
)
from ottla.storage.meta_properties import FILE_NAME as META_PROPERTIES
from ottla.storage.meta_properties import read_meta_properties
from ottla.storage.partition_dir import base_offsets_of
from ottla.storage.partition_metadata import read_topic_id

FUTURE_SUFFIX: Final = "-future"
MAGIC_POSITION: Final = 16  # of a batch and of older message sets
OLDEST_MAGIC: Final = 2
PASSED_OVER: Final = (DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)


class ForeignLog(NamedTuple):
    """The directory of one partition, as found."""

    partition: TopicPartition
    directory: str
    topic_id: UUID | None
    segments: tuple[int, ...]
    size_bytes: int
    leader_epoch: int
    problem: str | None  # why it cannot be imported


class ForeignFolder:
    """One log directory of another broker."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.node_id: int | None = None
        self.cluster_id: str | None = None
        self.is_clean = False
        self.logs: list[ForeignLog] = []
        self.transaction: int | None = None  # the last metadata transaction, if it is a log directory of ottla
        self.passed_over: list[str] = []  # directories of deleted, stray and moving partitions
        self.metadata_log: str | None = None  # KRaft's metadata partition, if it is here
        self.warnings: list[str] = []
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        self._locks: list[int] = []

    def lock(self) -> None:
        """Take a shared lock, so that no broker starts here; raises LogDirError if one is running.

        Nothing is written.
        """
        try:
            descriptor = files.open_file(f"{self.path}/{LOCK_FILE}", files.READ_FLAGS)
        except FileNotFoundError:
            return  # Kafka removes the file at shutdown
        self._locks.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise LogDirError(
                f"a broker is running on {self.path} ({LOCK_FILE} is locked): stop it first, or copy the folder of a "
                "stopped one"
            ) from None

    def unlock(self) -> None:
        for descriptor in self._locks:
            files.close(descriptor)
        self._locks.clear()

    @property
    def compacted(self) -> set[str]:
        """Topics that the log cleaner has compacted."""
        return {partition.topic for partition in self.cleaned_offsets}

    def __repr__(self) -> str:
        return f"<ForeignFolder {self.path}, {len(self.logs)} partitions, {'clean' if self.is_clean else 'not clean'}>"


def look_at(path: str) -> ForeignFolder:
    """Lock and inspect a log directory. Raises LogDirError if it is none, or if a broker is running there."""
    if not os.path.isdir(path):
        raise LogDirError(f"{path} does not exist")
    folder = ForeignFolder(path)
    try:
        folder.lock()
        read_owner(folder)
        read_checkpoints(folder)
        with os.scandir(folder.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            add_entry(folder, name)
    except (LogDirError, OSError):
        folder.unlock()
        raise
    if not folder.logs and folder.node_id is None and folder.metadata_log is None:
        folder.unlock()
        raise LogDirError(f"{path} is not a log directory of Kafka: it has no partitions and no {META_PROPERTIES}")
    return folder


def read_owner(folder: ForeignFolder) -> None:
    values = read_meta_properties(f"{folder.path}/{META_PROPERTIES}")
    if values is not None:
        number = values.get("broker.id", values.get("node.id", ""))
        folder.node_id = int(number) if number.isdecimal() else None
        folder.cluster_id = values["cluster.id"]
    folder.transaction = read_transaction(folder.path)
    folder.is_clean = read_clean_shutdown_marker(folder.path) is not None


def read_checkpoints(folder: ForeignFolder) -> None:
    folder.recovery_points = read_or_warn(folder, RECOVERY_POINT_FILE)
    folder.start_offsets = read_or_warn(folder, LOG_START_OFFSET_FILE)
    folder.high_watermarks = read_or_warn(folder, HIGH_WATERMARK_FILE)
    folder.cleaned_offsets = read_or_warn(folder, CLEANED_OFFSET_FILE)


def read_or_warn(folder: ForeignFolder, name: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(folder.path, name)
    except CheckpointError as error:
        folder.warnings.append(f"{error}: continuing without it, so the first start reads more of the logs")
        return {}


def add_entry(folder: ForeignFolder, name: str) -> None:
    partition = parse_topic_partition_name(name)
    if partition is not None:
        folder.logs.append(look_at_log(partition, f"{folder.path}/{name}"))
    elif name.rpartition("-")[0] == KRAFT_METADATA_TOPIC:
        folder.metadata_log = f"{folder.path}/{name}"
    elif name.endswith(PASSED_OVER):
        folder.passed_over.append(name)


def look_at_log(partition: TopicPartition, directory: str) -> ForeignLog:
    """Inspect one partition. Never raises; a problem with it is in `problem`."""
    topic_id: UUID | None = None
    problem: str | None = None
    segments: list[int] = []
    size_bytes = 0
    epoch = -1
    try:
        with os.scandir(directory) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
        segments = base_offsets_of(sizes, files.LOG_SUFFIX)
        size_bytes = sum(sizes[f"{base:020d}{files.LOG_SUFFIX}"] for base in segments)
        topic_id = read_topic_id(directory)
        epoch = load_epochs(directory).latest_epoch
        problem = segments_problem(directory, segments)
    except CheckpointError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or directory}: {error.strerror}"
    return ForeignLog(partition, directory, topic_id, tuple(segments), size_bytes, epoch, problem)


def segments_problem(directory: str, segments: list[int]) -> str | None:
    if not segments:
        return f"{directory} has no segment"
    for base_offset in segments:
        path = files.segment_path(directory, base_offset, files.LOG_SUFFIX)
        with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
            head = os.pread(descriptor, MAGIC_POSITION + 1, 0)
        if len(head) > MAGIC_POSITION and head[MAGIC_POSITION] < OLDEST_MAGIC and any(head):
            magic = head[MAGIC_POSITION]
            return f"{path} contains messages of format {magic}, from before Kafka 0.11, which are not supported"
    return None
