"""Opening the log of a partition (Kafka's LogLoader): fast after a clean shutdown, with recovery after any other.

After a clean shutdown nothing is scanned; only the last batches are checked. Otherwise everything from the recovery
point on is read. The log ends at the first byte that is not part of a whole, valid batch in the right order; the rest
is truncated and logged. Indexes, producers and leader epochs are rebuilt in the same pass. Bytes below the recovery
point are checked when they are served for the first time (range_checks.py).

Everything here may run in any thread: the log has no other user until open_log() returns. Compiled with mypyc where
possible.
"""

from __future__ import annotations

import logging
import os
import uuid
from itertools import pairwise
from typing import Final

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import HEADER, HEADER_BYTES, BatchHeader
from ottla.storage import files
from ottla.storage.checkpoints import CheckpointError
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES, last_offset_entry
from ottla.storage.leader_epochs import LeaderEpochCache, load_epochs
from ottla.storage.log import Log
from ottla.storage.partition_dir import PartitionDir, read_partition_dir
from ottla.storage.partition_metadata import read_topic_id
from ottla.storage.producer_state import ProducerStates
from ottla.storage.replay import aborted_transaction, apply_batch, epochs_match_batches, load_producers, replay_epochs
from ottla.storage.scan import UNFINISHED_WRITE, BatchScan
from ottla.storage.segment import Segment, create_segment, remove_empty_segment
from ottla.storage.transaction_index import TransactionIndexError
from ottla.storage.truncation import recovery_start, truncate_segment

logger = logging.getLogger("ottla.storage.log_loader")

TAIL_CRC_BYTES_MAX: Final = 1 << 20


class RecoveryRestartError(Exception):
    """Another attempt is needed that scans from this recovery point on."""

    def __init__(self, recovery_point: int) -> None:
        super().__init__(recovery_point)
        self.recovery_point = recovery_point


def open_log(
    partition: TopicPartition,
    directory: str,
    settings: TopicSettings,
    *,
    pool: DescriptorPool,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    producer_expiration_ms: int,
    high_watermark: int = 0,
) -> Log:
    """Open the log in this directory, and repair it if needed.

    The high watermark only shows how far the log once reached.
    """
    has_lost = False
    known_end = 0
    is_loss_told = False
    while True:
        opening = LogLoader(
            partition,
            directory,
            settings,
            is_clean,
            recovery_point,
            log_start_offset,
            now_ms,
            producer_expiration_ms,
            high_watermark,
            known_end,
            is_loss_told,
        )
        try:
            log = opening.run(pool)
            log.has_data_loss = log.has_data_loss or has_lost
            return log
        except RecoveryRestartError as again:
            has_lost = True
            is_clean = False
            recovery_point = again.recovery_point
            known_end = opening.known_end
            is_loss_told = opening.is_loss_logged
        finally:
            opening.close_files()


class LogLoader:
    """One attempt to open a log."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: str,
        settings: TopicSettings,
        is_clean: bool,
        recovery_point: int,
        log_start_offset: int,
        now_ms: int,
        producer_expiration_ms: int,
        high_watermark: int,
        known_end: int,
        is_loss_told: bool,
    ) -> None:
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self.is_clean = is_clean
        self.was_clean = False  # it was closed cleanly and damaged afterwards
        self.known_end = known_end  # end offset that an earlier attempt has found
        self.is_loss_logged = is_loss_told
        self.has_data_loss = False  # damage beyond the unfinished write of a crash
        self.lost_start_offset = -1  # everything from here to the first segment is lost
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.now_ms = now_ms
        # Not the broker's pool: this thread must not close files that another one uses.
        self.pool = DescriptorPool()
        self.folder: PartitionDir = read_partition_dir(directory)
        self.segments_without_index: list[
            Segment
        ] = []  # had no index files, so the transaction index may be missing as well
        self.segments: list[Segment] = [self._load_segment(base_offset) for base_offset in self.folder.segments]
        self.producers = ProducerStates(producer_expiration_ms)
        self.epochs = LeaderEpochCache(directory)
        self.end_offset = 0
        self.tail_epoch = -1  # of the last batch; set after a clean shutdown

    def run(self, pool: DescriptorPool) -> Log:
        if not self.segments:
            self.segments.append(create_segment(self.directory, self.log_start_offset, self.pool, self.now_ms))
        self._remove_empty_segments()
        self._check_transaction_indexes()
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        first = self._first_to_recover()
        start_position, start_offset = self._scan_start(first)
        snapshot_offset = self._load_producers(start_offset)
        self.epochs = self._load_epochs()
        self._check_lost_start()
        self._recover_from(first, start_position, start_offset)
        is_point_wrong = self.recovery_point > self.end_offset and not self.was_clean
        if is_point_wrong and not self.is_clean and start_position > 0:
            # The recovery point is wrong, or synced bytes are missing: scan the whole segment.
            self.known_end = self.end_offset_min()
            raise RecoveryRestartError(self.segments[-1].base_offset)
        return self._make_log(pool, snapshot_offset)

    def close_files(self) -> None:
        """Close everything in the pool of this thread."""
        for segment in self.pool.remove_all():
            segment.close()

    # --- what is there ------------------------------------------------------------------------------------------

    def _load_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self.folder.size(base_offset, files.LOG_SUFFIX), self.pool)
        segment.created_ms = self.now_ms
        index_bytes = self.folder.size(base_offset, files.INDEX_SUFFIX)
        time_index_bytes = self.folder.size(base_offset, files.TIME_INDEX_SUFFIX)
        if index_bytes < 0 or time_index_bytes < 0:
            if segment.size:
                segment.rebuild_indexes("an index file is missing")
                self.segments_without_index.append(segment)
            else:
                files.create_empty(segment.path(files.INDEX_SUFFIX))
                files.create_empty(segment.path(files.TIME_INDEX_SUFFIX))
        elif index_bytes % OFFSET_ENTRY_BYTES or time_index_bytes % TIME_ENTRY_BYTES:
            segment.rebuild_indexes("its size is not a multiple of the size of an entry")
        segment.has_transactions = self.folder.size(base_offset, files.TRANSACTION_INDEX_SUFFIX) >= 0
        return segment

    def _check_transaction_indexes(self) -> None:
        for segment in self.segments:
            if segment in self.segments_without_index:
                self._rebuild_transactions(segment)
            elif segment.has_transactions:
                try:
                    segment.transactions()
                except TransactionIndexError as error:
                    logger.warning("Found a corrupted transaction index (%s), rebuilding it from the log", error)
                    self._rebuild_transactions(segment)

    def _rebuild_transactions(self, segment: Segment) -> None:
        """Rebuild the transaction index.

        Transactions may start in earlier segments: the producers know the open ones.
        """
        producers = ProducerStates(self.producers.expiration_ms)
        files.remove_if_exists(segment.path(files.TRANSACTION_INDEX_SUFFIX))
        segment.has_transactions = False
        load_producers(self.directory, self.folder.snapshots, self.segments, producers, segment.base_offset)
        scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
        while scan.advance():
            if scan.producer_id >= 0:
                apply_producer_batch(segment, producers, scan)
        segment.write_pending()

    def _load_epochs(self) -> LeaderEpochCache:
        try:
            epochs = load_epochs(self.directory)
        except CheckpointError as error:
            logger.warning("Found a corrupted leader epoch file (%s), rebuilding it from the log", error)
            return replay_epochs(self.directory, self.segments)
        is_missing = not epochs.entries and any(segment.size for segment in self.segments)
        if is_missing:
            epochs = replay_epochs(self.directory, self.segments)
            if epochs.entries:
                logger.warning("The leader epochs of %s were missing, rebuilt them from the log", self.partition)
        elif (
            epochs.entries
            and self._should_verify_epochs(epochs)
            and not epochs_match_batches(epochs, self.segments, self._unscanned_end())
        ):
            logger.warning("The leader epoch file %s does not fit the log, rebuilding it", epochs.path())
            epochs = replay_epochs(self.directory, self.segments)
        return epochs

    def _unscanned_end(self) -> int:
        """Return the end of the log after a clean shutdown; otherwise the end of the part that is not scanned."""
        return self.end_offset if self.is_clean else self.recovery_point

    def _should_verify_epochs(self, epochs: LeaderEpochCache) -> bool:
        """Return whether to verify all epochs.

        After a clean shutdown only the last batch is compared, which was read anyway.
        """
        if not self.is_clean:
            return True
        latest = max((epoch for epoch, start_offset in epochs.entries if start_offset < self.end_offset), default=-1)
        return self.tail_epoch not in (-1, latest)

    def _check_lost_start(self) -> None:
        """Detect missing files at the start. A deletion writes the epochs first, so older epochs mean a loss."""
        first_offset = self.segments[0].base_offset
        if self.epochs.entries and self.epochs.entries[0][1] < first_offset:
            self.lost_start_offset = self.epochs.entries[0][1]
            logger.error(
                "%s started at offset %d, but its first segment starts at %d: the files before it are missing",
                self.partition,
                self.lost_start_offset,
                first_offset,
            )

    def _load_producers(self, offset: int) -> int:
        snapshots = self.folder.snapshots
        snapshot_offset = load_producers(
            self.directory, snapshots, self.segments, self.producers, offset, recalls_batches=not self.is_clean
        )
        if self.is_clean and snapshot_offset < offset > self.segments[0].base_offset:
            logger.warning("No producer snapshot at the end of %s, rebuilt the producers from the log", self.partition)
        return snapshot_offset

    def _load_topic_id(self) -> uuid.UUID | None:
        try:
            return read_topic_id(self.directory)
        except CheckpointError as error:
            logger.warning("Ignoring a corrupted partition.metadata file: %s", error)
            return None

    def _remove_empty_segments(self) -> None:
        """Remove empty segments of a failed roll: the log continued in the segment before."""
        for segment in [segment for segment in self.segments[1:-1] if segment.size == 0]:
            self._remove_segment(segment)
        if len(self.segments) > 1 and self.segments[-1].size == 0:
            before = self.segments[-2]
            last_offset = before.base_offset - 1
            scan = BatchScan(before.open_descriptor(), before.index().last_position(), before.size, False)
            while scan.advance():
                last_offset = scan.last_offset
            if last_offset >= self.segments[-1].base_offset:
                self._remove_segment(self.segments[-1])

    def _remove_segment(self, segment: Segment) -> None:
        logger.info("Removing the empty segment %s of a failed roll", segment.path(files.LOG_SUFFIX))
        segment.close()
        remove_empty_segment(segment)
        self.segments.remove(segment)

    # --- where to start -----------------------------------------------------------------------------------------

    def _first_to_recover(self) -> int:
        """Return the index of the first segment to scan; past the last one if there is none."""
        last = len(self.segments) - 1
        if self.is_clean:
            if self._is_tail_valid(self.segments[last]):
                return last + 1
            logger.warning("The end of %s is damaged although it was closed cleanly, recovering it", self.partition)
            self.is_clean = False
            self.was_clean = True
            return last
        while last > 0 and self.segments[last].base_offset > self.recovery_point:
            last -= 1
        return last

    def _is_tail_valid(self, segment: Segment) -> bool:
        """Return whether the last batches fill the file exactly; also finds the end offset without a scan.

        After a clean shutdown the recovery point is the end of the log, so only the end must match. Batches that were
        damaged since are found when they are read, and the batches after them stay.
        """
        self.end_offset = segment.base_offset
        if segment.size == 0:
            return True
        entry_offset, position = last_offset_entry(segment.path(files.INDEX_SUFFIX))
        if position >= segment.size or (position > 0 and not segment.is_index_entry_valid(position, entry_offset)):
            segment.rebuild_indexes("its last entry does not fit the log")
            position = segment.index().last_position()
        segment.bytes_since_index = segment.size - position
        descriptor = segment.open_descriptor()
        scan = BatchScan(descriptor, position, segment.size, False)
        is_in_order = True
        last_position = position
        while scan.advance():
            if scan.position != position or position == 0:
                is_in_order = is_in_order and self._is_next(scan, self.end_offset, segment)
            if self.end_offset == self.recovery_point > segment.base_offset:
                return False  # the log ended with the previous batch; something was written after it
            self.end_offset = scan.last_offset + 1
            self.tail_epoch = scan.leader_epoch
            last_position = scan.position
        if scan.problem is None and self.end_offset == self.recovery_point:
            return True
        if scan.problem is not None or not is_in_order or self.recovery_point > 0:
            return False
        # The recovery point is missing: only the last batch shows where the log ends.
        is_small = segment.size - last_position <= TAIL_CRC_BYTES_MAX
        return not is_small or BatchScan(descriptor, last_position, segment.size, True).advance()

    def _scan_start(self, first: int) -> tuple[int, int]:
        """Return the position in the first segment to scan, and the offset that is expected there."""
        if first == len(self.segments):
            return 0, self.end_offset
        segment = self.segments[first]
        return recovery_start(segment, self.recovery_point)

    # --- the scan -----------------------------------------------------------------------------------------------

    def _recover_from(self, first: int, position: int, offset: int) -> None:
        self.end_offset = offset
        for place in range(first, len(self.segments)):
            segment = self.segments[place]
            if place > first:
                position = 0
                offset = max(self.end_offset, segment.base_offset)
                recovery_start(segment, 0)
            if segment.base_offset < self.end_offset and place > first:
                self._truncate_at(place, 0, "it starts before the end of the segment before it")
                break
            if not self._recover_segment(place, position, offset):
                break
        if first < len(self.segments):
            self.segments[-1].write_pending()

    def _recover_segment(self, place: int, position: int, expected: int) -> bool:
        """Scan the segment from here to its end; false if it was truncated."""
        segment = self.segments[place]
        segment.verified_from = position
        segment.truncate_transactions(expected)
        gaps: list[tuple[int, int, int]] = []
        is_last = place + 1 == len(self.segments)
        offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        if not is_last:
            offset_max = min(offset_max, self.segments[place + 1].base_offset - 1)
        interval_bytes = self.settings.index_interval_bytes
        scan = BatchScan(segment.open_descriptor(), position, segment.size, True)
        while scan.advance():
            if scan.base_offset != expected:
                if scan.base_offset < expected:
                    self._truncate_at_gap(place, scan, gaps)
                    return self._truncate_at(place, scan.position, "a batch is out of order")
                if not self._is_next(scan, expected, segment):
                    return self._truncate_at(place, scan.position, "a batch does not follow the one before it")
                gaps.append((scan.position, expected, scan.base_offset))
            if scan.last_offset > offset_max:
                return self._truncate_at(place, scan.position, "an offset is too large for its segment")
            segment.index_batch(scan.position, scan.batch_bytes, scan.last_offset, scan.max_timestamp, interval_bytes)
            if scan.leader_epoch != self.epochs.latest_epoch:
                self.epochs.add_from_batch(scan.leader_epoch, scan.base_offset)
            if scan.producer_id >= 0:
                apply_producer_batch(segment, self.producers, scan)
            expected = scan.last_offset + 1
            self.end_offset = expected
        if scan.problem is not None:
            return self._truncate_at(place, scan.position, scan.problem)
        if not is_last:
            segment.seal_indexes()
        return True

    def _is_next(self, scan: BatchScan, expected: int, segment: Segment) -> bool:
        """Return whether a batch may follow:

        compaction leaves gaps between batches, but never in the active segment.
        """
        if scan.base_offset == expected:
            return True
        may_have_gaps = self.settings.is_compacted or segment is not self.segments[-1]
        return may_have_gaps and scan.base_offset > expected

    def _truncate_at_gap(self, place: int, scan: BatchScan, gaps: list[tuple[int, int, int]]) -> None:
        """Truncate at a gap.

        A batch that belongs in an earlier gap proves that the batches after that gap are misplaced.
        """
        for position, gap_start, gap_end in gaps:
            if gap_start <= scan.base_offset < gap_end:
                self._truncate_at(place, position, "batches are in the wrong order")
                raise RecoveryRestartError(self.recovery_point)

    def _truncate_at(self, place: int, position: int, problem: str) -> bool:
        """End the log here: truncate this segment and delete all later ones."""
        segment = self.segments[place]
        is_last = place + 1 == len(self.segments)
        self.has_data_loss = self.has_data_loss or not (
            is_last and (problem in UNFINISHED_WRITE or self.settings.preallocate)
        )
        lost_bytes = segment.size - position + sum(later.size for later in self.segments[place + 1 :])
        seen = DroppedBytesScan(self.end_offset)
        seen.read(segment.open_descriptor(), position, segment.size)
        for later in self.segments[place + 1 :]:
            seen.read(later.open_descriptor(), 0, later.size)
        logger.warning(
            "Truncated %d bytes of %s at position %d: %s. Lost: %s",
            lost_bytes,
            segment.path(files.LOG_SUFFIX),
            position,
            problem,
            describe_loss(self.end_offset, seen, self.end_offset_min()),
        )
        self.known_end = max(self.end_offset_min(), seen.end_offset)
        self.is_loss_logged = True
        truncate_segment(segment, position, self.end_offset)
        for later in self.segments[place + 1 :]:
            later.close()
            later.rename_to_deleted()
            later.remove_deleted()
        del self.segments[place + 1 :]
        return False

    def end_offset_min(self) -> int:
        """Return the highest end offset that checkpoints, snapshots and segment names prove."""
        ends = (self.recovery_point, self.high_watermark, self.segments[-1].base_offset, self.known_end)
        return max(*ends, *self.folder.snapshots)

    def _log_missing_end(self) -> None:
        """Log a missing end: a file that was shortened between two batches looks intact."""
        if self.end_offset_min() > self.end_offset and not self.is_loss_logged:
            logger.warning(
                "%s ends at offset %d. Lost: %s",
                self.partition,
                self.end_offset,
                describe_loss(self.end_offset, DroppedBytesScan(self.end_offset), self.end_offset_min()),
            )

    # --- the result ---------------------------------------------------------------------------------------------

    def _make_log(self, pool: DescriptorPool, snapshot_offset: int) -> Log:
        if self.log_start_offset > self.end_offset:
            logger.warning(
                "The start offset %d of %s is past its end %d, using the first segment's",
                self.log_start_offset,
                self.partition,
                self.end_offset,
            )
            self.log_start_offset = self.segments[0].base_offset
        for offset in self.folder.snapshots:
            if offset > self.end_offset:  # it describes records that were removed
                files.remove_if_exists(files.segment_path(self.directory, offset, files.SNAPSHOT_SUFFIX))
        self.epochs.truncate_from_end(self.end_offset)
        # otherwise the next start must detect the loss again, unless it is repaired by then
        if self.lost_start_offset < 0:
            self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.remove_expired(self.now_ms)
        log = Log(
            self.partition,
            self.directory,
            self.settings,
            pool,
            self.segments,
            end_offset=self.end_offset,
            log_start_offset=self.log_start_offset,
            recovery_point=self.end_offset if self.is_clean else min(self.recovery_point, self.end_offset),
            epochs=self.epochs,
            producers=self.producers if self.producers.by_id else None,
            producer_expiration_ms=self.producers.expiration_ms,
            topic_id=self._load_topic_id(),
        )
        log.producer_state.snapshot_offset = snapshot_offset
        log.lost_start_offset = self.lost_start_offset
        self._log_missing_end()
        has_lost_end = self.was_clean or self.recovery_point > self.end_offset
        log.has_data_loss = self.has_data_loss or has_lost_end or self.lost_start_offset >= 0
        for segment, following in pairwise(self.segments):
            segment.next_base_offset = following.base_offset
        for segment in self.segments:
            segment.move_to_pool(pool)
        return log


def apply_producer_batch(segment: Segment, producers: ProducerStates, scan: BatchScan) -> None:
    """Apply a batch; an abort marker adds an entry to the segment's transaction index."""
    first_offset = apply_batch(producers, scan)
    if first_offset >= 0:
        segment.add_aborted(aborted_transaction(producers, scan.producer_id, first_offset, scan.last_offset))


MAGIC_POSITION: Final = 16
MAGIC_BYTE: Final = b"\x02"
CHUNK_BYTES: Final = 1 << 20
SEARCHED_BYTES_MAX: Final = 64 << 20  # bytes of damage that are searched


class DroppedBytesScan:
    """Scans dropped bytes for later batches, to report which offsets are lost.

    Valid batches after the damage show the exact loss. They are searched by a plausible header and then the CRC,
    because the length of a corrupt batch is unknown. `end_offset` is the highest end offset that was found.
    """

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.is_exact = False  # the dropped bytes end with a batch, or with the start of one
        self._bytes_left = SEARCHED_BYTES_MAX

    def read(self, descriptor: int, position: int, size: int) -> None:
        while position >= 0:
            scan = BatchScan(descriptor, position, size, True)
            while scan.advance():
                self._extend_to(scan)
            self.is_exact = scan.problem is None
            if self.is_exact:
                return
            if scan.problem in UNFINISHED_WRITE and scan.base_offset == self.end_offset <= scan.last_offset:
                self._extend_to(scan)  # an unfinished write of a crash
                self.is_exact = True
            position = self._next_batch(descriptor, scan.position + 1, size)

    def _extend_to(self, scan: BatchScan) -> None:
        if self.end_offset <= scan.last_offset:
            self.end_offset = scan.last_offset + 1

    def _next_batch(self, descriptor: int, position: int, size: int) -> int:
        """Return the position of the next valid batch; -1 if there is none."""
        while self._bytes_left > 0 and size - position >= HEADER_BYTES:
            chunk = os.pread(descriptor, CHUNK_BYTES + HEADER_BYTES, position)
            place = chunk.find(MAGIC_BYTE, MAGIC_POSITION)
            while 0 <= place - MAGIC_POSITION <= min(CHUNK_BYTES, len(chunk) - HEADER_BYTES):
                start = place - MAGIC_POSITION
                if self._is_plausible_header(chunk, start, size - position - start):
                    scan = BatchScan(descriptor, position + start, size, True)
                    if scan.advance():
                        return position + start
                place = chunk.find(MAGIC_BYTE, place + 1)
            self._bytes_left -= CHUNK_BYTES
            position += CHUNK_BYTES
        return -1

    def _is_plausible_header(self, chunk: bytes, start: int, bytes_left: int) -> bool:
        header = BatchHeader(HEADER.unpack_from(chunk, start))
        is_in_file = HEADER_BYTES <= header.batch_bytes <= bytes_left
        is_in_order = 0 <= header.base_offset - self.end_offset <= RELATIVE_OFFSET_MAX
        return is_in_file and is_in_order and 0 <= header.record_count <= header.last_offset_delta + 1

    def __repr__(self) -> str:
        return f"<DroppedBytesScan up to {'' if self.is_exact else 'at least '}{self.end_offset}>"


def describe_loss(first_offset: int, seen: DroppedBytesScan, end_offset_min: int) -> str:
    """Return the lost offsets, for the log: as found in the dropped bytes, or more if other files prove more."""
    last_offset = max(seen.end_offset, end_offset_min) - 1
    if last_offset < first_offset:
        return "no known offset"
    is_exact = seen.is_exact and end_offset_min <= seen.end_offset
    return f"offsets {first_offset} to {'' if is_exact else 'at least '}{last_offset}"
