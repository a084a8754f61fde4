"""One folder of `log.dirs`: its lock, its owner, its checkpoint files and the partitions that stand in it.

`.kafka_cleanshutdown` is written last on a clean stop and removed before the first log is opened: with it no log is
scanned, without it each is recovered from its recovery point. A damaged checkpoint file only costs a longer recovery,
and is told. A folder whose disk has failed (`failure`) is left alone until the broker starts again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import uuid
from collections.abc import Mapping

from ottla.base.names import TopicPartition, topic_name_problem
from ottla.storage import files
from ottla.storage.checkpoints import (
    CLEANED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_offsets,
    write_offsets,
)
from ottla.storage.errors import FolderUnusableError, LogDirError
from ottla.storage.folder_jobs import DoomedFolder
from ottla.storage.log import Log

logger = logging.getLogger("ottla.storage.log_dir")

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
FOLDER_NAME_LENGTH_MAX = 255
KRAFT_METADATA_TOPIC = "__cluster_metadata"


class FoundLog:
    """The folder of a partition that nobody has opened yet."""

    __slots__ = ("directory", "is_clean", "log_start_offset", "partition", "recovery_point")

    def __init__(
        self, partition: TopicPartition, directory: str, is_clean: bool, recovery_point: int, log_start_offset: int
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.is_clean = is_clean
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset

    def __repr__(self) -> str:
        return f"<FoundLog {self.partition}, {'clean' if self.is_clean else 'to recover'}>"


class Checkpoints:
    """Offsets by partition for each checkpoint file of a folder: gathered on the loop, written by any thread."""

    def __init__(self, path: str, by_file: dict[str, dict[TopicPartition, int]]) -> None:
        self.path = path
        self.by_file = by_file
        self.is_written = False
        self.error: OSError | None = None

    def write(self) -> None:
        """Replace the files. If the disk does not take them, that is told, and `is_written` stays False.

        After a crash an older state of these files is still right: it only makes recovery longer.
        """
        try:
            for name, offsets in self.by_file.items():
                write_offsets(self.path, name, offsets)
        except OSError as error:
            self.error = error
            logger.error("Cannot write the checkpoint files of %s: %s", self.path, error)
        else:
            self.is_written = True

    def __repr__(self) -> str:
        return f"<Checkpoints of {self.path}: {', '.join(self.by_file)}>"


class LogDir:
    """A folder that is locked for this process until unlock(); with a failure, one that cannot even be locked."""

    def __init__(self, path: str, failure: str | None = None) -> None:
        self.path = os.path.abspath(path)
        self.failure = failure  # why it is out of service until the next start
        self.lock = lock_folder(self.path) if failure is None else -1
        self.marker: bytes | None = None  # of a clean shutdown, as it was found
        self.is_in_use = False
        self._first_use = threading.Lock()
        self.coming: set[TopicPartition] = set()  # new logs whose folder is being made
        self.logs: dict[TopicPartition, Log] = {}
        self.found: dict[TopicPartition, FoundLog] = {}  # on the disk, not open yet
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.known_cleaned_offsets: dict[TopicPartition, int] = {}  # as the last run left them
        self.futures: list[tuple[TopicPartition, str]] = []  # copies that a move to this folder had not finished
        self.arriving: dict[TopicPartition, int] = {}  # where logs start that are about to be moved here
        self.doomed: list[tuple[int, str]] = []  # (when to remove it, folder)

    @property
    def partition_count(self) -> int:
        return len(self.logs) + len(self.found) + len(self.coming)

    def look_around(self) -> None:
        """Find out how the last run ended and which partitions it left. Changes nothing."""
        self.marker = read_clean_shutdown_marker(self.path)
        is_clean = self.marker is not None
        recovery_points = self._read(RECOVERY_POINT_FILE)
        start_offsets = self._read(LOG_START_OFFSET_FILE)
        self.high_watermarks = self._read(HIGH_WATERMARK_FILE)
        self.known_cleaned_offsets = self._read(CLEANED_OFFSET_FILE)
        with os.scandir(self.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            if name.endswith(DELETE_SUFFIX):
                self.doomed.append((0, f"{self.path}/{name}"))
            elif name.endswith(FUTURE_SUFFIX) and (partition := parse_renamed_folder(name)) is not None:
                self.futures.append((partition, f"{self.path}/{name}"))
            elif (partition := parse_folder_name(name)) is not None:
                start_offset = start_offsets.get(partition, 0)
                recovery_point = recovery_points.get(partition, 0)
                folder = f"{self.path}/{name}"
                self.found[partition] = FoundLog(partition, folder, is_clean, recovery_point, start_offset)

    def begin_use(self) -> None:
        """Take the mark of a clean shutdown away before anything is changed: a crash from here on is a crash."""
        if self.is_in_use:
            return
        with self._first_use:
            if not self.is_in_use and files.remove_if_there(f"{self.path}/{CLEAN_SHUTDOWN_FILE}"):
                files.sync_path(self.path)
            self.is_in_use = True

    def restore_marker(self) -> None:
        """A start that came to nothing leaves the folder as it was found, if no log was changed meanwhile."""
        if self.is_in_use and self.marker is not None and all(log.is_unchanged for log in self.logs.values()):
            files.replace_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", self.marker, durable=True)

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None) -> Checkpoints:
        """What the next run starts from, as of now. Logs that are still to be opened keep what is known of them."""
        by_file = {RECOVERY_POINT_FILE: self.recovery_points(), LOG_START_OFFSET_FILE: self.start_offsets()}
        if cleaned_offsets := self.cleaned_offsets():
            by_file[CLEANED_OFFSET_FILE] = cleaned_offsets
        if high_watermarks is not None:
            by_file[HIGH_WATERMARK_FILE] = self.replicated_offsets(high_watermarks)
        return Checkpoints(self.path, by_file)

    def cleaned_offsets(self) -> dict[TopicPartition, int]:
        """Up to where logs are compacted; those that never were are left out."""
        known = self.known_cleaned_offsets
        offsets = {partition: known[partition] for partition in self.found if partition in known}
        offsets.update(
            (partition, log.cleaned_offset) for partition, log in self.logs.items() if log.cleaned_offset >= 0
        )
        return offsets

    def recovery_points(self) -> dict[TopicPartition, int]:
        points = {partition: found.recovery_point for partition, found in self.found.items()}
        points.update((partition, log.recovery_point) for partition, log in self.logs.items())
        return points

    def start_offsets(self) -> dict[TopicPartition, int]:
        """Where logs start that start inside of a segment; the others start where their first segment does."""
        found = self.found.items()
        offsets = {partition: each.log_start_offset for partition, each in found if each.log_start_offset}
        offsets.update(self.arriving)
        for partition, log in self.logs.items():
            if log.log_start_offset > log.segments[0].base_offset:
                offsets[partition] = log.log_start_offset
        return offsets

    def replicated_offsets(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        opening = {partition: self.high_watermarks.get(partition, 0) for partition in self.found}
        return opening | {name: high_watermarks[name] for name in self.logs if name in high_watermarks}

    def doom(self, log: Log, now_ms: int) -> DoomedFolder:
        """Take a partition out of service at once; its files go later, when nobody can still be sending them."""
        del self.logs[log.partition]
        log.abandon()
        log.on_failure = None  # whoever still flushes it may find no files: that is no failure of this folder
        log.failure = log.failure or "its partition is gone"
        return self.doom_folder(log.partition, log.directory, now_ms + log.topic_settings.file_delete_delay_ms, log)

    def doom_folder(
        self, partition: TopicPartition, directory: str, due_ms: int, log: Log | None = None
    ) -> DoomedFolder:
        """A folder that is not needed any more, to be renamed by the caller and removed later."""
        return DoomedFolder(self, directory, f"{self.path}/{renamed_folder(partition, DELETE_SUFFIX)}", due_ms, log)

    def take_doomed(self, now_ms: int) -> list[str]:
        """The folders whose time has come; the caller removes them."""
        due = [folder for due_ms, folder in self.doomed if due_ms <= now_ms]
        self.doomed = [item for item in self.doomed if item[0] > now_ms]
        return due

    def unlock(self) -> None:
        if self.lock >= 0:
            files.close(self.lock)
            self.lock = -1

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.path, name)
        except CheckpointError as error:
            logger.warning("Found a corrupted checkpoint file (%s), starting without it", error)
            return {}

    def __repr__(self) -> str:
        state = f"failed: {self.failure}" if self.failure else f"{self.partition_count} partitions"
        return f"<LogDir {self.path}, {state}, {len(self.doomed)} to remove>"


def lock_folder(path: str) -> int:
    """A descriptor that holds the lock; LogDirError if the folder cannot be used or another broker runs in it."""
    try:
        files.make_directories(path, exist_ok=True)
        descriptor = files.open_file(f"{path}/{LOCK_FILE}", files.CREATE_FLAGS, files.FILE_MODE)
    except (FileExistsError, NotADirectoryError) as error:
        raise FolderUnusableError(f"Cannot use the log folder {path}: it is not a folder; change log.dirs") from error
    except OSError as error:
        raise FolderUnusableError(
            f"Cannot use the log folder {path}: {error.strerror}; make it writable or change log.dirs"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind of lock that Apache Kafka takes and sees
    except OSError:
        files.close(descriptor)
        raise LogDirError(
            f"The log folder {path} is in use by another broker ({LOCK_FILE} is locked): stop that one first, "
            "or give this one another folder in log.dirs"
        ) from None
    return descriptor


def read_clean_shutdown_marker(path: str) -> bytes | None:
    """What the last run left if it ended well."""
    try:
        return files.read_whole(f"{path}/{CLEAN_SHUTDOWN_FILE}")
    except FileNotFoundError:
        return None


def write_clean_shutdown_marker(path: str, broker_epoch: int) -> None:
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace_file(f"{path}/{CLEAN_SHUTDOWN_FILE}", text.encode(), durable=True)


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition that a folder is named after, None for folders that hold none."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isdecimal() or topic == KRAFT_METADATA_TOPIC or topic_name_problem(topic):
        return None
    return TopicPartition(topic, int(number))


def parse_renamed_folder(name: str) -> TopicPartition | None:
    """The partition of a folder that renamed_folder() named, if its topic was not cut short."""
    return parse_folder_name(name.rpartition(".")[0])


def renamed_folder(partition: TopicPartition, suffix: str) -> str:
    """Kafka's name for the folder of a deleted or stray partition; a long topic name is cut to fit the file system."""
    ending = f"-{partition.partition}.{uuid.uuid4().hex}{suffix}"
    return partition.topic[: FOLDER_NAME_LENGTH_MAX - len(ending)] + ending
