"""Opening the log of a partition: quick after a clean stop, with a full check of the tail after any other.

After a clean stop nothing is scanned, only the last batches are looked at. Otherwise everything from the recovery point
on is read: the first byte that is not part of a whole, sound batch in the right order ends the log, and what follows is
cut away with a line that says so. Indexes, producers and leader epochs are rebuilt in the same pass. Whatever lies
below the recovery point is checked when it is served for the first time (verification.py).

Everything here may run in any thread: the log belongs to nobody else until open_log returns.
"""

from __future__ import annotations

import logging
import uuid
from itertools import pairwise
from typing import Final

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.storage import files
from ottla.storage.checkpoints import CheckpointError
from ottla.storage.cutting import cut_segment, trusted_start
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.epochs import LeaderEpochs, load_epochs
from ottla.storage.folder import Folder, read_folder
from ottla.storage.index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES, last_offset_entry
from ottla.storage.log import Log
from ottla.storage.losses import LossScan, told_loss
from ottla.storage.partition_metadata import read_topic_id
from ottla.storage.producers import Producers
from ottla.storage.replay import aborted_by, epochs_fit, load_producers, note_producer, replay_epochs
from ottla.storage.scan import UNFINISHED, BatchScan
from ottla.storage.segment import Segment, create_segment, remove_empty_segment
from ottla.storage.transaction_index import TransactionIndexError

logger = logging.getLogger("ottla.storage.recovery")

TAIL_CRC_BYTES_MAX: Final = 1 << 20


class StartAgainError(Exception):
    """What was found on the way calls for another attempt that reads from this recovery point on."""

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
    """The log in this folder, put right where it was damaged. The high watermark only tells how far it once reached."""
    has_lost = False
    known_end = 0
    is_loss_told = False
    while True:
        opening = Opening(
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
            log.has_lost = log.has_lost or has_lost
            return log
        except StartAgainError as again:
            has_lost = True
            is_clean = False
            recovery_point = again.recovery_point
            known_end = opening.known_end
            is_loss_told = opening.is_loss_told
        finally:
            opening.close_files()


class Opening:
    """One attempt to open a log: the state that is built up on the way."""

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
        self.was_clean = False  # it was closed cleanly, and damaged afterwards
        self.known_end = known_end  # an earlier attempt has seen that the log reached so far
        self.is_loss_told = is_loss_told
        self.has_lost = False  # more than the unfinished write of a crash
        self.lost_offset = -1  # from here to the first segment everything is gone
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.now_ms = now_ms
        # Not the broker's pool: this thread must not close files that another one uses.
        self.pool = DescriptorPool()
        self.folder: Folder = read_folder(directory)
        self.unindexed: list[Segment] = []  # had no index files: that of its transactions may be gone with them
        self.segments: list[Segment] = [self._found_segment(base_offset) for base_offset in self.folder.segments]
        self.producers = Producers(producer_expiration_ms)
        self.epochs = LeaderEpochs(directory)
        self.end_offset = 0
        self.tail_epoch = -1  # of the last batch, after a clean stop

    def run(self, pool: DescriptorPool) -> Log:
        if not self.segments:
            self.segments.append(create_segment(self.directory, self.log_start_offset, self.pool, self.now_ms))
        self._drop_leftovers()
        self._check_transaction_indexes()
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        first = self._first_to_recover()
        start_position, start_offset = self._scan_start(first)
        snapshot_offset = self._load_producers(start_offset)
        self.epochs = self._load_epochs()
        self._note_lost_start()
        self._recover_from(first, start_position, start_offset)
        is_point_wrong = self.recovery_point > self.end_offset and not self.was_clean
        if is_point_wrong and not self.is_clean and start_position > 0:
            # The recovery point cannot be right, or synced bytes are gone: trust nothing in this segment.
            self.known_end = self.end_offset_min()
            raise StartAgainError(self.segments[-1].base_offset)
        return self._make_log(pool, snapshot_offset)

    def close_files(self) -> None:
        """Whatever happened: nothing stays open in the pool of this thread."""
        for segment in self.pool.take_all():
            segment.close()

    # --- what is there ------------------------------------------------------------------------------------------

    def _found_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self.folder.size(base_offset, files.LOG_SUFFIX), self.pool)
        segment.created_ms = self.now_ms
        index_bytes = self.folder.size(base_offset, files.INDEX_SUFFIX)
        time_index_bytes = self.folder.size(base_offset, files.TIME_INDEX_SUFFIX)
        if index_bytes < 0 or time_index_bytes < 0:
            if segment.size:
                segment.rebuild_indexes("an index file is missing")
                self.unindexed.append(segment)
            else:
                files.create_empty(segment.path(files.INDEX_SUFFIX))
                files.create_empty(segment.path(files.TIME_INDEX_SUFFIX))
        elif index_bytes % OFFSET_ENTRY_BYTES or time_index_bytes % TIME_ENTRY_BYTES:
            segment.rebuild_indexes("its size is not a multiple of the size of an entry")
        segment.has_transactions = self.folder.size(base_offset, files.TRANSACTION_INDEX_SUFFIX) >= 0
        return segment

    def _check_transaction_indexes(self) -> None:
        for segment in self.segments:
            if segment in self.unindexed:
                self._rebuild_transactions(segment)
            elif segment.has_transactions:
                try:
                    segment.transactions()
                except TransactionIndexError as error:
                    logger.warning("Found a corrupted transaction index (%s), rebuilding it from the log", error)
                    self._rebuild_transactions(segment)

    def _rebuild_transactions(self, segment: Segment) -> None:
        """Transactions may have begun in earlier segments: the producers tell which are under way."""
        producers = Producers(self.producers.expiration_ms)
        files.remove_if_there(segment.path(files.TRANSACTION_INDEX_SUFFIX))
        segment.has_transactions = False
        load_producers(self.directory, self.folder.snapshots, self.segments, producers, segment.base_offset)
        scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
        while scan.advance():
            if scan.producer_id >= 0:
                note_batch_of_producer(segment, producers, scan)
        segment.write_pending()

    def _load_epochs(self) -> LeaderEpochs:
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
        elif epochs.entries and self._distrusts(epochs) and not epochs_fit(epochs, self.segments, self._known_end()):
            logger.warning("The leader epoch file %s does not fit the log, rebuilding it", epochs.path())
            epochs = replay_epochs(self.directory, self.segments)
        return epochs

    def _known_end(self) -> int:
        """Where the log ends if it was closed cleanly; else the end of what no scan will read."""
        return self.end_offset if self.is_clean else self.recovery_point

    def _distrusts(self, epochs: LeaderEpochs) -> bool:
        """After a clean stop the last batch alone is compared, which was looked at anyway."""
        if not self.is_clean:
            return True
        latest = max((epoch for epoch, start_offset in epochs.entries if start_offset < self.end_offset), default=-1)
        return self.tail_epoch not in (-1, latest)

    def _note_lost_start(self) -> None:
        """Whoever deletes the oldest segments notes the new start in the epochs first: else nobody has deleted them."""
        first_offset = self.segments[0].base_offset
        if self.epochs.entries and self.epochs.entries[0][1] < first_offset:
            self.lost_offset = self.epochs.entries[0][1]
            logger.error(
                "%s began at offset %d, and its first segment begins at %d now: the files before it are gone",
                self.partition,
                self.lost_offset,
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

    def _drop_leftovers(self) -> None:
        """Empty segments of a roll that failed half-way: the log went on in the segment before."""
        for segment in [segment for segment in self.segments[1:-1] if segment.size == 0]:
            self._drop(segment)
        if len(self.segments) > 1 and self.segments[-1].size == 0:
            before = self.segments[-2]
            last_offset = before.base_offset - 1
            scan = BatchScan(before.open_descriptor(), before.index().last_position(), before.size, False)
            while scan.advance():
                last_offset = scan.last_offset
            if last_offset >= self.segments[-1].base_offset:
                self._drop(self.segments[-1])

    def _drop(self, segment: Segment) -> None:
        logger.info("Removing %s, an empty segment in the way of others", segment.path(files.LOG_SUFFIX))
        segment.close()
        remove_empty_segment(segment)
        self.segments.remove(segment)

    # --- where to start -----------------------------------------------------------------------------------------

    def _first_to_recover(self) -> int:
        """Index of the first segment whose bytes must be read; past the last one if none must."""
        last = len(self.segments) - 1
        if self.is_clean:
            if self._tail_is_sound(self.segments[last]):
                return last + 1
            logger.warning("The end of %s is damaged although it was closed cleanly, recovering it", self.partition)
            self.is_clean = False
            self.was_clean = True
            return last
        while last > 0 and self.segments[last].base_offset > self.recovery_point:
            last -= 1
        return last

    def _tail_is_sound(self, segment: Segment) -> bool:
        """Whether the last batches fill the file to its end; finds the end offset on the way, without a scan.

        After a clean stop the recovery point is the end of the log. Then only the end has to fit: a batch that was
        damaged since is found when it is read, and the batches behind it stay.
        """
        self.end_offset = segment.base_offset
        if segment.size == 0:
            return True
        entry_offset, position = last_offset_entry(segment.path(files.INDEX_SUFFIX))
        if position >= segment.size or (position > 0 and not segment.is_true_entry(position, entry_offset)):
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
                return False  # the log ended with the batch before this one; somebody wrote behind it
            self.end_offset = scan.last_offset + 1
            self.tail_epoch = scan.leader_epoch
            last_position = scan.position
        if scan.problem is None and self.end_offset == self.recovery_point:
            return True
        if scan.problem is not None or not is_in_order or self.recovery_point > 0:
            return False
        # The recovery point was lost: the last batch alone tells where the log ends.
        is_small = segment.size - last_position <= TAIL_CRC_BYTES_MAX
        return not is_small or BatchScan(descriptor, last_position, segment.size, True).advance()

    def _scan_start(self, first: int) -> tuple[int, int]:
        """Position in the first segment to recover, and the offset that is expected there."""
        if first == len(self.segments):
            return 0, self.end_offset
        segment = self.segments[first]
        return trusted_start(segment, self.recovery_point)

    # --- the scan -----------------------------------------------------------------------------------------------

    def _recover_from(self, first: int, position: int, offset: int) -> None:
        self.end_offset = offset
        for place in range(first, len(self.segments)):
            segment = self.segments[place]
            if place > first:
                position = 0
                offset = max(self.end_offset, segment.base_offset)
                trusted_start(segment, 0)
            if segment.base_offset < self.end_offset and place > first:
                self._cut(place, 0, "it starts before the end of the segment before it")
                break
            if not self._recover_segment(place, position, offset):
                break
        if first < len(self.segments):
            self.segments[-1].write_pending()

    def _recover_segment(self, place: int, position: int, expected: int) -> bool:
        """Read the segment from here to its end; False if it had to be cut."""
        segment = self.segments[place]
        segment.verified_from = position
        segment.cut_transactions(expected)
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
                    self._cut_at_gap(place, scan, gaps)
                    return self._cut(place, scan.position, "a batch stands out of order")
                if not self._is_next(scan, expected, segment):
                    return self._cut(place, scan.position, "a batch does not follow the one before it")
                gaps.append((scan.position, expected, scan.base_offset))
            if scan.last_offset > offset_max:
                return self._cut(place, scan.position, "an offset is too large for its segment")
            segment.note_batch(scan.position, scan.batch_bytes, scan.last_offset, scan.max_timestamp, interval_bytes)
            if scan.leader_epoch != self.epochs.latest_epoch:
                self.epochs.replay(scan.leader_epoch, scan.base_offset)
            if scan.producer_id >= 0:
                note_batch_of_producer(segment, self.producers, scan)
            expected = scan.last_offset + 1
            self.end_offset = expected
        if scan.problem is not None:
            return self._cut(place, scan.position, scan.problem)
        if not is_last:
            segment.seal_indexes()
        return True

    def _is_next(self, scan: BatchScan, expected: int, segment: Segment) -> bool:
        """Compaction leaves gaps between batches, but never in the segment that is written to."""
        if scan.base_offset == expected:
            return True
        may_have_gaps = self.settings.is_compacted or segment is not self.segments[-1]
        return may_have_gaps and scan.base_offset > expected

    def _cut_at_gap(self, place: int, scan: BatchScan, gaps: list[tuple[int, int, int]]) -> None:
        """A batch that belongs into an earlier gap proves that what follows the gap came too early: swapped blocks."""
        for position, gap_start, gap_end in gaps:
            if gap_start <= scan.base_offset < gap_end:
                self._cut(place, position, "batches stand in the wrong order")
                raise StartAgainError(self.recovery_point)

    def _cut(self, place: int, position: int, problem: str) -> bool:
        """End the log here: drop the rest of this segment and all later ones."""
        segment = self.segments[place]
        is_last = place + 1 == len(self.segments)
        self.has_lost = self.has_lost or not (is_last and (problem in UNFINISHED or self.settings.preallocate))
        lost_bytes = segment.size - position + sum(later.size for later in self.segments[place + 1 :])
        seen = LossScan(self.end_offset)
        seen.read(segment.open_descriptor(), position, segment.size)
        for later in self.segments[place + 1 :]:
            seen.read(later.open_descriptor(), 0, later.size)
        logger.warning(
            "Cut %d bytes from %s at position %d: %s. Lost: %s",
            lost_bytes,
            segment.path(files.LOG_SUFFIX),
            position,
            problem,
            told_loss(self.end_offset, seen, self.end_offset_min()),
        )
        self.known_end = max(self.end_offset_min(), seen.end_offset)
        self.is_loss_told = True
        cut_segment(segment, position, self.end_offset)
        for later in self.segments[place + 1 :]:
            later.close()
            later.rename_to_deleted()
            later.remove_deleted()
        del self.segments[place + 1 :]
        return False

    def end_offset_min(self) -> int:
        """So far the log reached, as other files tell: checkpoints, snapshots, the names of segments."""
        ends = (self.recovery_point, self.high_watermark, self.segments[-1].base_offset, self.known_end)
        return max(*ends, *self.folder.snapshots)

    def _tell_missing_end(self) -> None:
        """Files that were shortened between two batches look whole: other files may know better."""
        if self.end_offset_min() > self.end_offset and not self.is_loss_told:
            logger.warning(
                "%s ends at offset %d. Lost: %s",
                self.partition,
                self.end_offset,
                told_loss(self.end_offset, LossScan(self.end_offset), self.end_offset_min()),
            )

    # --- the result ---------------------------------------------------------------------------------------------

    def _make_log(self, pool: DescriptorPool, snapshot_offset: int) -> Log:
        if self.log_start_offset > self.end_offset:
            logger.warning(
                "The start offset %d of %s lies past its end %d, using the first segment's",
                self.log_start_offset,
                self.partition,
                self.end_offset,
            )
            self.log_start_offset = self.segments[0].base_offset
        for offset in self.folder.snapshots:
            if offset > self.end_offset:  # it describes records that are gone
                files.remove_if_there(files.segment_path(self.directory, offset, files.SNAPSHOT_SUFFIX))
        self.epochs.truncate_from_end(self.end_offset)
        if self.lost_offset < 0:  # else the next start must find out, too, unless this one can mend it
            self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.forget_expired(self.now_ms)
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
        log.snapshot_offset = snapshot_offset
        log.lost_offset = self.lost_offset
        self._tell_missing_end()
        has_lost_end = self.was_clean or self.recovery_point > self.end_offset
        log.has_lost = self.has_lost or has_lost_end or self.lost_offset >= 0
        for segment, following in pairwise(self.segments):
            segment.next_base_offset = following.base_offset
        for segment in self.segments:
            segment.move_to_pool(pool)
        return log


def note_batch_of_producer(segment: Segment, producers: Producers, scan: BatchScan) -> None:
    """Take in a batch; if it aborts a transaction, the segment's transaction index gets its entry."""
    first_offset = note_producer(producers, scan)
    if first_offset >= 0:
        segment.add_aborted(aborted_by(producers, scan.producer_id, first_offset, scan.last_offset))
