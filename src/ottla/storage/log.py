"""The log of one partition as clients see it: appending and reading. Compiled with mypyc where possible.

Rule 1: one thread owns a log. What takes long (syncing, checking stored bytes, recovery) is cut out as jobs that other
threads run and whose results come back to the owner.
Rule 2: `end_offset` and the producers change only after a batch has been written whole. A write that fails is cut away
again; if even that fails, the log refuses all further writes.
Rule 3: an idle log is a handful of numbers; files, indexes and producers are loaded when they are needed.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.protocol.batches import (
    HEADER_BYTES,
    BatchHeader,
    check_produced_batch,
    crc_is_right,
    read_batch_header,
    recompress,
    write_log_append_time,
    write_offsets,
)
from ottla.protocol.compression import CODEC_NAMES, GZIP, LZ4, ZSTD, is_slow, library_level
from ottla.storage import files
from ottla.storage.boundaries import some_batches
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.epoch_mending import mend_epochs
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import RecompressionNeededError
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.log_files import LogFiles
from ottla.storage.page_cache import range_is_cached
from ottla.storage.partition_metadata import write_topic_id
from ottla.storage.producers import ProducerBatch, Producers
from ottla.storage.replay import aborted_by, read_marker
from ottla.storage.segment import Segment, create_segment
from ottla.storage.segment_times import NOT_LOADED, load_first_timestamp
from ottla.storage.timestamps import FoundOffset, offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.transaction_check import TransactionIndexWrongError, has_wrong_outcome
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndexError
from ottla.storage.verification import check_range, distrust, needs_check, remember, segment_of

logger = logging.getLogger("ottla.storage.log")

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
NO_TIMESTAMP: Final = -1
KEEPS_PRODUCERS_CODEC: Final = -1
RECOMPRESSED_HERE_BYTES_MAX: Final = 16 << 10  # of a codec that is quick: a millisecond at most


class Appended:
    """Where a batch went."""

    __slots__ = ("base_offset", "is_duplicate", "last_offset", "log_append_time_ms")

    def __init__(self, base_offset: int, last_offset: int, log_append_time_ms: int, is_duplicate: bool) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime, unless it is a duplicate
        self.is_duplicate = is_duplicate

    def __repr__(self) -> str:
        return f"<Appended {self.base_offset}-{self.last_offset}{' again' if self.is_duplicate else ''}>"


class Log(LogFiles):
    """All segments of one partition: takes produced batches, hands out ranges of stored ones."""

    __slots__ = (
        "_codec",
        "_index_interval_bytes",
        "_is_compacted",
        "_is_log_append_time",
        "_level",
        "_limit_position",
        "_message_bytes_max",
        "_recompressed_here_max",
        "_segment_bytes",
        "_segment_index_bytes",
        "_segment_ms",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
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
        super().__init__(
            partition,
            directory,
            settings,
            pool,
            segments,
            end_offset=end_offset,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            epochs=epochs,
            producers=producers,
            producer_expiration_ms=producer_expiration_ms,
            topic_id=topic_id,
        )
        self._limit_position = 0  # where `_limit_offset` stands in its segment
        self._apply_settings(settings)

    # --- settings -----------------------------------------------------------------------------------------------

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._apply_settings(settings)

    def _apply_settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._is_compacted: bool = settings.is_compacted
        self._is_log_append_time: bool = settings.message_timestamp_type == "LogAppendTime"
        self._index_interval_bytes: int = settings.index_interval_bytes
        self._message_bytes_max: int = settings.max_message_bytes
        self._segment_bytes: int = settings.segment_bytes
        self._segment_index_bytes: int = settings.segment_index_bytes
        self._segment_ms: int = settings.segment_ms
        self._timestamp_before_max_ms: int = settings.message_timestamp_before_max_ms
        self._timestamp_after_max_ms: int = settings.message_timestamp_after_max_ms
        self._codec: int = KEEPS_PRODUCERS_CODEC
        self._level: int = 0
        self._recompressed_here_max: int = RECOMPRESSED_HERE_BYTES_MAX
        if settings.compression_type == "uncompressed":
            self._codec = 0
        elif settings.compression_type in CODEC_NAMES:
            self._codec = CODEC_NAMES.index(settings.compression_type)
            levels = {
                GZIP: settings.compression_gzip_level,
                LZ4: settings.compression_lz4_level,
                ZSTD: settings.compression_zstd_level,
            }
            self._level = library_level(self._codec, levels.get(self._codec, 0))
            if is_slow(self._codec, self._level):
                self._recompressed_here_max = 0

    # --- appending ----------------------------------------------------------------------------------------------

    def append(self, records: memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Check the one batch of a Produce request as Kafka does and write it; changes `records` in place."""
        if self.failure is not None:
            raise self.refusal()
        header = self._check_batch(records, now_ms)
        if self._codec >= 0 and header.codec != self._codec:
            if header.batch_bytes > self._recompressed_here_max:
                raise RecompressionNeededError
            records = memoryview(self.recompressed(records))
            header = read_batch_header(records, 0)
            if header.batch_bytes > self._message_bytes_max:
                raise KafkaError(Error.MESSAGE_TOO_LARGE, f"The batch has {header.batch_bytes} bytes when recompressed")
        if header.batch_bytes > self._segment_bytes:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {header.batch_bytes} bytes in append to partition {self._name}, "
                f"which exceeds the maximum configured segment size of {self._segment_bytes}.",
            )
        if header.producer_id >= 0:
            duplicate = self._check_producer(header)
            if duplicate is not None:
                # With CreateTime, too, Kafka answers a duplicate with the time of the first.
                return Appended(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True)
        if self._is_log_append_time:
            write_log_append_time(records, 0, header, now_ms)
        base_offset = self.end_offset
        header.base_offset = base_offset
        write_offsets(records, 0, base_offset, leader_epoch)
        self._write(records, header, now_ms)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch(leader_epoch, base_offset)
        return Appended(base_offset, self.end_offset - 1, now_ms if self._is_log_append_time else NO_TIMESTAMP, False)

    def recompressed(self, records: memoryview | bytes) -> bytearray:
        """A batch under the topic's own codec and level; runs in any thread."""
        return recompress(records, self._codec, self._level)

    def append_own(self, records: memoryview, leader_epoch: int, now_ms: int) -> int:
        """Write a batch of the broker's own making: coordinators' records and transaction markers; its last offset."""
        if self.failure is not None:
            raise self.refusal()
        header = read_batch_header(records, 0)
        if header.batch_bytes > self._message_bytes_max and not header.is_control:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"The batch has {header.batch_bytes} bytes")
        base_offset = self.end_offset
        header.base_offset = base_offset
        write_offsets(records, 0, base_offset, leader_epoch)
        self._write(records, header, now_ms)
        if leader_epoch != self._latest_epoch:
            self.assign_epoch(leader_epoch, base_offset)
        return self.end_offset - 1

    def append_as_follower(self, records: memoryview) -> None:
        """Write batches that a leader gave their offsets, with few system calls; one that is cut off is left out.

        KafkaError if a batch cannot be the next one or was damaged on its way: those before it are in the log then.
        """
        if self.failure is not None:
            raise self.refusal()
        position = 0
        while len(records) - position >= HEADER_BYTES:
            length = self._append_run(records[position:])
            if length == 0:
                break
            position += length

    def _append_run(self, records: memoryview) -> int:
        """Write as many batches as one segment takes; how many bytes that were."""
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
            elif not self._has_room(position, header):
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
        if not crc_is_right(records, position, header) or header.last_offset_delta < 0:
            raise KafkaError(Error.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} is corrupt")
        if header.base_offset < next_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"The batch at offset {header.base_offset} lies before the end of {self._name}, {next_offset}",
            )

    def _has_room(self, run_bytes: int, header: BatchHeader) -> bool:
        """Whether the active segment takes the batch, after so many bytes that go into it with the same write."""
        segment = self._active
        if segment.size + run_bytes > self._segment_bytes - header.batch_bytes:
            return False
        return header.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX

    def _roll_for(self, header: BatchHeader) -> None:
        try:
            if self._must_roll(self._active, header, header.last_offset, header.max_timestamp):
                self.roll(header.max_timestamp)
        except OSError as error:
            raise self.write_failed(error) from error

    def _write_run(self, records: memoryview, run: list[BatchHeader]) -> None:
        assert run[0].base_offset >= self.end_offset, f"{self} cannot go on at {run[0].base_offset}"
        try:
            position = self._active.append_run(records)
        except OSError as error:
            raise self.write_failed(error) from error
        place = 0
        for header in run:
            self._note_fetched(records, place, position + place, header)
            place += header.batch_bytes
        if self._is_disk_full:
            self._is_disk_full = False
            logger.info("%s takes writes again", self._name)

    def _note_fetched(self, records: memoryview, place: int, position: int, header: BatchHeader) -> None:
        """Keep indexes, epochs and producers in step with a batch that has been written."""
        segment = self._active
        length = header.batch_bytes
        last_offset = header.last_offset
        try:
            segment.note_batch(position, length, last_offset, header.max_timestamp, self._index_interval_bytes)
        except OSError as error:  # an index that cannot be written is made anew
            self.fail(f"cannot write the indexes of {self.directory}: {error}")
            raise self.refusal() from error
        segment.last_append_offset = header.base_offset
        segment.last_append_position = position
        segment.size = position + length
        self.end_offset = last_offset + 1
        if header.leader_epoch > self._latest_epoch:
            self.assign_epoch(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self._note_producer(records[place : place + length], header, last_offset)

    def _check_batch(self, records: memoryview, now_ms: int) -> BatchHeader:
        before_ms = self._timestamp_before_max_ms
        after_ms = self._timestamp_after_max_ms
        return check_produced_batch(
            records,
            is_compacted=self._is_compacted,
            message_bytes_max=self._message_bytes_max,
            partition=self._name,
            is_log_append_time=self._is_log_append_time,
            timestamp_min=INT64_MIN if before_ms >= NEVER_MS else now_ms - before_ms,
            timestamp_max=INT64_MAX if after_ms >= NEVER_MS else now_ms + after_ms,
        )

    def _check_producer(self, header: BatchHeader) -> ProducerBatch | None:
        """The earlier batch that this one repeats, if it does; refuses it if it may not come now."""
        producers = self._producers
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
        """Put one batch with its offsets into the active segment, or into a new one, and remember its producer."""
        last_offset = header.base_offset + header.last_offset_delta
        assert self.end_offset == header.base_offset <= last_offset, f"{self} cannot go on at {header.base_offset}"
        try:
            segment = self._active
            if self._must_roll(segment, header, last_offset, now_ms):
                segment = self.roll(now_ms)
            segment.append(batch, header.base_offset, last_offset, header.max_timestamp, self._index_interval_bytes)
        except OSError as error:
            raise self.write_failed(error) from error
        self.end_offset = last_offset + 1
        if self._is_disk_full:
            self._is_disk_full = False
            logger.info("%s takes writes again", self._name)
        if header.producer_id >= 0:
            self._note_producer(batch, header, last_offset)

    def _note_producer(self, batch: memoryview, header: BatchHeader, last_offset: int) -> None:
        if header.is_control:
            self._note_marker(batch, header, last_offset)
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

    def _note_marker(self, batch: memoryview, header: BatchHeader, last_offset: int) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        producers = self.producers
        producer_id = header.producer_id
        first_offset = producers.end_transaction(
            producer_id, header.producer_epoch, marker.coordinator_epoch, header.max_timestamp, last_offset
        )
        if marker.is_abort and first_offset >= 0:
            self._is_directory_unsynced = self._is_directory_unsynced or not self._active.has_transactions
            self._active.add_aborted(aborted_by(producers, producer_id, first_offset, last_offset))

    def _must_roll(self, segment: Segment, header: BatchHeader, last_offset: int, now_ms: int) -> bool:
        size = segment.size
        if size == 0:
            return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        if size > self._segment_bytes - header.batch_bytes:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self._waited_ms(segment, header.max_timestamp, now_ms) > self._segment_ms - segment.roll_jitter_ms:
            return True
        return segment.is_index_full(self._segment_index_bytes)

    def _waited_ms(self, segment: Segment, max_timestamp: int, now_ms: int) -> int:
        """How old the segment is: by the records' own times where they have any, as Kafka counts."""
        if segment.first_timestamp == NOT_LOADED:
            load_first_timestamp(segment)
        if segment.first_timestamp >= 0:
            return max_timestamp - segment.first_timestamp
        return now_ms - segment.created_ms

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end_offset: int, minimum_one: bool) -> FileRange | None:
        """The stored bytes from the batch that contains `offset`, up to the batch that contains `end_offset`.

        None if there is nothing to read there. Of what goes beyond `max_bytes` only whole batches are handed out, with
        `minimum_one` at least the first. The caller owns the range and must release it. RebuildNeededError: read
        again when a worker has made the segment's indexes anew (index_rebuild.py).
        """
        if offset < self.log_start_offset or offset > self.end_offset:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self._name}, but we only have log segments "
                f"in the range {self.log_start_offset} to {self.end_offset}.",
            )
        if offset >= end_offset or (max_bytes <= 0 and not minimum_one):
            return None
        self.pool.defers_rebuilds = True
        try:
            return self._read(offset, max_bytes, end_offset, minimum_one)
        except OSError as error:
            logger.error("Cannot read from %s: %s", self.directory, error)
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Cannot read the log of {self._name}") from error
        finally:
            self.pool.defers_rebuilds = False

    def _read(self, offset: int, max_bytes: int, end_offset: int, minimum_one: bool) -> FileRange | None:
        place = self._segment_place(offset)
        while place < len(self.segments):
            segment = self.segments[place]
            position, batch_bytes = segment.find(offset)
            if position < segment.size:
                length = self._limit(place, end_offset) - position
                if length > max_bytes:
                    return some_batches(segment, position, batch_bytes, max_bytes, minimum_one)
                return segment.make_range(position, length) if length > 0 else None
            place += 1  # the offsets at the end of this segment were compacted away
        return None

    def _limit(self, place: int, end_offset: int) -> int:
        """Where readers that may not see `end_offset` must stop in this segment."""
        segment = self.segments[place]
        if end_offset >= self.end_offset:
            return segment.size
        if place + 1 < len(self.segments) and end_offset >= self.segments[place + 1].base_offset:
            return segment.size
        if end_offset != self._limit_offset:
            self._limit_position = segment.find(end_offset)[0]
            self._limit_offset = end_offset
        return self._limit_position

    def _segment_place(self, offset: int) -> int:
        """Index of the last segment that starts at or before the offset."""
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
        return self.segments[self._segment_place(offset)]

    def is_past_hole(self, offset: int, file_range: FileRange) -> bool:
        """Whether the bytes for this offset are those of a later segment: between two of them that nobody compacts
        there is no gap, unless a file is gone or was shortened."""
        return not self._is_compacted and segment_of(file_range).base_offset > offset

    def needs_check(self, file_range: FileRange) -> bool:
        """Whether check_range must run before these bytes may be sent, because an earlier run wrote them."""
        return needs_check(file_range)

    def distrust(self, file_range: FileRange) -> None:
        """Check the segment of these bytes again before it is served, though this process wrote it."""
        distrust(file_range)

    def check_range(self, file_range: FileRange) -> None:
        """Check stored bytes, in any thread. A range with a bad batch is shortened to end before it; if that is its
        first, KafkaError(CORRUPT_MESSAGE). TransactionIndexWrongError: read again when a worker has mended that."""
        sound_end = check_range(file_range)
        mend_epochs(segment_of(file_range), file_range, self.epochs)
        if not self.has_checked_transactions and has_wrong_outcome(
            list(self.segments), file_range, self.open_transactions, self.outcomes
        ):
            raise TransactionIndexWrongError(self)
        remember(segment_of(file_range), file_range.position, sound_end)

    def range_is_cached(self, file_range: FileRange) -> bool:
        """Whether the range can be sent without waiting for the disk; if not, read_ahead() it in a thread first."""
        return range_is_cached(file_range)

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """Offset, timestamp and leader epoch of the first record that is not older than this."""
        return offset_for_timestamp(self.segments, self.log_start_offset, timestamp_ms)

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """Offset, timestamp and leader epoch of the first record with the largest timestamp of all."""
        return offset_of_max_timestamp(self.segments, self.log_start_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records between the two offsets; or TransactionIndexWrongError."""
        found: list[AbortedTransaction] = []
        for place in range(self._segment_place(from_offset), len(self.segments)):
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

    def aborted_transactions_in(self, offset: int, file_range: FileRange, end_offset: int) -> list[AbortedTransaction]:
        """Those that a reader of this range meets, from this offset on."""
        segment = file_range.owner
        assert isinstance(segment, Segment)
        next_base_offset = segment.next_base_offset
        return self.aborted_transactions(offset, next_base_offset if next_base_offset >= 0 else end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch at or below this one and the offset where it ends; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)


def create_log(
    partition: TopicPartition,
    directory: str,
    settings: TopicSettings,
    pool: DescriptorPool,
    topic_id: uuid.UUID | None,
    now_ms: int,
    producer_expiration_ms: int,
) -> Log:
    """Make the folder of a new partition. It survives a power cut after the first flush."""
    files.make_directory(directory)
    try:
        segment = create_segment(directory, 0, pool, now_ms, settings.reserved_segment_bytes)
        if topic_id is not None:
            write_topic_id(directory, topic_id)
    except OSError:
        files.remove_tree(directory, ignore_errors=True)  # half a folder would be in the way of the next attempt
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
        epochs=LeaderEpochs(directory),
        producer_expiration_ms=producer_expiration_ms,
        topic_id=topic_id,
    )
    log.has_checked_transactions = True
    log.mark_new()
    return log
