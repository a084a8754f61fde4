"""All logs of one broker, over all folders of `log.dirs`.

open() takes the folders into possession, load() opens what stands in them. Recovery after a crash may take long: a
broker that wants to serve meanwhile opens the logs of `found` itself with open_log(), which runs in any thread, and
hands each to adopt() on its own thread.

A disk that fails takes its folder out of service (`LogDir.failure`) with all logs in it; the others go on. Whoever
serves the partitions hears of it through `on_failure`.
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
from ottla.storage.flush import FlushJob
from ottla.storage.folder_jobs import DoomedFolder, NewLog
from ottla.storage.log import Log
from ottla.storage.log_dir import (
    STRAY_SUFFIX,
    Checkpoints,
    FoundLog,
    LogDir,
    renamed_folder,
    write_clean_shutdown_marker,
)
from ottla.storage.log_files import LogFiles
from ottla.storage.meta_properties import check_meta_properties, write_meta_properties
from ottla.storage.recovery import open_log
from ottla.storage.sync_times import SyncTimes

logger = logging.getLogger("ottla.storage.log_dirs")

PRODUCER_EXPIRATION_MS = 86_400_000
SYNC_THREADS = 16
PREFERENCES_MAX = 10_000
JOBS_AT_ONCE = 256  # each holds a descriptor or more


class LogDirs:
    """The folders, and every open log in them."""

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
        self.cluster_id = cluster_id  # None until claim(), if the folders are new
        self.clock = clock
        self.sync_times = SyncTimes(clock)
        self.pool = DescriptorPool(open_files_max)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.preferred: dict[TopicPartition, str] = {}  # folders that somebody chose for partitions to come
        self.cordoned: AbstractSet[str] = frozenset()  # folders that get no new partitions
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
        """Lock the folders and look at what is there; LogDirError if one is in use or belongs to somebody else.

        A folder that the disk does not let us use is left out, as long as there is another one.
        Without a cluster id the one that stands in the folders is taken over (`cluster_id`, None if they are new).
        """
        dirs: list[LogDir] = []
        try:
            for path in paths:
                dirs.append(lock_if_possible(path))  # noqa: PERF401 - those locked so far are unlocked if one fails
            for log_dir in dirs:
                cluster_id = look_if_possible(log_dir, node_id, cluster_id)
            if all(log_dir.failure for log_dir in dirs):
                raise FolderUnusableError("; ".join(log_dir.failure or "" for log_dir in dirs))
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
            log_dirs.claim(cluster_id)
        return log_dirs

    def claim(self, cluster_id: str) -> None:
        """Write meta.properties into the folders that have none."""
        self.cluster_id = cluster_id
        for log_dir in self.online:
            if check_meta_properties(log_dir.path, self.node_id, cluster_id) is None:
                write_meta_properties(log_dir.path, self.node_id, cluster_id)

    # --- folders that fail --------------------------------------------------------------------------------------

    @property
    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    @property
    def is_whole(self) -> bool:
        """Whether every folder is in service: only then a log that is nowhere does not exist."""
        return all(log_dir.failure is None for log_dir in self.dirs)

    def tell_failures(self) -> None:
        """Log what keeps folders out of service from the start; for a broker that goes on without them."""
        for log_dir in self.dirs:
            if log_dir.failure is not None:
                logger.error("%s", log_dir.failure)

    def folder(self, path: str) -> LogDir | None:
        return next((log_dir for log_dir in self.dirs if log_dir.path == path), None)

    def fail(self, log_dir: LogDir, reason: str) -> None:
        """Take a folder out of service: none of its logs takes another write, whatever the disk does from now on."""
        if log_dir.failure is not None:
            return
        log_dir.failure = reason
        logger.error(
            "The log folder %s is out of service with %d partitions: %s", log_dir.path, log_dir.partition_count, reason
        )
        for log in log_dir.logs.values():
            log.failure = log.failure or reason
        if self.on_failure is not None:
            self.on_failure(log_dir)

    def fail_at(self, directory: str, reason: str) -> None:
        """The same for the folder that a partition's folder stands in."""
        self.fail(self._dir_of(directory), reason)

    def has_failed(self, directory: str) -> bool:
        return self._dir_of(directory).failure is not None

    def forget_failed(self, log_dir: LogDir) -> list[TopicPartition]:
        """Close what a failed folder held, and say which partitions that were; nothing on its disk is touched."""
        names = [*log_dir.logs, *log_dir.found]
        for log in log_dir.logs.values():
            log.abandon()
        log_dir.logs.clear()
        log_dir.found.clear()
        log_dir.doomed.clear()
        return names

    def _on_log_failure(self, log: LogFiles) -> None:
        self.fail(self._dir_of(log.directory), log.failure or "one of its logs failed")

    # --- loading ------------------------------------------------------------------------------------------------

    @property
    def found(self) -> list[FoundLog]:
        """The partitions on disk that are not open yet."""
        return [found for log_dir in self.dirs for found in log_dir.found.values()]

    @property
    def needs_recovery(self) -> list[FoundLog]:
        """Those of them that were not closed cleanly: opening them reads their tail."""
        return [found for found in self.found if not found.is_clean]

    def open_log(self, found: FoundLog, settings: TopicSettings) -> Log:
        """Open, and if need be recover, one log. Runs in any thread; adopt() makes it part of this broker."""
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

    def adopt(self, found: FoundLog, log: Log) -> None:
        log_dir = self._dir_of(found.directory)
        del log_dir.found[found.partition]
        self._own(log_dir, log)

    def _own(self, log_dir: LogDir, log: Log) -> None:
        log.on_failure = self._on_log_failure
        log_dir.logs[log.partition] = log

    def set_aside(self, found: FoundLog) -> str:
        """Give the folder of a partition that nobody asks for Kafka's name for strays, and forget it."""
        place = f"{os.path.dirname(found.directory)}/{renamed_folder(found.partition, STRAY_SUFFIX)}"
        files.rename(found.directory, place)
        del self._dir_of(found.directory).found[found.partition]
        return place

    def drop(self, found: FoundLog) -> None:
        """Remove a copy of a partition that another folder has as well."""
        log_dir = self._dir_of(found.directory)
        del log_dir.found[found.partition]
        run_doomed(log_dir.doom_folder(found.partition, found.directory, 0))

    def load(self, topic_settings_for: Callable[[str], TopicSettings], threads: int = 2) -> dict[TopicPartition, Log]:
        """Open everything and wait for it. Clean folders are opened right here, others in threads."""
        topics = {found.partition.topic for found in self.found}
        by_topic = {topic: topic_settings_for(topic) for topic in topics}
        for log_dir in self.dirs:
            found_logs = list(log_dir.found.values())
            if any(not found.is_clean for found in found_logs):
                with ThreadPoolExecutor(threads, thread_name_prefix="recovery") as executor:
                    logs = list(executor.map(lambda f: self.open_log(f, by_topic[f.partition.topic]), found_logs))
            else:
                logs = [self.open_log(found, by_topic[found.partition.topic]) for found in found_logs]
            log_dir.found.clear()
            for log in logs:
                self._own(log_dir, log)
        return self.logs

    # --- logs ---------------------------------------------------------------------------------------------------

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return {partition: log for log_dir in self.dirs for partition, log in log_dir.logs.items()}

    def create(self, partition: TopicPartition, topic_id: uuid.UUID | None, settings: TopicSettings) -> Log:
        """A new, empty log: in the folder that somebody chose for it, else in the one with the fewest partitions.

        A folder that fails at that is out of service, and the next one has its turn.
        """
        while True:
            new = self.begin_create(partition, topic_id, settings)
            new.run()
            log = self.finish_create(new)
            if log is not None:
                return log

    def begin_create(self, partition: TopicPartition, topic_id: uuid.UUID | None, settings: TopicSettings) -> NewLog:
        """The same in three steps: the middle one, run(), is for any thread. KafkaError if all folders have failed."""
        log_dir = self._dir_for_new(partition)
        return NewLog(
            log_dir, partition, topic_id, settings, self.pool, self.clock.now_ms(), self.producer_id_expiration_ms
        )

    def finish_create(self, new: NewLog) -> Log | None:
        """The log; None if its folder has failed, and the next one is to be tried. OSError if that would not help."""
        new.log_dir.coming.discard(new.partition)
        if new.error is not None:
            if files.is_passing(new.error) or isinstance(new.error, FileExistsError):
                raise new.error
            self.fail(new.log_dir, f"cannot make the folder of {new.partition}: {new.error}")
        if new.log is None or new.log_dir.failure is not None:
            return None
        self._own(new.log_dir, new.log)
        return new.log

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """Remember which folder a partition shall be made in, if it ever is; the oldest wishes are forgotten first."""
        self.preferred.pop(partition, None)
        if len(self.preferred) >= PREFERENCES_MAX:
            self.preferred.pop(next(iter(self.preferred)))
        self.preferred[partition] = path

    def _dir_for_new(self, partition: TopicPartition) -> LogDir:
        online = self.online
        if not online:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, "All log folders are out of service")
        wanted = self.preferred.pop(partition, None)
        chosen = [log_dir for log_dir in online if log_dir.path == wanted]
        open_to_all = [log_dir for log_dir in online if log_dir.path not in self.cordoned]
        return min(chosen or open_to_all or online, key=lambda log_dir: log_dir.partition_count)

    def delete(self, log: Log) -> None:
        """Out of service at once, its name free again; remove_deleted() removes the files after a while."""
        run_doomed(self.begin_delete(log))

    def begin_delete(self, log: Log) -> DoomedFolder:
        """The same in steps: its name is free when run() was called, in any thread; then finish() it."""
        return self._dir_of(log.directory).doom(log, self.clock.now_ms())

    def take_deleted(self, now_ms: int) -> list[str]:
        """Files and folders of deleted segments and partitions whose delay is over, for remove_paths()."""
        paths = [path for log_dir in self.online for path in log_dir.take_doomed(now_ms)]
        for log_dir in self.online:
            for log in log_dir.logs.values():
                if log.deleted_segments:
                    paths += log.take_deleted(now_ms)
        return paths

    def remove_deleted(self, now_ms: int) -> int:
        """Both at once: remove what is due. Blocks for as long as the file system takes."""
        paths = self.take_deleted(now_ms)
        remove_paths(paths)
        return len(paths)

    # --- checkpoints and the end --------------------------------------------------------------------------------

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> list[Checkpoints]:
        """What to write down now and then; each one's write() syncs and belongs into a thread."""
        return [log_dir.checkpoints(high_watermarks) for log_dir in self.online]

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Both at once. Blocks until the files are on disk."""
        for checkpoints in self.checkpoints(high_watermarks):
            checkpoints.write()

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """As the last run left them."""
        return {partition: offset for log_dir in self.dirs for partition, offset in log_dir.high_watermarks.items()}

    def close(self, clean: bool, broker_epoch: int = -1) -> None:
        """Close all logs. Only a folder whose logs all closed well gets the mark of a clean shutdown."""
        for log in self.logs.values():
            log.on_failure = None  # at the end one log that cannot be closed is no reason to give the others up
        for log_dir in self.dirs:
            try:
                if log_dir.failure is not None:
                    continue
                if clean:
                    is_safe = self._close_logs(log_dir)
                    checkpoints = log_dir.checkpoints(None)
                    checkpoints.write()
                    if checkpoints.is_written and is_safe and not log_dir.found:
                        write_clean_shutdown_marker(log_dir.path, broker_epoch)
                else:
                    log_dir.restore_marker()
            except OSError as error:
                logger.error("Cannot close %s cleanly: %s", log_dir.path, error)
            finally:
                for log in log_dir.logs.values():
                    log.abandon()
                log_dir.unlock()

    def _close_logs(self, log_dir: LogDir) -> bool:
        """Bring everything to disk; whether all logs are safe there. Many syncs at once cost little more than one."""
        logs = list(log_dir.logs.values())
        self.pool.close_unused()  # the readers are gone: no sync shall fail for want of a descriptor
        at_once = min(JOBS_AT_ONCE, self.pool.open_files_max // 2)
        with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync") as executor:
            for start in range(0, len(logs), at_once):
                jobs = [(log, job) for log in logs[start : start + at_once] if (job := begin_close(log))]
                list(executor.map(FlushJob.run, [job for _, job in jobs]))
                for log, job in jobs:
                    with contextlib.suppress(KafkaError):  # the log is out of service and has said why
                        log.end_flush(job)
        return all(log.failure is None and log.recovery_point == log.end_offset for log in logs)

    def folder_of(self, log: LogFiles) -> LogDir:
        return self._dir_of(log.directory)

    def settle(self, log: Log, old_directory: str) -> LogDir:
        """A log has been moved: it belongs to the folder that it stands in now. The folder that it came from."""
        source = self._dir_of(old_directory)
        del source.logs[log.partition]
        self._own(self._dir_of(log.directory), log)
        return source

    def _dir_of(self, directory: str) -> LogDir:
        parent = os.path.dirname(directory)
        return next(log_dir for log_dir in self.dirs if log_dir.path == parent)

    def __repr__(self) -> str:
        return f"<LogDirs {self.dirs}>"


def lock_if_possible(path: str) -> LogDir:
    """The folder in our possession, or one that is out of service; LogDirError if another broker uses it."""
    try:
        return LogDir(path)
    except FolderUnusableError as error:
        return LogDir(path, str(error))


def look_if_possible(log_dir: LogDir, node_id: int, cluster_id: str | None) -> str | None:
    """See what stands in a folder; the cluster that it belongs to. LogDirError if that is not the given one."""
    if log_dir.failure is not None:
        return cluster_id
    try:
        cluster_id = check_meta_properties(log_dir.path, node_id, cluster_id) or cluster_id
        log_dir.look_around()
    except OSError as error:
        log_dir.failure = f"Cannot read the log folder {log_dir.path}: {error.strerror}"
        log_dir.found.clear()
    return cluster_id


def begin_close(log: Log) -> FlushJob | None:
    try:
        return log.begin_close()
    except KafkaError as error:
        logger.error("Cannot close the log of %s cleanly: %s", log.partition, error)
        log.fail("it could not be closed")
        return None


def run_doomed(doomed: DoomedFolder) -> None:
    """All at once, where nobody is kept waiting."""
    doomed.run()
    doomed.finish()


def remove_paths(paths: list[str]) -> None:
    """Remove files and whole folders; runs in any thread. What cannot be removed is told and left."""
    for path in paths:
        try:
            remove = files.remove_tree if os.path.isdir(path) else files.remove_if_there
            remove(path)
        except OSError as error:
            logger.warning("Cannot remove %s: %s", path, error)
