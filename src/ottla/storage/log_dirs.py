"""All logs of one broker, in all directories of `log.dirs`.

open() locks the directories, load() opens their logs. Recovery after a crash may take long. A broker that serves
clients in the meantime opens the logs of `found` itself: open_log() runs in any thread, add_opened() on the owner's.

A disk failure takes its log directory offline (`LogDir.failure`) with all its logs; the others continue. `on_failure`
reports it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.errors import FolderUnusableError, LogDirError
from ottla.storage.flush import FlushJob, SyncLatency
from ottla.storage.log import Log
from ottla.storage.log_dir import (
    STRAY_SUFFIX,
    CheckpointWrite,
    LogCreation,
    LogDir,
    PendingDirDelete,
    UnopenedLog,
    renamed_dir_name,
    write_clean_shutdown_marker,
)
from ottla.storage.log_loader import open_log
from ottla.storage.meta_properties import check_meta_properties, write_meta_properties

logger = logging.getLogger("ottla.storage.log_dirs")

PRODUCER_EXPIRATION_MS = 86_400_000
SYNC_THREADS = 16
PREFERRED_LOG_DIRS_MAX = 10_000
FLUSH_JOBS_MAX = 256  # each holds at least one descriptor


class LogDirs:
    """The log directories and every open log in them."""

    def __init__(
        self,
        dirs: list[LogDir],
        *,
        node_id: int,
        cluster_id: str | None,
        clock: Clock,
        producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        open_files_max: int = 0,
    ) -> None:
        self.dirs = dirs
        self.node_id = node_id
        self.cluster_id = cluster_id  # None until write_meta_properties() if the directories are new
        self.clock = clock
        self.sync_times = SyncLatency(clock)
        self.pool = DescriptorPool(open_files_max)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        # Log directories chosen for future partitions (AlterReplicaLogDirs).
        self.preferred_log_dirs: dict[TopicPartition, str] = {}
        self.cordoned_paths: AbstractSet[str] = frozenset()  # log directories that get no new partitions
        self.on_failure: Callable[[LogDir], None] | None = None

    @classmethod
    def open(
        cls,
        paths: tuple[str, ...],
        *,
        node_id: int,
        cluster_id: str | None = None,
        clock: Clock,
        producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        open_files_max: int = 0,
    ) -> LogDirs:
        """Lock and scan the directories. Raises LogDirError if one is in use or belongs to another broker or cluster.

        An unusable directory is skipped, if there is another one. Without a cluster
        id, the stored one is used (`cluster_id`, None for new directories).
        """
        dirs: list[LogDir] = []
        try:
            for path in paths:
                dirs.append(lock_if_possible(path))  # noqa: PERF401 - those locked so far are unlocked if one fails
            for log_dir in dirs:
                cluster_id = scan_if_possible(log_dir, node_id, cluster_id)
            if all(log_dir.offline_reason for log_dir in dirs):
                raise FolderUnusableError("; ".join(log_dir.offline_reason or "" for log_dir in dirs))
        except LogDirError:
            for log_dir in dirs:
                log_dir.unlock()
            raise
        log_dirs = cls(
            dirs,
            node_id=node_id,
            cluster_id=cluster_id,
            clock=clock,
            producer_id_expiration_ms=producer_id_expiration_ms,
            open_files_max=open_files_max,
        )
        if cluster_id is not None:
            log_dirs.write_meta_properties(cluster_id)
        return log_dirs

    def write_meta_properties(self, cluster_id: str) -> None:
        """Write meta.properties to the directories that have none."""
        self.cluster_id = cluster_id
        for log_dir in self.online:
            if check_meta_properties(log_dir.path, self.node_id, cluster_id) is None:
                write_meta_properties(log_dir.path, self.node_id, cluster_id)

    # --- folders that fail --------------------------------------------------------------------------------------

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.offline_reason is None]

    @property
    def are_all_online(self) -> bool:
        """Whether every log directory is online; otherwise a missing log may be in an offline one."""
        return all(log_dir.offline_reason is None for log_dir in self.dirs)

    def log_offline_dirs(self) -> None:
        """Log why directories are offline from the start, for a broker that continues without them."""
        for log_dir in self.dirs:
            if log_dir.offline_reason is not None:
                logger.error("%s", log_dir.offline_reason)

    def find(self, path: str) -> LogDir | None:
        return next((log_dir for log_dir in self.dirs if log_dir.path == path), None)

    def take_offline(self, log_dir: LogDir, reason: str) -> None:
        """Take a log directory offline: none of its logs accepts another write."""
        if log_dir.offline_reason is not None:
            return
        log_dir.offline_reason = reason
        logger.error(
            "The log directory %s is offline with %d partitions: %s", log_dir.path, log_dir.partition_count, reason
        )
        for log in log_dir.logs.values():
            log.offline_reason = log.offline_reason or reason
        if self.on_failure is not None:
            self.on_failure(log_dir)

    def take_offline_at(self, directory: str, reason: str) -> None:
        """Take the log directory offline that contains this partition's directory."""
        self.take_offline(self._dir_of(directory), reason)

    def is_offline(self, directory: str) -> bool:
        return self._dir_of(directory).offline_reason is not None

    def close_offline(self, log_dir: LogDir) -> list[TopicPartition]:
        """Close the logs of a failed log directory and return its partitions; the disk is not touched."""
        names = [*log_dir.logs, *log_dir.unopened]
        for log in log_dir.logs.values():
            log.close_files()
        log_dir.logs.clear()
        log_dir.unopened.clear()
        log_dir.pending_deletes.clear()
        return names

    def _on_log_failure(self, log: Log) -> None:
        self.take_offline(self._dir_of(log.directory), log.offline_reason or "one of its logs failed")

    # --- loading ------------------------------------------------------------------------------------------------

    @property
    def unopened(self) -> list[UnopenedLog]:
        """The partitions on disk that are not open yet."""
        return [found for log_dir in self.dirs for found in log_dir.unopened.values()]

    @property
    def needs_recovery(self) -> list[UnopenedLog]:
        """The logs that were not closed cleanly: opening them reads their tail."""
        return [found for found in self.unopened if not found.is_clean]

    def open_log(self, found: UnopenedLog, settings: TopicSettings) -> Log:
        """Open one log, with recovery if needed. Runs in any thread; add_opened() adds it to this broker."""
        log_dir = self._dir_of(found.directory)
        log_dir.begin_use()
        log = open_log(
            found.partition,
            found.directory,
            settings,
            pool=self.pool,
            is_clean=found.is_clean,
            recovery_point=found.recovery_point,
            log_start_offset=found.log_start_offset,
            now_ms=self.clock.now_ms(),
            producer_expiration_ms=self.producer_id_expiration_ms,
            high_watermark=log_dir.high_watermarks.get(found.partition, 0),
        )
        log.cleaned_offset = log_dir.known_cleaned_offsets.get(found.partition, log.cleaned_offset)
        return log

    def add_opened(self, found: UnopenedLog, log: Log) -> None:
        log_dir = self._dir_of(found.directory)
        del log_dir.unopened[found.partition]
        self._add_log(log_dir, log)

    def _add_log(self, log_dir: LogDir, log: Log) -> None:
        log.on_offline = self._on_log_failure
        log_dir.logs[log.partition] = log

    def mark_stray(self, found: UnopenedLog) -> str:
        """Rename the directory of a stray partition as Kafka does, and remove it from this object."""
        place = f"{os.path.dirname(found.directory)}/{renamed_dir_name(found.partition, STRAY_SUFFIX)}"
        files.rename(found.directory, place)
        del self._dir_of(found.directory).unopened[found.partition]
        return place

    def delete_duplicate(self, found: UnopenedLog) -> None:
        """Remove a copy of a partition that another log directory also has."""
        log_dir = self._dir_of(found.directory)
        del log_dir.unopened[found.partition]
        run_dir_delete(log_dir.delete_directory(found.partition, found.directory, 0))

    def load(self, topic_settings_for: Callable[[str], TopicSettings], threads: int = 2) -> dict[TopicPartition, Log]:
        """Open all logs and wait. Clean directories are opened in this thread, others in worker threads."""
        topics = {found.partition.topic for found in self.unopened}
        by_topic = {topic: topic_settings_for(topic) for topic in topics}
        for log_dir in self.dirs:
            found_logs = list(log_dir.unopened.values())
            if any(not found.is_clean for found in found_logs):
                with ThreadPoolExecutor(threads, thread_name_prefix="recovery") as executor:
                    logs = list(executor.map(lambda f: self.open_log(f, by_topic[f.partition.topic]), found_logs))
            else:
                logs = [self.open_log(found, by_topic[found.partition.topic]) for found in found_logs]
            log_dir.unopened.clear()
            for log in logs:
                self._add_log(log_dir, log)
        return self.logs

    # --- logs ---------------------------------------------------------------------------------------------------

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return {partition: log for log_dir in self.dirs for partition, log in log_dir.logs.items()}

    def create(self, partition: TopicPartition, topic_id: uuid.UUID | None, settings: TopicSettings) -> Log:
        """Create an empty log in the preferred directory, otherwise in the one with the fewest partitions. A directory
        that fails goes offline, and the next one is tried.
        """
        while True:
            new = self.begin_create(partition, topic_id, settings)
            new.run()
            log = self.finish_create(new)
            if log is not None:
                return log

    def begin_create(
        self, partition: TopicPartition, topic_id: uuid.UUID | None, settings: TopicSettings
    ) -> LogCreation:
        """Begin a creation in three steps; run() is for any thread.

        Raises KafkaError if all directories have failed.
        """
        log_dir = self._next_log_dir(partition)
        return LogCreation(
            log_dir, partition, topic_id, settings, self.pool, self.clock.now_ms(), self.producer_id_expiration_ms
        )

    def finish_create(self, new: LogCreation) -> Log | None:
        """Return the log; None if its directory has failed and the next one should be tried.

        Raises OSError for errors that a retry would not fix.
        """
        new.log_dir.creating.discard(new.partition)
        if new.error is not None:
            if files.is_transient(new.error) or isinstance(new.error, FileExistsError):
                raise new.error
            self.take_offline(new.log_dir, f"cannot make the folder of {new.partition}: {new.error}")
        if new.log is None or new.log_dir.offline_reason is not None:
            return None
        self._add_log(new.log_dir, new.log)
        return new.log

    def maybe_update_preferred_log_dir(self, partition: TopicPartition, path: str) -> None:
        """Store the log directory of a partition that may be created later. The oldest entries are evicted first."""
        self.preferred_log_dirs.pop(partition, None)
        if len(self.preferred_log_dirs) >= PREFERRED_LOG_DIRS_MAX:
            self.preferred_log_dirs.pop(next(iter(self.preferred_log_dirs)))
        self.preferred_log_dirs[partition] = path

    def _next_log_dir(self, partition: TopicPartition) -> LogDir:
        online = self.online
        if not online:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, "All log directories are offline")
        wanted = self.preferred_log_dirs.pop(partition, None)
        chosen = [log_dir for log_dir in online if log_dir.path == wanted]
        open_to_all = [log_dir for log_dir in online if log_dir.path not in self.cordoned_paths]
        return min(chosen or open_to_all or online, key=lambda log_dir: log_dir.partition_count)

    def delete(self, log: Log) -> None:
        """Take the log offline now; its name is free again. remove_deleted() removes the files after a delay."""
        run_dir_delete(self.begin_delete(log))

    def begin_delete(self, log: Log) -> PendingDirDelete:
        """Begin a deletion in steps: run() in any thread frees the name, then call finish()."""
        return self._dir_of(log.directory).delete_log(log, self.clock.now_ms())

    def on_clock_step(self, step_ms: int) -> None:
        """The system clock was set: files are still removed after the same delay."""
        for log_dir in self.online:
            log_dir.pending_deletes = [(due_ms + step_ms, folder) for due_ms, folder in log_dir.pending_deletes]
            for log in log_dir.logs.values():
                log.deleted_segments.on_clock_step(step_ms)

    def take_deleted(self, now_ms: int) -> list[str]:
        """Return the files of deleted segments and partitions whose delay is over, for remove_paths()."""
        paths = [path for log_dir in self.online for path in log_dir.take_due_deletes(now_ms)]
        for log_dir in self.online:
            for log in log_dir.logs.values():
                if log.deleted_segments.renamed:
                    paths += log.take_due_deletions(now_ms)
        return paths

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files and directories whose delay is over. Blocks."""
        paths = self.take_deleted(now_ms)
        remove_paths(paths)
        return len(paths)

    # --- checkpoints and the end --------------------------------------------------------------------------------

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> list[CheckpointWrite]:
        """Return the checkpoints to write from time to time; write() syncs and belongs in a thread."""
        return [log_dir.checkpoints(high_watermarks) for log_dir in self.online]

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Collect and write the checkpoints. Blocks until the files are on disk."""
        for checkpoints in self.checkpoints(high_watermarks):
            checkpoints.write()

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of the last run."""
        return {partition: offset for log_dir in self.dirs for partition, offset in log_dir.high_watermarks.items()}

    def close(self, clean: bool, broker_epoch: int = -1) -> None:
        """Close all logs. A log directory gets the clean shutdown marker only if all its logs closed cleanly."""
        for log in self.logs.values():
            log.on_offline = None  # at shutdown a failed log must not take the others offline
        for log_dir in self.dirs:
            try:
                if log_dir.offline_reason is not None:
                    continue
                if clean:
                    is_safe = self._close_logs(log_dir)
                    checkpoints = log_dir.checkpoints(None)
                    checkpoints.write()
                    if checkpoints.is_written and is_safe and not log_dir.unopened:
                        write_clean_shutdown_marker(log_dir.path, broker_epoch)
                else:
                    log_dir.restore_clean_shutdown_marker()
            except OSError as error:
                logger.error("Cannot close %s cleanly: %s", log_dir.path, error)
            finally:
                for log in log_dir.logs.values():
                    log.close_files()
                log_dir.unlock()

    def _close_logs(self, log_dir: LogDir) -> bool:
        """Flush all logs; true if all are durable. Many concurrent syncs cost little more than one."""
        logs = list(log_dir.logs.values())
        self.pool.close_unused()  # all reads have ended: no sync may fail for lack of a descriptor
        at_once = min(FLUSH_JOBS_MAX, self.pool.open_files_max // 2)
        with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync") as executor:
            for start in range(0, len(logs), at_once):
                jobs = [(log, job) for log in logs[start : start + at_once] if (job := begin_close(log))]
                list(executor.map(FlushJob.run, [job for _, job in jobs]))
                for log, job in jobs:
                    with contextlib.suppress(KafkaError):  # the log has logged the reason already
                        log.end_flush(job)
        return all(log.offline_reason is None and log.recovery_point == log.end_offset for log in logs)

    def log_dir_of(self, log: Log) -> LogDir:
        return self._dir_of(log.directory)

    def complete_move(self, log: Log, old_directory: str) -> LogDir:
        """Register a moved log in its new log directory; returns the old one."""
        source = self._dir_of(old_directory)
        del source.logs[log.partition]
        self._add_log(self._dir_of(log.directory), log)
        return source

    def _dir_of(self, directory: str) -> LogDir:
        parent = os.path.dirname(directory)
        return next(log_dir for log_dir in self.dirs if log_dir.path == parent)

    def __repr__(self) -> str:
        return f"<LogDirs {self.dirs}>"


def lock_if_possible(path: str) -> LogDir:
    """Return the locked log directory, or an offline one. Raises LogDirError if another broker uses it."""
    try:
        return LogDir(path)
    except FolderUnusableError as error:
        return LogDir(path, str(error))


def scan_if_possible(log_dir: LogDir, node_id: int, cluster_id: str | None) -> str | None:
    """Scan a log directory; returns its cluster id. Raises LogDirError if it belongs to another cluster."""
    if log_dir.offline_reason is not None:
        return cluster_id
    try:
        cluster_id = check_meta_properties(log_dir.path, node_id, cluster_id) or cluster_id
        log_dir.scan()
    except OSError as error:
        log_dir.offline_reason = f"Cannot read the log directory {log_dir.path}: {error.strerror}"
        log_dir.unopened.clear()
    return cluster_id


def begin_close(log: Log) -> FlushJob | None:
    try:
        return log.begin_close()
    except KafkaError as error:
        logger.error("Cannot close the log of %s cleanly: %s", log.partition, error)
        log.take_offline("it could not be closed")
        return None


def run_dir_delete(doomed: PendingDirDelete) -> None:
    """Run all steps, where blocking is allowed."""
    doomed.run()
    doomed.finish()


def remove_paths(paths: list[str]) -> None:
    """Remove files and directories, in any thread. A failure is logged."""
    for path in paths:
        try:
            remove = files.remove_tree if os.path.isdir(path) else files.remove_if_exists
            remove(path)
        except OSError as error:
            logger.warning("Cannot remove %s: %s", path, error)
