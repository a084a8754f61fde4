"""One directory of `log.dirs`: its lock, its checkpoint files and its partitions.

`.kafka_cleanshutdown` is written last at a clean shutdown, and removed before the first log is opened. With it no log
is scanned; without it each log is recovered from its recovery point. A damaged checkpoint file is logged, and only
makes recovery longer. A log directory that has failed (`failure`) is not used until the broker restarts.

A busy disk may take seconds to create or rename a directory. The event loop therefore prepares and finishes these
operations, and a worker thread runs them.
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
from ottla.base.topic_settings import TopicSettings
from ottla.storage import files
from ottla.storage.checkpoints import (
    CLEANED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_offsets,
    read_transaction,
    write_offsets,
    write_transaction,
)
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.errors import FolderUnusableError, LogDirError
from ottla.storage.leader_epochs import LeaderEpochCache
from ottla.storage.log import Log
from ottla.storage.partition_metadata import write_topic_id
from ottla.storage.segment import create_segment

logger = logging.getLogger("ottla.storage.log_dir")

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
DIR_NAME_LENGTH_MAX = 255
KRAFT_METADATA_TOPIC = "__cluster_metadata"


class UnopenedLog:
    """The directory of a partition that is not open yet."""

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
        return f"<UnopenedLog {self.partition}, {'clean' if self.is_clean else 'to recover'}>"


class CheckpointWrite:
    """Offsets by partition for the checkpoint files of a log directory: collected on the event loop, written by any
    thread."""

    def __init__(self, path: str, by_file: dict[str, dict[TopicPartition, int]]) -> None:
        self.path = path
        self.by_file = by_file
        self.is_written = False
        self.error: OSError | None = None

    def write(self) -> None:
        """Replace the files. A failure is logged, and `is_written` stays False.

        After a crash older checkpoints are still valid; they only make recovery longer.
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
        return f"<CheckpointWrite of {self.path}: {', '.join(self.by_file)}>"


class LogDir:
    """A log directory, locked for this process until unlock(); one with a `failure` is not locked."""

    def __init__(self, path: str, failure: str | None = None) -> None:
        self.path = os.path.abspath(path)
        self.offline_reason = failure  # why it is offline until the next start
        self.lock = lock_dir(self.path) if failure is None else -1
        self.clean_shutdown_marker: bytes | None = None  # the clean shutdown marker as found at the start
        self.is_in_use = False
        self._first_use_lock = threading.Lock()
        self.creating: set[TopicPartition] = set()  # new logs whose directory is being created
        self.logs: dict[TopicPartition, Log] = {}
        self.unopened: dict[TopicPartition, UnopenedLog] = {}  # on disk, not open yet
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.known_cleaned_offsets: dict[TopicPartition, int] = {}  # from the checkpoint of the last run
        self.future_dirs: list[tuple[TopicPartition, str]] = []  # unfinished copies of a move to this log directory
        self.incoming_start_offsets: dict[
            TopicPartition, int
        ] = {}  # log start offsets of logs that are about to be moved here
        self.pending_deletes: list[tuple[int, str]] = []  # (time of removal, directory)
        self.metadata_transaction: int | None = None  # the last recorded metadata transaction
        self._transaction_lock = threading.Lock()
        self._is_metadata_transaction_durable = True

    @property
    def partition_count(self) -> int:
        return len(self.logs) + len(self.unopened) + len(self.creating)

    def scan(self) -> None:
        """Read how the last run ended and which partitions exist. Changes nothing."""
        self.metadata_transaction = read_transaction(self.path)
        self.clean_shutdown_marker = read_clean_shutdown_marker(self.path)
        is_clean = self.clean_shutdown_marker is not None
        recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        start_offsets = self._read_checkpoint(LOG_START_OFFSET_FILE)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)
        self.known_cleaned_offsets = self._read_checkpoint(CLEANED_OFFSET_FILE)
        with os.scandir(self.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            if name.endswith(DELETE_SUFFIX):
                self.pending_deletes.append((0, f"{self.path}/{name}"))
            elif name.endswith(FUTURE_SUFFIX) and (partition := parse_renamed_dir_name(name)) is not None:
                self.future_dirs.append((partition, f"{self.path}/{name}"))
            elif (partition := parse_topic_partition_name(name)) is not None:
                start_offset = start_offsets.get(partition, 0)
                recovery_point = recovery_points.get(partition, 0)
                folder = f"{self.path}/{name}"
                self.unopened[partition] = UnopenedLog(partition, folder, is_clean, recovery_point, start_offset)

    def record_transaction(self, number: int, *, is_durable: bool = True) -> None:
        """Record the metadata transaction that created or deleted a partition here; in any thread, OSError.

        Without `is_durable` a power cut may lose it, until it is recorded once more.
        """
        with self._transaction_lock:
            known = self.metadata_transaction
            if known is None or number > known or (is_durable and not self._is_metadata_transaction_durable):
                number = max(number, known or 0)
                write_transaction(self.path, number, is_durable=is_durable)
                self.metadata_transaction = number
                self._is_metadata_transaction_durable = is_durable

    def reset_transaction(self, number: int) -> None:
        """Replace the recorded number, to follow another metadata store."""
        write_transaction(self.path, number)
        self.metadata_transaction = number

    def begin_use(self) -> None:
        """Remove the clean shutdown marker before anything is changed: from here on a crash needs recovery."""
        if self.is_in_use:
            return
        with self._first_use_lock:
            if not self.is_in_use and files.remove_if_exists(f"{self.path}/{CLEAN_SHUTDOWN_FILE}"):
                files.sync_path(self.path)
            self.is_in_use = True

    def restore_clean_shutdown_marker(self) -> None:
        """Restore the clean shutdown marker after an aborted start, if no log was changed since."""
        if (
            self.is_in_use
            and self.clean_shutdown_marker is not None
            and all(log.is_unchanged for log in self.logs.values())
        ):
            files.replace_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", self.clean_shutdown_marker, is_durable=True)

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None) -> CheckpointWrite:
        """Return the checkpoints as of now. Logs that are not open yet keep their known offsets."""
        by_file = {RECOVERY_POINT_FILE: self.recovery_points(), LOG_START_OFFSET_FILE: self.start_offsets()}
        if cleaned_offsets := self.cleaned_offsets():
            by_file[CLEANED_OFFSET_FILE] = cleaned_offsets
        if high_watermarks is not None:
            by_file[HIGH_WATERMARK_FILE] = self.high_watermark_checkpoint(high_watermarks)
        return CheckpointWrite(self.path, by_file)

    def cleaned_offsets(self) -> dict[TopicPartition, int]:
        """Return the cleaner checkpoint; logs that were never compacted are omitted."""
        known = self.known_cleaned_offsets
        offsets = {partition: known[partition] for partition in self.unopened if partition in known}
        offsets.update(
            (partition, log.cleaned_offset) for partition, log in self.logs.items() if log.cleaned_offset >= 0
        )
        return offsets

    def recovery_points(self) -> dict[TopicPartition, int]:
        points = {partition: found.recovery_point for partition, found in self.unopened.items()}
        points.update((partition, log.recovery_point) for partition, log in self.logs.items())
        return points

    def start_offsets(self) -> dict[TopicPartition, int]:
        """Return the log start offsets inside a segment; the other logs start with their first segment."""
        found = self.unopened.items()
        offsets = {partition: each.log_start_offset for partition, each in found if each.log_start_offset}
        offsets.update(self.incoming_start_offsets)
        for partition, log in self.logs.items():
            if log.log_start_offset > log.segments[0].base_offset:
                offsets[partition] = log.log_start_offset
        return offsets

    def high_watermark_checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        opening = {partition: self.high_watermarks.get(partition, 0) for partition in self.unopened}
        return opening | {name: high_watermarks[name] for name in self.logs if name in high_watermarks}

    def delete_log(self, log: Log, now_ms: int) -> PendingDirDelete:
        """Take a partition offline now; its files are removed later, after active reads have finished."""
        del self.logs[log.partition]
        log.close_files()
        log.on_offline = None  # a running flush may not find the files: this is not a failure of the log directory
        log.offline_reason = log.offline_reason or "its partition was deleted"
        return self.delete_directory(log.partition, log.directory, now_ms + log.settings.file_delete_delay_ms, log)

    def delete_directory(
        self, partition: TopicPartition, directory: str, due_ms: int, log: Log | None = None
    ) -> PendingDirDelete:
        """Return a directory to be renamed by the caller and removed later."""
        return PendingDirDelete(
            self, directory, f"{self.path}/{renamed_dir_name(partition, DELETE_SUFFIX)}", due_ms, log
        )

    def take_due_deletes(self, now_ms: int) -> list[str]:
        """Return the directories whose delay is over; the caller removes them."""
        due = [folder for due_ms, folder in self.pending_deletes if due_ms <= now_ms]
        self.pending_deletes = [item for item in self.pending_deletes if item[0] > now_ms]
        return due

    def unlock(self) -> None:
        if self.lock >= 0:
            files.close(self.lock)
            self.lock = -1

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.path, name)
        except CheckpointError as error:
            logger.warning("Found a corrupted checkpoint file (%s), starting without it", error)
            return {}

    def __repr__(self) -> str:
        state = f"failed: {self.offline_reason}" if self.offline_reason else f"{self.partition_count} partitions"
        return f"<LogDir {self.path}, {state}, {len(self.pending_deletes)} to remove>"


def lock_dir(path: str) -> int:
    """Return a descriptor that holds the lock.

    Raises LogDirError if another broker holds it, or if the directory is unusable.
    """
    try:
        files.make_directories(path, exist_ok=True)
        descriptor = files.open_file(f"{path}/{LOCK_FILE}", files.CREATE_FLAGS, files.FILE_MODE)
    except (FileExistsError, NotADirectoryError) as error:
        raise FolderUnusableError(f"Cannot use the log directory {path}: it is a file; change log.dirs") from error
    except OSError as error:
        raise FolderUnusableError(
            f"Cannot use the log directory {path}: {error.strerror}; make it writable or change log.dirs"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock type that Apache Kafka uses
    except OSError:
        files.close(descriptor)
        raise LogDirError(
            f"The log directory {path} is in use by another broker ({LOCK_FILE} is locked): stop that one first, "
            "or give this one another folder in log.dirs"
        ) from None
    return descriptor


def read_clean_shutdown_marker(path: str) -> bytes | None:
    """Return the clean shutdown marker of the last run, if any."""
    try:
        return files.read_file(f"{path}/{CLEAN_SHUTDOWN_FILE}")
    except FileNotFoundError:
        return None


def write_clean_shutdown_marker(path: str, broker_epoch: int) -> None:
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace_file(f"{path}/{CLEAN_SHUTDOWN_FILE}", text.encode(), is_durable=True)


def parse_topic_partition_name(name: str) -> TopicPartition | None:
    """Return the partition of a directory name; None for other directories."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isdecimal() or topic == KRAFT_METADATA_TOPIC or topic_name_problem(topic):
        return None
    return TopicPartition(topic, int(number))


def parse_renamed_dir_name(name: str) -> TopicPartition | None:
    """Return the partition of a name made by renamed_dir_name(), unless its topic name was shortened."""
    return parse_topic_partition_name(name.rpartition(".")[0])


def renamed_dir_name(partition: TopicPartition, suffix: str) -> str:
    """Return Kafka's directory name for a deleted or stray partition; long topic names are shortened."""
    ending = f"-{partition.partition}.{uuid.uuid4().hex}{suffix}"
    return partition.topic[: DIR_NAME_LENGTH_MAX - len(ending)] + ending


class LogCreation:
    """The creation of an empty log. Until it is finished it is counted as a partition of its log directory."""

    def __init__(
        self,
        log_dir: LogDir,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        settings: TopicSettings,
        pool: DescriptorPool,
        now_ms: int,
        producer_expiration_ms: int,
    ) -> None:
        self.log_dir = log_dir
        self.partition = partition
        self.topic_id = topic_id
        self.settings = settings
        self.log: Log | None = None
        self.error: OSError | None = None
        self._pool = pool
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms
        log_dir.creating.add(partition)

    def run(self) -> None:
        """Create the log, in any thread. Never raises; the outcome is in `log` or in `error`."""
        try:
            self.log_dir.begin_use()
            self.log = create_log(
                self.partition,
                f"{self.log_dir.path}/{self.partition}",
                self.settings,
                self._pool,
                self.topic_id,
                self._now_ms,
                self._producer_expiration_ms,
            )
        except OSError as error:
            self.error = error

    def __repr__(self) -> str:
        return f"<LogCreation {self.partition} in {self.log_dir.path}, error {self.error}>"


class PendingDirDelete:
    """The deletion of a partition's directory: it is renamed now and removed later."""

    def __init__(self, log_dir: LogDir, directory: str, folder: str, due_ms: int, log: Log | None = None) -> None:
        self.log_dir = log_dir
        self.directory = directory
        self.target = folder
        self._due_ms = due_ms
        self._log = log  # the log of this directory
        self._is_renamed = False

    def run(self) -> None:
        """Rename the directory, in any thread. If this fails, the next start finds a directory without a topic."""
        try:
            self.log_dir.begin_use()
            files.rename(self.directory, self.target)
        except OSError as error:
            logger.error("Cannot rename the deleted folder %s: %s", self.directory, error)
        else:
            self._is_renamed = True

    def finish(self) -> None:
        if self._is_renamed:
            self.log_dir.pending_deletes.append((self._due_ms, self.target))
            if self._log is not None:
                self._log.set_directory(self.target)

    def __repr__(self) -> str:
        return f"<PendingDirDelete {self.directory}>"


def create_log(
    partition: TopicPartition,
    directory: str,
    settings: TopicSettings,
    pool: DescriptorPool,
    topic_id: uuid.UUID | None,
    now_ms: int,
    producer_expiration_ms: int,
) -> Log:
    """Create the directory of a new partition. It is durable after the first flush."""
    files.make_directory(directory)
    try:
        segment = create_segment(directory, 0, pool, now_ms, settings.reserved_segment_bytes)
        if topic_id is not None:
            write_topic_id(directory, topic_id)
    except OSError:
        files.remove_tree(directory, ignore_errors=True)  # a partial directory would make the next attempt fail
        raise
    log = Log(
        partition,
        directory,
        settings,
        pool,
        [segment],
        end_offset=0,
        log_start_offset=0,
        recovery_point=0,
        epochs=LeaderEpochCache(directory),
        producer_expiration_ms=producer_expiration_ms,
        topic_id=topic_id,
    )
    log.has_verified_txn_index = True
    log.mark_directory_new()
    return log
