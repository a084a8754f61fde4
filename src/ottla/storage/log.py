"""The log of one partition: its segments, appending, reading, rolling, truncating and flushing.

Rule 1: one thread owns a log. Slow work (syncing, checking stored bytes, recovery, renaming deleted files) is a job
that another thread runs; the owner processes the result.
Rule 2: `end_offset` and the producers change only after a batch was written whole. A failed write is truncated; if even
that fails, the log rejects all further writes.
Rule 3: an idle log holds only a few numbers; files, indexes and producers are loaded on demand.
Rule 4: after a failure that may leave unknown content on disk, the log is offline (`offline_reason`) until
recovery. A full disk is not such a failure: writes are rejected until there is space.
Rule 5: `recovery_point` advances only after a sync that covered everything below it. Compiled with mypyc where
possible.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import (
    HEADER_BYTES,
    BatchHeader,
    is_crc_valid,
    read_batch_header,
    write_log_append_time,
    write_offsets,
)
from ottla.storage import files
from ottla.storage.batch_ranges import batch_start, whole_batch_range
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.flush import FlushJob, prepare_flush
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.leader_epochs import LeaderEpochCache
from ottla.storage.log_validator import LogAppendInfo, LogValidator
from ottla.storage.producer_state import BatchMetadata, ProducerStateManager, ProducerStates
from ottla.storage.range_checks import Truncations, add_verified_range, check_and_repair, segment_of
from ottla.storage.replay import aborted_transaction, read_marker
from ottla.storage.retention import (
    DeletedSegments,
    SegmentRenameJob,
    delete_log_start_offset_breached_segments,
    delete_old_segments,
)
from ottla.storage.segment import NOT_LOADED, Segment, create_segment, load_first_timestamp
from ottla.storage.timestamp_search import TimestampAndOffset, offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.transaction_check import TransactionIndexWrongError, TxnOutcome, contradicts_transaction_index
from ottla.storage.transaction_index import AbortedTxn, TransactionIndexError
from ottla.storage.truncation import truncate_fully_and_start_at, truncate_to

logger = logging.getLogger("ottla.storage.log")

NO_TIMESTAMP: Final = -1


class Log:
    """All segments of one partition in one folder; the last segment takes the appends."""

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
        epochs: LeaderEpochCache,
        producers: ProducerStates | None = None,
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
        self.recovery_point = recovery_point  # everything below it is durable
        self.epochs = epochs
        self.producer_state = ProducerStateManager(producers, producer_expiration_ms)
        self.deleted_segments = DeletedSegments(epochs)
        self.offline_reason: str | None = None  # why this log rejects writes until it is opened again
        # Called once: a failed log takes its log directory offline.
        self.on_offline: Callable[[Log], None] | None = None
        self.has_verified_txn_index = False  # the transaction indexes match the log
        self.known_txn_outcomes: dict[
            int, TxnOutcome
        ] = {}  # of transactions whose markers were searched for in later segments
        self.has_data_loss = False  # recovery found more damage than the unfinished write of a crash
        self.lost_start_offset = -1  # the first lost offset, if segments at the start of the log are missing
        self.is_moving_log_dir = False  # a move to another log directory is under way: no segment may be replaced
        self.has_rolled = False  # a segment was rolled since the last flush: begin_flush(only_rolled=True) is due
        self.cleaned_offset = -1  # the log is compacted below this offset; -1 before the first compaction
        self.is_directory_unsynced = False
        self.is_new = False  # the directory was never synced
        self._active = segments[-1]
        self._latest_epoch = epochs.latest_epoch
        self._is_disk_full = False
        self._truncations = Truncations()
        self._cached_end_offset = -1  # end offset of the last read that was limited …
        self._cached_end_position = 0  # … and its file position
        self._name = str(partition)
        self._apply_settings(settings)

    # --- settings ----------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._apply_settings(settings)

    def _apply_settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._validator = LogValidator(self._name, settings)
        self._is_compacted: bool = settings.is_compacted
        self._is_log_append_time: bool = settings.message_timestamp_type == "LogAppendTime"
        self._index_interval_bytes: int = settings.index_interval_bytes
        self._message_bytes_max: int = settings.max_message_bytes
        self._segment_bytes: int = settings.segment_bytes
        self._segment_index_bytes: int = settings.segment_index_bytes
        self._segment_ms: int = settings.segment_ms

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def latest_epoch(self) -> int:
        return self._latest_epoch

    @property
    def producers(self) -> ProducerStates:
        return self.producer_state.load()

    @property
    def is_unchanged(self) -> bool:
        """Whether all files are as found at the start, or synced since: nothing needs recovery."""
        if self.offline_reason is not None or self.recovery_point != self.end_offset or self.is_directory_unsynced:
            return False
        return not self.epochs.is_unsynced and not any(segment.has_unsynced_indexes for segment in self.segments)

    @property
    def unflushed_messages(self) -> int:
        """Number of records since the last flush, for `flush.messages`."""
        return self.end_offset - self.recovery_point

    @property
    def is_disk_full(self) -> bool:
        """Whether the last write failed for lack of disk space."""
        return self._is_disk_full

    @property
    def truncation_count(self) -> int:
        """Counter that changes when stored bytes may have been replaced."""
        return self._truncations.count

    def take_offline(self, reason: str) -> None:
        """Reject all further writes, because the content of the disk is unknown."""
        if self.offline_reason is None:
            self.offline_reason = reason
            logger.error("The log of %s is out of service: %s", self._name, reason)
            if self.on_offline is not None:
                self.on_offline(self)

    def offline_error(self) -> KafkaError:
        return KafkaError(
            Error.KAFKA_STORAGE_ERROR, f"The log of {self._name} is out of service: {self.offline_reason}"
        )

    def write_failed(self, error: OSError) -> KafkaError:
        """Handle a failed write: truncate torn bytes. After any error except a full disk the log is offline."""
        try:
            self._active.truncate_torn_bytes()
        except OSError as second_error:
            self.take_offline(f"cannot truncate a failed write: {second_error}")
        if not files.is_transient(error):
            self.take_offline(f"cannot write to {self.directory}: {error}")
        elif not self._is_disk_full:
            self._is_disk_full = True
            logger.error("Cannot write to %s: %s; writes are refused until there is space", self.directory, error)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"Cannot write to the log of {self._name}: {error.strerror}")

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(self, records: memoryview, leader_epoch: int, now_ms: int) -> LogAppendInfo:
        """Check the one batch of a Produce request as Kafka does, and write it; changes `records` in place."""
        if self.offline_reason is not None:
            raise self.offline_error()
        validator = self._validator
        header = validator.validate(records, now_ms)
        if validator.needs_recompression(header):
            records = memoryview(validator.recompressed(records))
            header = validator.check_recompressed(records)
        validator.check_segment_bytes(header)
        if header.producer_id >= 0:
            duplicate = self._check_producer(header)
            if duplicate is not None:
                # With CreateTime, too, a duplicate gets the timestamp of the first batch, as in Kafka.
                return LogAppendInfo(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True)
        if self._is_log_append_time:
            write_log_append_time(records, 0, header, now_ms)
        base_offset = self.end_offset
        header.base_offset = base_offset
        write_offsets(records, 0, base_offset, leader_epoch)
        self._write(records, header, now_ms)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch_start_offset(leader_epoch, base_offset)
        return LogAppendInfo(
            base_offset, self.end_offset - 1, now_ms if self._is_log_append_time else NO_TIMESTAMP, False
        )

    def recompressed(self, records: memoryview | bytes) -> bytearray:
        """Return a batch with the topic's own codec and level; runs in any thread."""
        return self._validator.recompressed(records)

    def append_as_coordinator(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        """Write a batch of the broker itself (coordinator records, transaction markers); returns its last offset."""
        if self.offline_reason is not None:
            raise self.offline_error()
        header = read_batch_header(records, 0)
        if header.batch_bytes > self._message_bytes_max and not header.is_control:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"The batch has {header.batch_bytes} bytes")
        base_offset = self.end_offset
        header.base_offset = base_offset
        write_offsets(records, 0, base_offset, leader_epoch)
        self._write(records, header, now_ms)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch_start_offset(leader_epoch, base_offset)
        return self.end_offset - 1

    def _check_producer(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the stored batch that this one duplicates, or None. Raises KafkaError if the sequence is invalid."""
        producers = self.producer_state.producers
        if producers is None:
            return None
        producer_id = header.producer_id
        epoch = header.producer_epoch
        sequence = header.base_sequence
        duplicate = producers.find_duplicate(producer_id, epoch, sequence, header.last_sequence)
        if duplicate is None:
            producers.check(producer_id, epoch, sequence, header.is_transactional, self.end_offset)
        return duplicate

    def _write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Write one batch with its offsets to the active segment, or to a new one, and update its producer's state."""
        last_offset = header.base_offset + header.last_offset_delta
        assert self.end_offset == header.base_offset <= last_offset, f"{self} cannot continue at {header.base_offset}"
        try:
            segment = self._active
            if self._should_roll(segment, header, last_offset, now_ms):
                segment = self.roll(now_ms)
            segment.append(batch, header.base_offset, last_offset, header.max_timestamp, self._index_interval_bytes)
        except OSError as error:
            raise self.write_failed(error) from error
        self.end_offset = last_offset + 1
        if self._is_disk_full:
            self._is_disk_full = False
            logger.info("%s accepts writes again: the disk has free space", self._name)
        if header.producer_id >= 0:
            self._apply_to_producer_state(batch, header, last_offset)

    def _apply_to_producer_state(self, batch: memoryview, header: BatchHeader, last_offset: int) -> None:
        if header.is_control:
            self._apply_marker(batch, header, last_offset)
            return
        self.producers.append(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            last_offset,
            header.max_timestamp,
            header.is_transactional,
        )

    def _apply_marker(self, batch: memoryview, header: BatchHeader, last_offset: int) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        producers = self.producers
        producer_id = header.producer_id
        first_offset = producers.end_transaction(
            producer_id, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp, last_offset
        )
        if marker.is_abort and first_offset >= 0:
            self.is_directory_unsynced = self.is_directory_unsynced or not self._active.has_transactions
            self._active.add_aborted(aborted_transaction(producers, producer_id, first_offset, last_offset))

    def _should_roll(self, segment: Segment, header: BatchHeader, last_offset: int, now_ms: int) -> bool:
        size = segment.size
        if size == 0:
            return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        if size > self._segment_bytes - header.batch_bytes:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if (
            self._time_waited_for_roll(segment, header.max_timestamp, now_ms)
            > self._segment_ms - segment.roll_jitter_ms
        ):
            return True
        return segment.is_index_full(self._segment_index_bytes)

    def _time_waited_for_roll(self, segment: Segment, max_timestamp: int, now_ms: int) -> int:
        """Return the age of the segment, from record timestamps where they exist, as in Kafka."""
        if segment.first_timestamp == NOT_LOADED:
            load_first_timestamp(segment)
        if segment.first_timestamp >= 0:
            return max_timestamp - segment.first_timestamp
        return now_ms - segment.created_ms

    # --- appending fetched batches -----------------------------------------------------------------------------------

    def append_as_follower(self, records: memoryview) -> None:
        """Write batches with the leader's offsets, with few system calls; a partial batch at the end is skipped.

        Raises KafkaError if a batch is corrupt or out of order; the batches before it are in the log then.
        """
        if self.offline_reason is not None:
            raise self.offline_error()
        position = 0
        while len(records) - position >= HEADER_BYTES:
            length = self._append_run(records[position:])
            if length == 0:
                break
            position += length

    def _append_run(self, records: memoryview) -> int:
        """Write as many batches as fit into one segment; returns the number of bytes."""
        run: list[BatchHeader] = []
        position = 0
        next_offset = self.end_offset
        refusal: KafkaError | None = None
        while len(records) - position >= HEADER_BYTES:
            try:
                header = read_batch_header(records, position)
                if position + header.batch_bytes > len(records):
                    break
                self._check_fetched(records, position, header, next_offset)
            except KafkaError as error:
                refusal = error
                break
            if position == 0:
                self._roll_for(header)
            elif not self._fits_active_segment(position, header):
                break
            run.append(header)
            next_offset = header.next_offset
            position += header.batch_bytes
        if run:
            self._write_run(records[:position], run)
        if refusal is not None:
            raise refusal
        return position

    def _check_fetched(self, records: memoryview, position: int, header: BatchHeader, next_offset: int) -> None:
        if not is_crc_valid(records, position, header) or header.last_offset_delta < 0:
            raise KafkaError(Error.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} is corrupt")
        if header.base_offset < next_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"The batch at offset {header.base_offset} is before the end of {self._name}, {next_offset}",
            )

    def _fits_active_segment(self, run_bytes: int, header: BatchHeader) -> bool:
        """Return whether the active segment has space for the batch, after `run_bytes` of the same write."""
        segment = self._active
        if segment.size + run_bytes > self._segment_bytes - header.batch_bytes:
            return False
        return header.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX

    def _roll_for(self, header: BatchHeader) -> None:
        try:
            if self._should_roll(self._active, header, header.last_offset, header.max_timestamp):
                self.roll(header.max_timestamp)
        except OSError as error:
            raise self.write_failed(error) from error

    def _write_run(self, records: memoryview, run: list[BatchHeader]) -> None:
        assert run[0].base_offset >= self.end_offset, f"{self} cannot continue at {run[0].base_offset}"
        try:
            position = self._active.append_run(records)
        except OSError as error:
            raise self.write_failed(error) from error
        place = 0
        for header in run:
            self._apply_fetched_batch(records, place, position + place, header)
            place += header.batch_bytes
        if self._is_disk_full:
            self._is_disk_full = False
            logger.info("%s accepts writes again: the disk has free space", self._name)

    def _apply_fetched_batch(self, records: memoryview, place: int, position: int, header: BatchHeader) -> None:
        """Update indexes, epochs and producers for a batch that was written."""
        segment = self._active
        length = header.batch_bytes
        last_offset = header.last_offset
        try:
            segment.index_batch(position, length, last_offset, header.max_timestamp, self._index_interval_bytes)
        except OSError as error:  # recovery rebuilds the index
            self.take_offline(f"cannot write the indexes of {self.directory}: {error}")
            raise self.offline_error() from error
        segment.last_append_offset = header.base_offset
        segment.last_append_position = position
        segment.size = position + length
        self.end_offset = last_offset + 1
        if header.leader_epoch > self._latest_epoch:
            self.assign_epoch_start_offset(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self._apply_to_producer_state(records[place : place + length], header, last_offset)

    # --- growing -----------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> Segment:
        """Start a new segment at the end of the log. After an OSError the log continues with the old one."""
        old = self._active
        old.seal_indexes()
        if old.size == 0 and old.base_offset == self.end_offset:
            return old
        self._prepare_snapshot()
        if self._settings.preallocate:
            old.open_descriptor()
            old.truncate_torn_bytes()  # frees the preallocated space that was not used
        segment = create_segment(
            self.directory, self.end_offset, self.pool, now_ms, self._settings.reserved_segment_bytes
        )
        jitter_ms = min(self._settings.segment_jitter_ms, self._settings.segment_ms)
        segment.roll_jitter_ms = random.randrange(jitter_ms) if jitter_ms > 0 else 0  # noqa: S311 - no secret
        self.segments.append(segment)
        old.next_base_offset = segment.base_offset
        self._active = segment
        self.is_directory_unsynced = True
        self.has_rolled = True
        logger.info("Rolled a new segment at offset %d of %s", segment.base_offset, self._name)
        return segment

    def _prepare_snapshot(self) -> None:
        """Take a snapshot of the producers at the end of the log; the next flush writes it, in any thread."""
        if self.producer_state.prepare_snapshot(self.directory, self.end_offset, self.recovery_point):
            self.is_directory_unsynced = True

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Record that a leader of this epoch writes from this offset on."""
        self.epochs.assign(epoch, start_offset)
        self._latest_epoch = self.epochs.latest_epoch

    def mark_directory_new(self) -> None:
        """Make the next flush sync the directory itself and partition.metadata."""
        self.is_new = True
        self.is_directory_unsynced = True

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end_offset: int, minimum_one: bool) -> FileRange | None:
        """Return the stored bytes from the batch that contains `offset` up to, but not including, `end_offset`.

        Returns None if there is nothing to read. Beyond `max_bytes` only whole batches are returned; with `minimum_one`
        at least the first. The caller must release the range. Raises RebuildNeededError if a worker must rebuild the
        segment's indexes first; then read again.
        """
        if offset < self.log_start_offset or offset > self.end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self._name}, but we only have log segments "
                f"in the range {self.log_start_offset} to {self.end_offset}.",
            )
        if offset >= end_offset or (max_bytes <= 0 and not minimum_one):
            return None
        self.pool.defers_index_rebuilds = True
        try:
            return self._read(offset, max_bytes, end_offset, minimum_one)
        except OSError as error:
            logger.error("Cannot read from %s: %s", self.directory, error)
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Cannot read the log of {self._name}") from error
        finally:
            self.pool.defers_index_rebuilds = False

    def _read(self, offset: int, max_bytes: int, end_offset: int, minimum_one: bool) -> FileRange | None:
        place = self._segment_index(offset)
        while place < len(self.segments):
            segment = self.segments[place]
            position, batch_bytes = segment.find(offset)
            if position < segment.size:
                length = self._end_position(place, end_offset) - position
                if length > max_bytes:
                    return whole_batch_range(segment, position, batch_bytes, max_bytes, minimum_one)
                return segment.make_range(position, length) if length > 0 else None
            place += 1  # compaction removed the offsets at the end of this segment
        return None

    def _end_position(self, place: int, end_offset: int) -> int:
        """Return the position in this segment at which a read up to `end_offset` ends."""
        segment = self.segments[place]
        if end_offset >= self.end_offset:
            return segment.size
        if place + 1 < len(self.segments) and end_offset >= self.segments[place + 1].base_offset:
            return segment.size
        if end_offset != self._cached_end_offset:
            self._cached_end_position = segment.find(end_offset)[0]
            self._cached_end_offset = end_offset
        return self._cached_end_position

    def _segment_index(self, offset: int) -> int:
        """Return the index of the last segment that starts at or before the offset."""
        high = len(self.segments)
        if offset >= self._active.base_offset:
            return high - 1
        low = 0
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, 0)

    def segment_of(self, offset: int) -> Segment:
        return self.segments[self._segment_index(offset)]

    def batch_start(self, offset: int) -> int:
        """Return the first offset of the batch that contains this offset, or of the first corrupt batch before it."""
        return batch_start(self.segment_of(offset), offset)

    def skips_missing_offsets(self, offset: int, file_range: FileRange) -> bool:
        """Return whether the range starts in a later segment than the offset: without compaction, data is missing."""
        return not self._is_compacted and segment_of(file_range).base_offset > offset

    def check_range(self, file_range: FileRange) -> None:
        """Check stored bytes, in any thread. A range with a corrupt batch is shortened to end before it.

        Raises KafkaError(CORRUPT_MESSAGE) if the first batch is corrupt, and TransactionIndexWrongError if a worker
        must rebuild the transaction indexes first; then read again.
        """
        sound_end = check_and_repair(file_range, self.epochs, self._truncations)
        if not self.has_verified_txn_index and contradicts_transaction_index(
            list(self.segments), file_range, self.producer_state.ongoing_txns(), self.known_txn_outcomes
        ):
            raise TransactionIndexWrongError(self)
        add_verified_range(segment_of(file_range), file_range.position, sound_end)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Return offset, timestamp and leader epoch of the first record with this timestamp or a later one."""
        return offset_for_timestamp(self.segments, self.log_start_offset, timestamp_ms)

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """Return offset, timestamp and leader epoch of the first record with the largest timestamp of the log."""
        return offset_of_max_timestamp(self.segments, self.log_start_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records between the offsets. May raise TransactionIndexWrongError."""
        found: list[AbortedTxn] = []
        for place in range(self._segment_index(from_offset), len(self.segments)):
            segment = self.segments[place]
            if segment.has_transactions:
                try:
                    entries, is_complete = segment.transactions().find(from_offset, to_offset)
                except TransactionIndexError:
                    raise TransactionIndexWrongError(self) from None
                found += entries
                if is_complete:
                    break
        return found

    def aborted_transactions_in_range(self, offset: int, file_range: FileRange, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions in this range, from this offset on."""
        segment = file_range.owner
        assert isinstance(segment, Segment)
        next_base_offset = segment.next_base_offset
        return self.aborted_transactions(offset, next_base_offset if next_base_offset >= 0 else end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch at or below this one and its end offset; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # --- deleting ----------------------------------------------------------------------------------------------------

    def raise_log_start_offset(self, offset: int, *, writes_epochs: bool = True) -> None:
        """Hide everything below the offset; delete_old_segments() deletes whole hidden segments."""
        if offset > self.end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE, f"Offset {offset} is past the end of {self._name}, {self.end_offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset, writes=writes_epochs)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete segments that retention does not keep; returns their number."""
        count = self._delete_old_segments(now_ms, high_watermark)
        self.finish_renames()
        return count

    def begin_deletion(self, now_ms: int, high_watermark: int) -> SegmentRenameJob | None:
        """Begin a deletion: run the job in any thread, then call finish_rename(). None if there is nothing to do."""
        self._delete_old_segments(now_ms, high_watermark)
        return self.deleted_segments.begin_rename()

    def _delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        if self.offline_reason is not None:
            return 0
        try:
            return delete_old_segments(self, now_ms, high_watermark)
        except OSError as error:
            raise self.write_failed(error) from error

    def delete_log_start_offset_breached_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete segments below the log start offset now, without waiting for retention; returns their number."""
        if self.offline_reason is not None:
            raise self.offline_error()
        count = delete_log_start_offset_breached_segments(self, now_ms, high_watermark)
        self.finish_renames()
        return count

    def remove_and_delete_segments(self, count: int, now_ms: int) -> None:
        """Remove the oldest segments from the log. Active reads may finish; the files are deleted after a delay.

        The files keep their names until finish_renames() or a SegmentRenameJob renames them.
        """
        due_ms = now_ms + self._settings.file_delete_delay_ms
        for segment in self.segments[:count]:
            segment.close()
            self.deleted_segments.add(due_ms, segment)
        del self.segments[:count]

    def finish_rename(self, job: SegmentRenameJob) -> None:
        """Process a finished job. Failed renames are retried, if they may succeed."""
        error = self.deleted_segments.finish_rename(job)
        if error is not None:
            raise self.write_failed(error) from error

    def finish_renames(self) -> None:
        """Rename the files of all dropped segments now, including those of a running job."""
        while (job := self.deleted_segments.current_or_next_rename()) is not None:
            job.run()
            self.finish_rename(job)

    def replace_segments(self, old: list[Segment], new: Segment, now_ms: int) -> None:
        """Replace segments by a cleaned one, whose files already have their final names."""
        place = self.segments.index(old[0])
        due_ms = now_ms + self._settings.file_delete_delay_ms
        for segment in old:
            segment.close()
            self.deleted_segments.renamed.append((due_ms, segment))
        new.next_base_offset = old[-1].next_base_offset
        self.segments[place : place + len(old)] = [new]
        self._cached_end_offset = -1
        self.is_directory_unsynced = True

    def take_due_deletions(self, now_ms: int) -> list[str]:
        """Return the files of deleted segments whose delay is over; the caller removes them."""
        return self.deleted_segments.take_due_paths(now_ms)

    def accept_data_loss(self) -> None:
        """Accept the loss of records that no other replica has."""
        self.lost_start_offset = -1
        self.epochs.truncate_from_start(self.log_start_offset)

    # --- truncating --------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove this offset and all later ones."""
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
        elif offset < self.end_offset:
            self._truncate(truncate_to, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next append gets this offset."""
        self._truncate(truncate_fully_and_start_at, offset)

    def _truncate(self, truncate: Callable[[Log, int], None], offset: int) -> None:
        self.finish_renames()  # a new segment may need the name of one of them
        self._cached_end_offset = -1
        self.known_txn_outcomes.clear()
        self.producer_state.cancel_snapshot()
        try:
            with self._truncations.lock:
                self._truncations.count += 1
                truncate(self, offset)
        except OSError as error:
            self.take_offline(f"cannot truncate {self.directory}: {error}")
            raise self.offline_error() from error
        finally:
            self._active = self.segments[-1]
            self._active.next_base_offset = -1
            self.recovery_point = min(self.recovery_point, self.end_offset)
            self.cleaned_offset = min(self.cleaned_offset, self.end_offset)
            self._latest_epoch = self.epochs.latest_epoch
            self.is_directory_unsynced = True
        assert self.log_start_offset <= self.end_offset == offset, f"{self} was to end at {offset}"

    # --- flushing and closing ----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything up to the end durable. Blocks; the event loop uses begin_flush and end_flush."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.end_flush(job)

    def begin_flush(self, only_rolled: bool = False) -> FlushJob | None:
        """Return a job for any thread; pass it to end_flush afterwards. None if there is nothing to do.

        With `only_rolled` the active segment is omitted, as in Kafka's flush after a roll.
        """
        if self.offline_reason is not None:
            raise self.offline_error()
        self.has_rolled = False
        try:
            return prepare_flush(self, only_rolled)
        except OSError as error:
            raise self.write_failed(error) from error

    def end_flush(self, job: FlushJob) -> None:
        """Process the result of a job on the owner's thread. A failed sync takes the log offline."""
        if job.snapshot is not None and job.truncations == self._truncations.count:
            self.producer_state.finish_snapshot(job.snapshot)
        if job.error is not None:
            self.take_offline(f"cannot sync {self.directory}: {job.error}")
            raise self.offline_error()
        if job.is_done and job.truncations == self._truncations.count and job.end_offset > self.recovery_point:
            self.recovery_point = job.end_offset

    def begin_close(self) -> FlushJob | None:
        """Write everything that the next start needs, and return the job that syncs it."""
        if self.offline_reason is not None:
            raise self.offline_error()
        self.finish_renames()
        try:
            self._active.seal_indexes()
        except OSError as error:
            raise self.write_failed(error) from error
        self._prepare_snapshot()
        self.producer_state.write_snapshot()
        return self.begin_flush()

    def close(self) -> None:
        """Close the log cleanly. Raises KafkaError if that fails; the files are closed anyway."""
        try:
            job = self.begin_close()
            if job is not None:
                job.run()
                self.end_flush(job)
        finally:
            self.close_files()

    def close_files(self) -> None:
        """Close the files without further writes."""
        for segment in self.segments:
            segment.close()

    def switch_directory(self, directory: str, descriptors: dict[int, int], synced_offset: int) -> None:
        """Continue in another directory with identical files, without interrupting active reads.

        `descriptors` are those of the copied log files, by base offset, for each segment with an open file. Each
        replaces the old descriptor under its number, so active ranges remain valid.
        """
        for segment in self.segments:
            descriptor = descriptors.pop(segment.base_offset, -1)
            if descriptor >= 0:
                files.replace_descriptor(descriptor, segment.descriptor, False)
                files.close(descriptor)
            segment.has_unsynced_indexes = segment is self._active
        self.set_directory(directory)
        self.epochs.write()  # a SegmentRenameJob may be writing newer epochs to the old directory
        self._truncations.count += 1  # a flush that is under way syncs the old files: its result is void
        self.recovery_point = min(self.recovery_point, synced_offset)
        self.producer_state.snapshot_offset = -1
        self.mark_directory_new()

    def set_directory(self, directory: str) -> None:
        """Set the path of the renamed directory."""
        self.directory = directory
        self.epochs.directory = directory
        for segment in self.segments:
            segment.directory = directory

    def __repr__(self) -> str:
        state = f"failed: {self.offline_reason}" if self.offline_reason else f"{len(self.segments)} segments"
        return f"<Log {self._name}, offsets {self.log_start_offset}-{self.end_offset}, {state}>"
