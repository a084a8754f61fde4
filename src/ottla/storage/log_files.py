"""The files of one partition's log: rolling, syncing, shortening and closing them. Compiled with mypyc where possible.

`Log` builds on this with what clients see: appending and reading. Here the segments, the snapshots, the epochs and the
points that matter after a crash are kept in step.

Rule 1: a failure that may leave the disk in a state that we do not know puts the log out of service (`failure`) until
it is opened again, which recovers it. A full disk is not such a failure: it is waited out.
Rule 2: `recovery_point` only moves after a sync that covered everything below it.
"""

from __future__ import annotations

import logging
import os
import random
import uuid
from collections.abc import Callable

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.dropping import DropJob
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.flush import FlushJob
from ottla.storage.index import POSITION_MASK
from ottla.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from ottla.storage.producers import Producers
from ottla.storage.retention import delete_hidden_segments, delete_old_segments
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment, create_segment
from ottla.storage.snapshots import SnapshotJob
from ottla.storage.transaction_check import Outcome
from ottla.storage.truncation import truncate_fully, truncate_to

logger = logging.getLogger("ottla.storage.log_files")


class LogFiles:
    """A chain of segments in one folder, the last of which takes the appends."""

    __slots__ = (
        "_active",
        "_drop_job",
        "_dropped",
        "_is_directory_unsynced",
        "_is_disk_full",
        "_is_new",
        "_is_snapshot_pending",
        "_latest_epoch",
        "_limit_offset",
        "_name",
        "_producers",
        "_settings",
        "_snapshot_job",
        "_truncations",
        "cleaned_offset",
        "deleted_segments",
        "directory",
        "end_offset",
        "epochs",
        "failure",
        "has_checked_transactions",
        "has_lost",
        "has_rolled",
        "is_moving",
        "log_start_offset",
        "lost_offset",
        "on_failure",
        "outcomes",
        "partition",
        "pool",
        "producer_expiration_ms",
        "recovery_point",
        "segments",
        "snapshot_offset",
        "topic_id",
    )

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        settings: TopicSettings,
        pool: DescriptorPool,
        segments: list[Segment],
        *,
        end_offset: int,
        log_start_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: Producers | None = None,
        producer_expiration_ms: int = 86_400_000,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.pool = pool
        self.topic_id = topic_id
        self.segments = segments
        self.end_offset = end_offset  # the offset that the next record gets
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point  # everything below it survives a power cut
        self.epochs = epochs
        self.failure: str | None = None  # why this log takes no more writes until it is opened again
        self.on_failure: Callable[[LogFiles], None] | None = None  # told once: a failed log takes its folder with it
        self.has_checked_transactions = False  # this process has seen that the indexes of transactions fit the log
        self.outcomes: dict[int, Outcome] = {}  # of transactions that somebody had to look ahead for
        self.has_lost = False  # opening it found damage, not just the unfinished write of a crash
        self.lost_offset = -1  # where that begins if not at the end: segments that the log began with are gone
        self.is_moving = False  # to another folder: until then no segment may be replaced
        self.has_rolled = False  # since the last flush: time for begin_flush(only_rolled=True)
        self.deleted_segments: list[tuple[int, Segment]] = []  # (when to remove the files, segment)
        self.cleaned_offset = -1  # below it the log is compacted; -1 before the first time
        self.snapshot_offset = -1  # of the newest producer snapshot that this log wrote or was loaded from
        self.producer_expiration_ms = producer_expiration_ms
        self._producers = producers
        self._settings = settings
        self._active = segments[-1]
        self._latest_epoch = epochs.latest_epoch
        self._is_directory_unsynced = False
        self._is_new = False
        self._snapshot_job: SnapshotJob | None = None  # the last one
        self._dropped: list[tuple[int, Segment]] = []  # taken out of the log, their files not renamed yet
        self._drop_job: DropJob | None = None  # that is under way
        self._is_snapshot_pending = False  # it waits for the next flush
        self._is_disk_full = False
        self._truncations = 0
        self._limit_offset = -1
        self._name = str(partition)

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def topic_settings(self) -> TopicSettings:
        return self._settings

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def latest_epoch(self) -> int:
        return self._latest_epoch

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            self._producers = Producers(self.producer_expiration_ms)
        return self._producers

    def last_records_of_producers(self) -> list[tuple[int, int, int]]:
        """Producer id, last offset of its data (-1 if it has none) and epoch: what compaction must not forget."""
        if self._producers is None:
            return []
        return [(p.producer_id, p.last_offset, p.epoch) for p in self._producers.by_id.values()]

    @property
    def open_transactions(self) -> dict[int, int]:
        """Where transactions that are under way start, by producer."""
        return {} if self._producers is None else dict(self._producers.open_transactions)

    @property
    def first_unstable_offset(self) -> int:
        """Where the oldest transaction that is under way starts, or -1."""
        return -1 if self._producers is None else self._producers.first_unstable_offset()

    def first_unstable_below(self, high_watermark: int) -> int:
        """The same for readers, to whom a marker at or past the high watermark is not there yet; or -1."""
        return -1 if self._producers is None else self._producers.first_unstable_below(high_watermark)

    def forget_ended(self, high_watermark: int) -> None:
        """Transactions whose markers lie below have ended for everybody."""
        if self._producers is not None:
            self._producers.forget_ended(high_watermark)

    def forget_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Drop producers that were silent for producer.id.expiration.ms, which may be another one by now."""
        self.producer_expiration_ms = expiration_ms
        if self._producers is not None:
            self._producers.expiration_ms = expiration_ms
            self._producers.forget_expired(now_ms)
            self.replace_producers(self._producers)

    def replace_producers(self, producers: Producers) -> None:
        self._producers = producers if producers.by_id else None

    @property
    def is_unchanged(self) -> bool:
        """Whether the files are as they were found, or synced since: nothing would have to be recovered."""
        if self.failure is not None or self.recovery_point != self.end_offset or self._is_directory_unsynced:
            return False
        return not self.epochs.is_unsynced and not any(segment.has_unsynced_indexes for segment in self.segments)

    @property
    def unflushed_messages(self) -> int:
        """What `flush.messages` limits."""
        return self.end_offset - self.recovery_point

    @property
    def is_disk_full(self) -> bool:
        """Whether the last write found no room."""
        return self._is_disk_full

    @property
    def truncation_count(self) -> int:
        """Changes when bytes that were there may be others now."""
        return self._truncations

    def fail(self, reason: str) -> None:
        """Take no more writes: what is on disk may not be what we believe."""
        if self.failure is None:
            self.failure = reason
            logger.error("The log of %s is out of service: %s", self._name, reason)
            if self.on_failure is not None:
                self.on_failure(self)

    def refusal(self) -> KafkaError:
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"The log of {self._name} is out of service: {self.failure}")

    def write_failed(self, error: OSError) -> KafkaError:
        """Cut torn bytes away. A full disk is waited out; after any other error the log is out of service."""
        try:
            self._active.cut_torn_bytes()
        except OSError as second_error:
            self.fail(f"cannot cut away a failed write: {second_error}")
        if not files.is_passing(error):
            self.fail(f"cannot write to {self.directory}: {error}")
        elif not self._is_disk_full:
            self._is_disk_full = True
            logger.error("Cannot write to %s: %s; writes are refused until there is space", self.directory, error)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"Cannot write to the log of {self._name}: {error.strerror}")

    # --- growing ------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> Segment:
        """Start a new segment at the end of the log. An OSError leaves the log on its old one."""
        old = self._active
        old.seal_indexes()
        if old.size == 0 and old.base_offset == self.end_offset:
            return old
        self._prepare_snapshot()
        if self._settings.preallocate:
            old.open_descriptor()
            old.cut_torn_bytes()  # gives the room back that it did not need
        segment = create_segment(
            self.directory, self.end_offset, self.pool, now_ms, self._settings.reserved_segment_bytes
        )
        jitter_ms = min(self._settings.segment_jitter_ms, self._settings.segment_ms)
        segment.roll_jitter_ms = random.randrange(jitter_ms) if jitter_ms > 0 else 0  # noqa: S311 - no secret
        self.segments.append(segment)
        old.next_base_offset = segment.base_offset
        self._active = segment
        self._is_directory_unsynced = True
        self.has_rolled = True
        logger.info("Rolled a new segment at offset %d of %s", segment.base_offset, self._name)
        return segment

    def _prepare_snapshot(self) -> None:
        """Take down the producers as of the end of the log; the next flush writes them, in any thread."""
        if self.end_offset not in (0, self.snapshot_offset):
            self._snapshot_job = SnapshotJob(self.directory, self.end_offset, self.producers, self.recovery_point)
            self._is_snapshot_pending = True
            self._is_directory_unsynced = True

    def write_producer_snapshot(self) -> None:
        """The same at once. A failure is told and costs a replay later, no more."""
        self._prepare_snapshot()
        job = self._take_snapshot_job()
        if job is not None:
            job.run()
            self._note_snapshot(job)

    def _take_snapshot_job(self) -> SnapshotJob | None:
        is_pending, self._is_snapshot_pending = self._is_snapshot_pending, False
        return self._snapshot_job if is_pending else None

    def _note_snapshot(self, job: SnapshotJob) -> None:
        if job.is_written:
            self.snapshot_offset = max(self.snapshot_offset, job.offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader of this epoch writes from here on."""
        self.epochs.assign(epoch, start_offset)
        self._latest_epoch = self.epochs.latest_epoch

    def mark_new(self) -> None:
        """The folder itself and its partition.metadata need a sync with the next flush."""
        self._is_new = True
        self._is_directory_unsynced = True

    # --- shortening ---------------------------------------------------------------------------------------------

    def raise_log_start_offset(self, offset: int, *, writes_epochs: bool = True) -> None:
        """Hide everything below; segments that are hidden as a whole go with delete_old_segments."""
        if offset > self.end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE, f"Offset {offset} lies past the end of {self._name}, {self.end_offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset, writes=writes_epochs)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what the topic's retention does not keep; the number of segments."""
        count = self._delete_old_segments(now_ms, high_watermark)
        self.finish_drops()
        return count

    def begin_deleting(self, now_ms: int, high_watermark: int) -> DropJob | None:
        """The same in steps: run the job in any thread, and hand it to end_drop(). None if there is nothing to do."""
        self._delete_old_segments(now_ms, high_watermark)
        return self._begin_drop()

    def _delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        if self.failure is not None:
            return 0
        try:
            return delete_old_segments(self, now_ms, high_watermark)
        except OSError as error:
            raise self.write_failed(error) from error

    def delete_hidden_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what lies below the log start offset, now and not with the next retention; the number of segments."""
        if self.failure is not None:
            raise self.refusal()
        count = delete_hidden_segments(self, now_ms, high_watermark)
        self.finish_drops()
        return count

    def drop_segments(self, count: int, now_ms: int) -> None:
        """Take the oldest segments out of the log; their files go after a delay, their readers may finish.

        The files are still there under their names until finish_drops(), or a DropJob, has renamed them.
        """
        due_ms = now_ms + self._settings.file_delete_delay_ms
        for segment in self.segments[:count]:
            segment.close()
            self._dropped.append((due_ms, segment))
        del self.segments[:count]

    def _begin_drop(self) -> DropJob | None:
        if self._drop_job is not None:
            return None  # another one is under way; the next round takes the rest
        if self._dropped:
            dropped, self._dropped = self._dropped, []
            self._drop_job = DropJob(self.epochs.begin_write(), dropped)
        return self._drop_job

    def end_drop(self, job: DropJob) -> None:
        """Take a finished job back. What was not renamed is tried again, if that may help."""
        if job is not self._drop_job:
            return  # finish_drops() was faster
        self._drop_job = None
        self.epochs.is_unsynced = True  # a flush may have been faster than the job
        self.deleted_segments += job.renamed
        self._dropped = [*job.left, *self._dropped]
        if job.error is not None:
            raise self.write_failed(job.error) from job.error

    def finish_drops(self) -> None:
        """Give the files of segments that were taken out their new names now, whoever has begun with it."""
        while self._drop_job is not None or self._dropped:
            job = self._drop_job or self._begin_drop()
            assert job is not None
            job.run()
            self.end_drop(job)

    def replace_segments(self, old: list[Segment], new: Segment, now_ms: int) -> None:
        """A cleaned segment, whose files are in place, follows others, whose files have been renamed."""
        place = self.segments.index(old[0])
        due_ms = now_ms + self._settings.file_delete_delay_ms
        for segment in old:
            segment.close()
            self.deleted_segments.append((due_ms, segment))
        new.next_base_offset = old[-1].next_base_offset
        self.segments[place : place + len(old)] = [new]
        self._limit_offset = -1
        self._is_directory_unsynced = True

    def take_deleted(self, now_ms: int) -> list[str]:
        """Files of deleted segments whose delay is over; the caller removes them."""
        due = [segment for due_ms, segment in self.deleted_segments if due_ms <= now_ms]
        self.deleted_segments = [item for item in self.deleted_segments if item[0] > now_ms]
        return [path for segment in due for path in segment.deleted_paths()]

    def batch_start(self, offset: int) -> int:
        """The first offset of the batch that holds this one, or of the first before it that is not sound.

        Reads what the index does not save it from. Damaged headers are not believed.
        """
        segment = self.segments[0]
        for later in self.segments:
            if later.base_offset > offset:
                break
            segment = later
        place = segment.index().lookup(offset - segment.base_offset) - 1
        position = segment.index().entries[place] & POSITION_MASK if place > 0 else 0
        scan = BatchScan(segment.open_descriptor(), position, segment.size, True)
        start = segment.base_offset
        if position > 0:
            if not scan.advance():
                return start
            start = scan.last_offset + 1
        while scan.advance() and start <= scan.base_offset and scan.last_offset < offset:
            start = scan.last_offset + 1
        return start

    def accept_loss(self) -> None:
        """Nobody else has what is gone from here: the log is what is left of it."""
        self.lost_offset = -1
        self.epochs.truncate_from_start(self.log_start_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop this offset and all later ones."""
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
        elif offset < self.end_offset:
            self._shorten(truncate_to, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on at this offset."""
        self._shorten(truncate_fully, offset)

    def _shorten(self, shorten: Callable[[LogFiles, int], None], offset: int) -> None:
        self.finish_drops()  # a new segment may get the name of one of them
        self._truncations += 1
        self._limit_offset = -1
        self.outcomes.clear()
        if self._snapshot_job is not None:
            self._snapshot_job.cancel()
        try:
            shorten(self, offset)
        except OSError as error:
            self.fail(f"cannot truncate {self.directory}: {error}")
            raise self.refusal() from error
        finally:
            self._active = self.segments[-1]
            self._active.next_base_offset = -1
            self.recovery_point = min(self.recovery_point, self.end_offset)
            self.cleaned_offset = min(self.cleaned_offset, self.end_offset)
            self._latest_epoch = self.epochs.latest_epoch
            self._is_directory_unsynced = True
        assert self.log_start_offset <= self.end_offset == offset, f"{self} was to end at {offset}"

    # --- flushing and closing -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything up to the end survive a power cut. Blocks; the loop uses begin_flush and end_flush."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.end_flush(job)

    def begin_flush(self, only_rolled: bool = False) -> FlushJob | None:
        """A job that any thread may run; hand it to end_flush afterwards. None if there is nothing to do.

        With `only_rolled` the active segment is left out: what Kafka syncs when it rolls a segment.
        """
        if self.failure is not None:
            raise self.refusal()
        self.has_rolled = False
        job = FlushJob(self._active.base_offset if only_rolled else self.end_offset, self._truncations)
        next_base = self.end_offset
        try:
            for segment in reversed(self.segments):
                is_due = next_base > self.recovery_point or segment.has_unsynced_indexes
                if is_due and not (only_rolled and segment is self._active):
                    self._add_segment(job, segment)
                next_base = segment.base_offset
                if next_base <= self.recovery_point:
                    break
        except OSError as error:
            job.close()
            raise self.write_failed(error) from error
        job.snapshot = self._take_snapshot_job()
        self._add_folder(job)
        return job if job.descriptors or job.paths else None

    def end_flush(self, job: FlushJob) -> None:
        """Take a finished job back on the thread that owns the log. A failed sync puts the log out of service."""
        if job.snapshot is not None and job.truncations == self._truncations:
            self._note_snapshot(job.snapshot)
        if job.error is not None:
            self.fail(f"cannot sync {self.directory}: {job.error}")
            raise self.refusal()
        if job.is_done and job.truncations == self._truncations and job.end_offset > self.recovery_point:
            self.recovery_point = job.end_offset

    def _add_segment(self, job: FlushJob, segment: Segment) -> None:
        segment.write_pending()
        job.descriptors.append(os.dup(segment.open_descriptor()))
        if segment.has_unsynced_indexes:
            segment.has_unsynced_indexes = False
            job.paths += [segment.path(files.INDEX_SUFFIX), segment.path(files.TIME_INDEX_SUFFIX)]
            if segment.has_transactions:
                job.paths.append(segment.path(files.TRANSACTION_INDEX_SUFFIX))

    def _add_folder(self, job: FlushJob) -> None:
        if self._is_directory_unsynced:
            if job.snapshot is not None:
                job.paths.append(job.snapshot.path)
            elif self.snapshot_offset >= 0:
                job.paths.append(files.segment_path(self.directory, self.snapshot_offset, files.SNAPSHOT_SUFFIX))
            job.paths.append(self.directory)
            self._is_directory_unsynced = False
        if self._is_new:
            job.paths += [f"{self.directory}/{PARTITION_METADATA}", os.path.dirname(self.directory)]
            self._is_new = False
        if self.epochs.is_unsynced:
            job.paths.append(self.epochs.path())
            self.epochs.is_unsynced = False

    def begin_close(self) -> FlushJob | None:
        """Write everything so that the next start need not look at the log: what remains is to sync it."""
        if self.failure is not None:
            raise self.refusal()
        self.finish_drops()
        try:
            self._active.seal_indexes()
        except OSError as error:
            raise self.write_failed(error) from error
        self.write_producer_snapshot()
        return self.begin_flush()

    def close(self) -> None:
        """End the use of this log in good order; KafkaError if that is not possible. The files are closed anyway."""
        try:
            job = self.begin_close()
            if job is not None:
                job.run()
                self.end_flush(job)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files without writing anything more."""
        for segment in self.segments:
            segment.close()

    def take_new_place(self, directory: str, descriptors: dict[int, int], synced_offset: int) -> None:
        """Go on in another folder with the very same bytes, without disturbing anybody who reads.

        `descriptors` are those of the new log files, by base offset, for the segments whose file is open: each takes
        the number of the old one, so that ranges which are out go on as if nothing had happened.
        """
        for segment in self.segments:
            descriptor = descriptors.pop(segment.base_offset, -1)
            if descriptor >= 0:
                files.replace_descriptor(descriptor, segment.descriptor, False)
                files.close(descriptor)
            segment.has_unsynced_indexes = segment is self._active
        self.move_to_folder(directory)
        self.epochs.write()  # what was copied may be older than what a DropJob is about to write into the old folder
        self._truncations += 1  # a flush that is under way syncs the old files: its result is void
        self.recovery_point = min(self.recovery_point, synced_offset)
        self.snapshot_offset = -1
        self.mark_new()

    def move_to_folder(self, directory: str) -> None:
        """The folder was renamed."""
        self.directory = directory
        self.epochs.directory = directory
        for segment in self.segments:
            segment.directory = directory

    def __repr__(self) -> str:
        state = f"failed: {self.failure}" if self.failure else f"{len(self.segments)} segments"
        return f"<Log {self._name}, offsets {self.log_start_offset}-{self.end_offset}, {state}>"
