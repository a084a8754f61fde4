"""One segment: a piece of a partition's log with its two sparse indexes. Compiled with mypyc where possible.

The segment knows file positions; what offsets mean to clients is the log's business.

Rule 1: `size` is what has been written whole. Bytes past it (a failed write) are cut away before the next append.
Rule 2: bytes from `verified_from` on were written or checked by this process; those before it are checked (see
verification.py) before they are served.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.protocol.batches import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.index import (
    OFFSET_ENTRY_BYTES,
    PENDING_ENTRIES_MAX,
    POSITION_MASK,
    BuiltIndexes,
    OffsetIndex,
    TimeIndex,
    load_offset_index,
    load_time_index,
    truncate_path,
)
from ottla.storage.scan import HOP, HOP_BYTES, BatchScan, peek
from ottla.storage.segment_times import NOT_LOADED, UNKNOWN, load_max_timestamp
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndex, load_transaction_index

logger = logging.getLogger("ottla.storage.segment")

INDEX_INTERVAL_BYTES: Final = 4096  # of an index that is rebuilt
REBUILT_AT_ONCE_BYTES_MAX: Final = 1 << 20  # of a segment: milliseconds, even with very small batches
FILE_SUFFIXES: Final = (
    files.LOG_SUFFIX,
    files.INDEX_SUFFIX,
    files.TIME_INDEX_SUFFIX,
    files.TRANSACTION_INDEX_SUFFIX,
)

HOP_CHUNK_BYTES: Final = 4096


class RebuildNeededError(Exception):
    """The indexes of a large segment are wrong, and the reader can wait until a worker has made them anew."""

    def __init__(self, segment: Segment, why: str) -> None:
        super().__init__(why)
        self.segment = segment
        self.why = why


class Segment:
    """`<base_offset>.log` with its indexes, its timestamps and what is known about its bytes."""

    __slots__ = (
        "_index",
        "_index_bytes_counted",
        "_pool",
        "_reported_position",
        "_time_index",
        "_transactions",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "descriptor",
        "directory",
        "first_timestamp",
        "has_transactions",
        "has_unsynced_indexes",
        "index_rebuilds",
        "is_ascending",
        "is_closing",
        "is_used",
        "last_append_offset",
        "last_append_position",
        "max_timestamp",
        "max_timestamp_offset",
        "next_base_offset",
        "references",
        "roll_jitter_ms",
        "size",
        "verified_from",
        "verified_ranges",
    )

    def __init__(self, directory: str, base_offset: int, size: int, pool: DescriptorPool) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size  # what has been written whole
        self.descriptor = -1
        self.references = 0  # ranges of this file that are out
        self.is_used = False  # since the pool last looked
        self.is_closing = False
        self.next_base_offset = UNKNOWN  # of the segment that follows this one
        self.has_unsynced_indexes = False
        self.index_rebuilds = 0  # so that two who found the same damage do not mend it twice
        self.verified_from = size
        self.is_ascending: bool | None = None  # whether all offsets rise, once somebody had to know
        self.verified_ranges: list[tuple[int, int]] | None = None
        self.created_ms = 0
        self.roll_jitter_ms = 0
        self.first_timestamp = NOT_LOADED if size else UNKNOWN  # the time that rolling counts from
        self.max_timestamp = NOT_LOADED if size else UNKNOWN
        self.max_timestamp_offset = UNKNOWN
        self.bytes_since_index = 0
        self.last_append_offset = UNKNOWN
        self.last_append_position = 0
        self._pool = pool
        self._reported_position = UNKNOWN  # of a bad batch, so that it is told only once
        self._index: OffsetIndex | None = None
        self._index_bytes_counted = 0
        self._time_index: TimeIndex | None = None
        self.has_transactions = False  # whether aborted transactions end here
        self._transactions: TransactionIndex | None = None

    # --- the file -----------------------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return files.segment_path(self.directory, self.base_offset, suffix)

    def open_descriptor(self) -> int:
        """The descriptor of the log file; opens it if needed."""
        self.is_used = True
        if self.descriptor < 0:
            self.descriptor = files.open_file(self.path(files.LOG_SUFFIX), files.READ_WRITE_FLAGS)
            self._pool.add(self)
        return self.descriptor

    def make_range(self, position: int, length: int) -> FileRange:
        """Lend a piece of the file; the file stays open until the range is released."""
        descriptor = self.open_descriptor()
        if self.references == 0:
            self._pool.lent_count += 1
        self.references += 1
        return FileRange(self, descriptor, position, length)

    def release_range(self) -> None:
        assert self.references > 0, "a range was released twice"
        self.references -= 1
        if self.references == 0:
            self._pool.lent_count -= 1
            if self.is_closing:
                self.close_descriptor()

    def close_if_unused(self) -> bool:
        """Give the descriptor and what was loaded back, unless somebody reads or the disk does not take it."""
        if self.references > 0:
            return False
        try:
            self.write_pending()
        except OSError:
            return False
        self.close_descriptor()
        return True

    def close(self) -> None:
        """No more use is made of this segment. Readers may finish; nothing is written any more."""
        self.is_closing = True
        if self.references == 0:
            self.close_descriptor()

    def close_descriptor(self) -> None:
        self.forget_loaded()
        if self.descriptor >= 0:
            self._pool.discard(self)
            files.close(self.descriptor)
            self.descriptor = -1

    def rename_to_deleted(self) -> None:
        """Take the files out of the log; readers that hold a range are not disturbed."""
        for suffix in FILE_SUFFIXES:
            path = self.path(suffix)
            try:
                files.rename(path, path + files.DELETED_SUFFIX)
            except FileNotFoundError:
                continue

    def deleted_paths(self) -> list[str]:
        return [self.path(suffix) + files.DELETED_SUFFIX for suffix in FILE_SUFFIXES]

    def remove_deleted(self) -> None:
        for path in self.deleted_paths():
            files.remove_if_there(path)

    # --- appending ----------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, base_offset: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Write one batch at the end. After an OSError torn bytes may stand past `size`, nothing else."""
        if self.bytes_since_index > index_interval_bytes or self.max_timestamp == NOT_LOADED:
            self.load_indexes()  # now, because nothing may fail once the batch is written
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self.open_descriptor()
        self.is_used = True
        position = self.size
        length = len(records)
        written = files.write_at(descriptor, records, position)
        if written != length:
            files.write_whole(descriptor, records[written:], position + written)
        self.note_batch(position, length, last_offset, max_timestamp, index_interval_bytes)
        self.last_append_offset = base_offset
        self.last_append_position = position
        self.size = position + length

    def append_run(self, records: memoryview) -> int:
        """Write several batches at once; the position of the first. note_batch() of each, and `size`, are left."""
        if self._index is None or self._time_index is None or self.max_timestamp == NOT_LOADED:
            self.load_indexes()
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self.open_descriptor()
        self.is_used = True
        position = self.size
        written = files.write_at(descriptor, records, position)
        if written != len(records):
            files.write_whole(descriptor, records[written:], position + written)
        return position

    def note_batch(
        self, position: int, length: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Keep timestamps and indexes in step with a batch that stands at this position."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > index_interval_bytes:
            self._add_index_entries(last_offset, position)
        self.bytes_since_index += length

    def cut_torn_bytes(self) -> None:
        """Drop what a failed write may have left past the end."""
        if self.descriptor >= 0:
            files.truncate(self.descriptor, self.size)

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        index = self.index()
        index.append(last_offset - self.base_offset, position)
        self.bytes_since_index = 0
        if self.max_timestamp >= 0:
            self.time_index().maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        if len(index.entries) - index.written >= PENDING_ENTRIES_MAX:
            self.write_pending_if_possible()

    # --- indexes ------------------------------------------------------------------------------------------------

    def load_indexes(self) -> None:
        self.index()
        self.time_index()
        if self.max_timestamp == NOT_LOADED:
            load_max_timestamp(self)

    def index(self) -> OffsetIndex:
        """The offset index, read from its file at first use."""
        if self._index is None:
            self.open_descriptor()
            self._index = load_offset_index(self.path(files.INDEX_SUFFIX))
            self._count_index_bytes(len(self._index.entries) * OFFSET_ENTRY_BYTES)
            last_entry = self._index.entries[-1] if self._index.entries else 0
            if last_entry and not 0 < last_entry & POSITION_MASK < self.size:
                self._forget_index()
                self.rebuild_indexes("its last entry points outside of the log")
        index = self._index
        assert index is not None
        return index

    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self.open_descriptor()
            self._time_index = load_time_index(self.path(files.TIME_INDEX_SUFFIX))
        return self._time_index

    def transactions(self) -> TransactionIndex:
        """The aborted transactions, read from their file at first use."""
        if self._transactions is None:
            self.open_descriptor()
            path = self.path(files.TRANSACTION_INDEX_SUFFIX)
            self._transactions = load_transaction_index(path, self.base_offset)
        return self._transactions

    def known_transactions(self) -> TransactionIndex:
        """The same for any thread: without a trace in this segment."""
        loaded = self._transactions
        if loaded is not None:
            return loaded
        return load_transaction_index(self.path(files.TRANSACTION_INDEX_SUFFIX), self.base_offset)

    def replace_transactions(self, entries: list[AbortedTransaction]) -> None:
        """Go on with entries that were read from the log, because the file cannot be right."""
        self.open_descriptor()
        path = self.path(files.TRANSACTION_INDEX_SUFFIX)
        files.remove_if_there(path)
        self.has_transactions = bool(entries)
        self.has_unsynced_indexes = True
        self._transactions = TransactionIndex(entries, 0) if entries else None
        self.write_pending_if_possible()

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Note a transaction whose abort marker was just written."""
        if not self.has_transactions:
            self.has_transactions = True
            self._transactions = TransactionIndex([], 0)
        self.transactions().append(entry)
        self.write_pending_if_possible()

    def cut_transactions(self, offset: int) -> None:
        """Forget the transactions that were aborted at or after this offset."""
        if self.has_transactions:
            self.transactions().cut(offset, self.path(files.TRANSACTION_INDEX_SUFFIX))

    def replace_time_index(self, time_index: TimeIndex) -> None:
        """Go on with a time index that was cut; the largest timestamp is what its last entry says."""
        self._time_index = time_index
        self.has_unsynced_indexes = True
        self.max_timestamp = time_index.last_timestamp
        self.max_timestamp_offset = self.base_offset + time_index.last_relative_offset

    def is_index_full(self, segment_index_bytes: int) -> bool:
        if self._index is None:
            return False  # nothing was added since it was loaded last; the next entry loads it
        offset_entries_max = segment_index_bytes // OFFSET_ENTRY_BYTES
        time_entries_max = segment_index_bytes // 12 - 1  # one is kept for the last entry on roll
        if len(self._index.entries) >= offset_entries_max:
            return True
        return self._time_index is not None and self._time_index.count >= time_entries_max

    def write_pending(self) -> None:
        """Bring both index files up to date."""
        if self._index is not None and len(self._index.entries) > self._index.written:
            self._index.write_pending(self.path(files.INDEX_SUFFIX))
            self._count_index_bytes(len(self._index.entries) * OFFSET_ENTRY_BYTES)
            self.has_unsynced_indexes = True
        if self._time_index is not None and self._time_index.pending:
            self._time_index.write_pending(self.path(files.TIME_INDEX_SUFFIX))
            self.has_unsynced_indexes = True
        transactions = self._transactions
        if transactions is not None and transactions.write_pending(self.path(files.TRANSACTION_INDEX_SUFFIX)):
            self.has_unsynced_indexes = True

    def seal_indexes(self) -> None:
        """On roll and on close the largest timestamp gets its entry, as Kafka does; then all entries are written."""
        if self.max_timestamp >= 0:
            self.time_index().maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.write_pending()

    def rebuild_indexes(self, why: str) -> None:
        """Make both indexes anew from the batch headers, because the files cannot be right."""
        if self._pool.defers_rebuilds and self.size > REBUILT_AT_ONCE_BYTES_MAX:
            raise RebuildNeededError(self, why)
        self.tell_rebuild(why)
        self.install_indexes(BuiltIndexes(self.open_descriptor(), self.size, self.base_offset, INDEX_INTERVAL_BYTES))

    def tell_rebuild(self, why: str) -> None:
        path = self.path(files.INDEX_SUFFIX)
        logger.warning("Found a corrupted index file %s (%s), rebuilding both indexes from the log", path, why)

    def install_indexes(self, built: BuiltIndexes) -> None:
        """Go on with new indexes. They may know less than all of the segment, if it has grown since they were begun."""
        self._empty_index_files()
        self._index = built.offsets
        self._time_index = built.times
        if built.size >= self.size or built.max_timestamp > self.max_timestamp:
            self.max_timestamp = built.max_timestamp
            self.max_timestamp_offset = built.max_timestamp_offset
        self.bytes_since_index = self.size - built.offsets.last_position()
        self.has_unsynced_indexes = True
        self.index_rebuilds += 1
        self._count_index_bytes(len(built.offsets.entries) * OFFSET_ENTRY_BYTES)
        self.write_pending_if_possible()

    def write_pending_if_possible(self) -> bool:
        """On a full disk the entries stay in memory; whoever needs them in the file will try again."""
        try:
            self.write_pending()
        except OSError as error:
            if not files.is_passing(error):
                raise
            logger.warning("Cannot write the indexes of %s: %s", self.path(files.LOG_SUFFIX), error)
            return False
        return True

    def _empty_index_files(self) -> None:
        for suffix in (files.INDEX_SUFFIX, files.TIME_INDEX_SUFFIX):
            truncate_path(self.path(suffix), 0)

    def forget_loaded(self) -> None:
        self._count_index_bytes(0)
        self._index = None
        self._time_index = None
        self._transactions = None

    def _forget_index(self) -> None:
        self._count_index_bytes(0)
        self._index = None

    def _count_index_bytes(self, count: int) -> None:
        self._pool.index_bytes += count - self._index_bytes_counted
        self._index_bytes_counted = count

    # --- finding ------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, int]:
        """Position and length of the first batch that ends at or after this offset; (size, 0) if there is none.

        Offsets stand outside of the checksum, and an index may be damaged: neither may make a reader skip records.
        """
        if offset == self.last_append_offset:
            return self.last_append_position, self.size - self.last_append_position
        if self.size <= HOP_CHUNK_BYTES:
            return self._hop(offset, 0, UNKNOWN)
        index = self.index()
        relative_offset = offset - self.base_offset
        place = index.lookup(relative_offset)
        for candidate in range(place, max(place - 2, -1), -1):
            entry = index.entries[candidate]
            is_before = entry >> 32 <= relative_offset  # always, unless the index is damaged
            if is_before and self.is_true_entry(entry & POSITION_MASK, entry >> 32):
                return self._hop(offset, entry & POSITION_MASK, self.base_offset + (entry >> 32))
        if place > 0:
            self.rebuild_indexes(f"entry {place} does not fit the log")
        return self._hop(offset, 0, UNKNOWN)

    def _hop(self, offset: int, position: int, known_offset: int) -> tuple[int, int]:
        """Go from batch to batch, from a position that is the start of one.

        If the index led here, it says that one of the batches ends with `known_offset`.
        """
        descriptor = self.open_descriptor()
        size = self.size
        chunk = b""
        chunk_start = 0
        last_offset = self.base_offset - 1
        bad_position = UNKNOWN  # of a batch that stands out of order
        start = previous_position = position
        while position < size:
            place = position - chunk_start
            if place + HOP_BYTES > len(chunk):
                chunk = os.pread(descriptor, HOP_CHUNK_BYTES, position)
                chunk_start = position
                place = 0
                if len(chunk) < HEADER_BYTES:
                    raise self.corrupt(position)
            base_offset, length, magic, last_offset_delta = HOP.unpack_from(chunk, place)
            batch_bytes: int = length + LENGTH_PREFIX_BYTES
            if batch_bytes < HEADER_BYTES or position + batch_bytes > size or magic != MAGIC:
                raise self.corrupt(position)
            if base_offset <= last_offset:
                bad_position = position
            last_offset = base_offset + last_offset_delta
            if last_offset == known_offset:
                known_offset = UNKNOWN
            if last_offset >= offset:
                if base_offset <= offset:
                    return position, batch_bytes
                if self._is_before_next(last_offset, position + batch_bytes):
                    break
                bad_position = position
            previous_position = position
            position += batch_bytes
        # The offset itself is not there. That is right if compaction took it away, but not if damage hides it.
        if bad_position == UNKNOWN and known_offset != UNKNOWN:
            bad_position = start
        self._refuse_damage(bad_position, previous_position)
        return (position, batch_bytes) if position < size else (size, 0)

    def _refuse_damage(self, bad_position: int, previous_position: int) -> None:
        if bad_position == UNKNOWN and not self._is_sound(previous_position):
            bad_position = previous_position
        if bad_position != UNKNOWN:
            raise self.corrupt(bad_position)

    def _is_sound(self, position: int) -> bool:
        """Whether the batch at this position is right, so that its length can be believed."""
        if not UNKNOWN < position < self.verified_from:
            return True
        return BatchScan(self.open_descriptor(), position, self.size, True).advance()

    def _is_before_next(self, last_offset: int, next_position: int) -> bool:
        """Whether a batch with this last offset can stand before what follows it."""
        if 0 <= self.next_base_offset <= last_offset:
            return False
        if next_position < self.size:
            next_offset = peek(self.open_descriptor(), next_position, self.size)[0]
        else:
            next_offset = self.next_base_offset
        return next_offset < 0 or last_offset < next_offset

    def is_true_entry(self, position: int, relative_offset: int) -> bool:
        """Whether an index entry can be true: a batch starts at the position and ends at or before the offset.

        Kafka 3 has one entry for several batches that a follower appended together; then the last one ends there.
        """
        base_offset, last_offset, batch_bytes = peek(self.open_descriptor(), position, self.size)
        return batch_bytes > 0 and self.base_offset <= base_offset and last_offset <= self.base_offset + relative_offset

    def corrupt(self, position: int) -> KafkaError:
        if position != self._reported_position:
            self._reported_position = position
            path = self.path(files.LOG_SUFFIX)
            logger.error("Found a corrupt batch in %s at position %d; it will not be served", path, position)
        return KafkaError(Error.CORRUPT_MESSAGE, f"The stored batch at position {position} is corrupt")

    def move_to_pool(self, pool: DescriptorPool) -> None:
        """Hand the segment over from the thread that opened it: nothing is open, and nothing pending if possible."""
        is_written = self.write_pending_if_possible()
        index = self._index
        time_index = self._time_index
        transactions = self._transactions
        self.close_descriptor()
        self._pool = pool
        if not is_written:
            self._index = index
            self._time_index = time_index
            self._transactions = transactions

    def __repr__(self) -> str:
        state = "open" if self.descriptor >= 0 else "closed"
        return f"<Segment {self.base_offset}, {self.size} bytes, {state}, {self.references} ranges out>"


def create_segment(
    directory: str, base_offset: int, pool: DescriptorPool, now_ms: int, reserved_bytes: int = 0
) -> Segment:
    """Make the three files of a new, empty segment, or none of them. A leftover of the same name is emptied.

    So much room is reserved for the log (`preallocate`).
    """
    segment = Segment(directory, base_offset, 0, pool)
    segment.created_ms = now_ms
    try:
        for suffix in (files.LOG_SUFFIX, files.INDEX_SUFFIX, files.TIME_INDEX_SUFFIX):
            with files.opened(segment.path(suffix), files.CREATE_FLAGS | os.O_TRUNC) as descriptor:
                if reserved_bytes and suffix == files.LOG_SUFFIX:
                    files.reserve(descriptor, reserved_bytes)
        files.remove_if_there(segment.path(files.TRANSACTION_INDEX_SUFFIX))
    except OSError:
        remove_empty_segment(segment)
        raise
    return segment


def remove_empty_segment(segment: Segment) -> None:
    """Remove the files of a segment that holds nothing; whatever stays is ignored when the log is opened."""
    for suffix in FILE_SUFFIXES:
        with contextlib.suppress(OSError):
            files.remove_if_there(segment.path(suffix))
