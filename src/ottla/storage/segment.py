"""One segment of a partition's log with its indexes and timestamps. Compiled with mypyc where possible.

A segment maps offsets to file positions; the log decides what clients may see.

Rule 1: `size` counts bytes that were written whole. Bytes past it (a failed write) are truncated before the next
append.
Rule 2: bytes from `verified_from` on were written or checked by this process; those before it are checked
(range_checks.py) before they are served.
Rule 3: index entries are used only where the log confirms them. Wrong or missing entries only cost a rebuild.
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
    OffsetIndex,
    RebuiltIndexes,
    TimeIndex,
    load_offset_index,
    load_time_index,
    lookup_time,
    truncate_file,
)
from ottla.storage.scan import OFFSETS_HEADER, OFFSETS_HEADER_BYTES, BatchScan, peek_header
from ottla.storage.transaction_index import AbortedTxn, TransactionIndex, load_transaction_index

logger = logging.getLogger("ottla.storage.segment")

INDEX_INTERVAL_BYTES: Final = 4096  # for a rebuilt index
INLINE_REBUILD_BYTES_MAX: Final = 1 << 20  # of a segment: milliseconds, even with very small batches
FILE_SUFFIXES: Final = (
    files.LOG_SUFFIX,
    files.INDEX_SUFFIX,
    files.TIME_INDEX_SUFFIX,
    files.TRANSACTION_INDEX_SUFFIX,
)

FIND_CHUNK_BYTES: Final = 4096


class RebuildNeededError(Exception):
    """A worker must rebuild the indexes of a large segment; the read can wait for that."""

    def __init__(self, segment: Segment, why: str) -> None:
        super().__init__(why)
        self.segment = segment
        self.why = why


class Segment:
    """`<base_offset>.log` with its indexes, its timestamps and its verified ranges."""

    __slots__ = (
        "_index",
        "_index_bytes_counted",
        "_logged_position",
        "_pool",
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
        "last_append_offset",
        "last_append_position",
        "max_timestamp",
        "max_timestamp_offset",
        "next_base_offset",
        "range_count",
        "roll_jitter_ms",
        "size",
        "verified_from",
        "verified_ranges",
        "was_used",
    )

    def __init__(self, directory: str, base_offset: int, size: int, pool: DescriptorPool) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size  # bytes that were written whole
        self.descriptor = -1
        self.range_count = 0  # active ranges of this file
        self.was_used = False  # since the last check of the pool
        self.is_closing = False
        self.next_base_offset = UNKNOWN  # of the next segment
        self.has_unsynced_indexes = False
        self.index_rebuilds = 0  # detects a rebuild by another reader of the same damage
        self.verified_from = size
        self.is_ascending: bool | None = None  # whether all offsets ascend, once computed
        self.verified_ranges: list[tuple[int, int]] | None = None
        self.created_ms = 0
        self.roll_jitter_ms = 0
        self.first_timestamp = NOT_LOADED if size else UNKNOWN  # start of the roll interval
        self.max_timestamp = NOT_LOADED if size else UNKNOWN
        self.max_timestamp_offset = UNKNOWN
        self.bytes_since_index = 0
        self.last_append_offset = UNKNOWN
        self.last_append_position = 0
        self._pool = pool
        self._logged_position = UNKNOWN  # of a corrupt batch, so that it is logged only once
        self._index: OffsetIndex | None = None
        self._index_bytes_counted = 0
        self._time_index: TimeIndex | None = None
        self.has_transactions = False  # whether it has aborted transactions
        self._transactions: TransactionIndex | None = None

    # --- the file -----------------------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return files.segment_path(self.directory, self.base_offset, suffix)

    def open_descriptor(self) -> int:
        """Return the descriptor of the log file, which is opened if needed."""
        self.was_used = True
        if self.descriptor < 0:
            self.descriptor = files.open_file(self.path(files.LOG_SUFFIX), files.READ_WRITE_FLAGS)
            self._pool.add(self)
        return self.descriptor

    def make_range(self, position: int, length: int) -> FileRange:
        """Return a range of the file, which stays open until the range is released."""
        descriptor = self.open_descriptor()
        if self.range_count == 0:
            self._pool.lent_segment_count += 1
        self.range_count += 1
        return FileRange(self, descriptor, position, length)

    def release_range(self) -> None:
        assert self.range_count > 0, "a range was released twice"
        self.range_count -= 1
        if self.range_count == 0:
            self._pool.lent_segment_count -= 1
            if self.is_closing:
                self.close_descriptor()

    def close_if_unused(self) -> bool:
        """Close the file and unload its indexes, unless it has readers or pending entries cannot be written."""
        if self.range_count > 0:
            return False
        try:
            self.write_pending()
        except OSError:
            return False
        self.close_descriptor()
        return True

    def close(self) -> None:
        """Close the segment for good. Active reads may finish; nothing is written."""
        self.is_closing = True
        if self.range_count == 0:
            self.close_descriptor()

    def close_descriptor(self) -> None:
        self.unload_indexes()
        if self.descriptor >= 0:
            self._pool.remove(self)
            files.close(self.descriptor)
            self.descriptor = -1

    def rename_to_deleted(self) -> None:
        """Rename the files; active ranges stay valid."""
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
            files.remove_if_exists(path)

    # --- appending ----------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, base_offset: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Write one batch at the end. After an OSError only torn bytes past `size` may remain."""
        if self.bytes_since_index > index_interval_bytes or self.max_timestamp == NOT_LOADED:
            self.load_indexes()  # now, because no step may fail after the batch is written
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self.open_descriptor()
        self.was_used = True
        position = self.size
        length = len(records)
        written = files.write_at(descriptor, records, position)
        if written != length:
            files.write_all(descriptor, records[written:], position + written)
        self.index_batch(position, length, last_offset, max_timestamp, index_interval_bytes)
        self.last_append_offset = base_offset
        self.last_append_position = position
        self.size = position + length

    def append_run(self, records: memoryview) -> int:
        """Write several batches at once; returns the position of the first.

        The caller calls index_batch() for each, and sets `size`.
        """
        if self._index is None or self._time_index is None or self.max_timestamp == NOT_LOADED:
            self.load_indexes()
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self.open_descriptor()
        self.was_used = True
        position = self.size
        written = files.write_at(descriptor, records, position)
        if written != len(records):
            files.write_all(descriptor, records[written:], position + written)
        return position

    def index_batch(
        self, position: int, length: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Update timestamps and indexes for a batch at this position."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > index_interval_bytes:
            self._add_index_entries(last_offset, position)
        self.bytes_since_index += length

    def truncate_torn_bytes(self) -> None:
        """Truncate bytes of a failed write past the end."""
        if self.descriptor >= 0:
            files.truncate(self.descriptor, self.size)

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        index = self.index()
        index.append(last_offset - self.base_offset, position)
        self.bytes_since_index = 0
        if self.max_timestamp >= 0:
            self.time_index().maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        if len(index.entries) - index.written_count >= PENDING_ENTRIES_MAX:
            self.write_pending_if_possible()

    # --- indexes ------------------------------------------------------------------------------------------------

    def load_indexes(self) -> None:
        self.index()
        self.time_index()
        if self.max_timestamp == NOT_LOADED:
            load_max_timestamp(self)

    def index(self) -> OffsetIndex:
        """Return the offset index, loaded at first use."""
        if self._index is None:
            self.open_descriptor()
            self._index = load_offset_index(self.path(files.INDEX_SUFFIX))
            self._count_index_bytes(len(self._index.entries) * OFFSET_ENTRY_BYTES)
            last_entry = self._index.entries[-1] if self._index.entries else 0
            if last_entry and not 0 < last_entry & POSITION_MASK < self.size:
                self._unload_offset_index()
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
        """Return the aborted transactions, loaded at first use."""
        if self._transactions is None:
            self.open_descriptor()
            path = self.path(files.TRANSACTION_INDEX_SUFFIX)
            self._transactions = load_transaction_index(path, self.base_offset)
        return self._transactions

    def read_transactions(self) -> TransactionIndex:
        """Read the aborted transactions in any thread, without changing this segment."""
        loaded = self._transactions
        if loaded is not None:
            return loaded
        return load_transaction_index(self.path(files.TRANSACTION_INDEX_SUFFIX), self.base_offset)

    def replace_transactions(self, entries: list[AbortedTxn]) -> None:
        """Replace the entries by those that were read from the log, because the file is wrong."""
        self.open_descriptor()
        path = self.path(files.TRANSACTION_INDEX_SUFFIX)
        files.remove_if_exists(path)
        self.has_transactions = bool(entries)
        self.has_unsynced_indexes = True
        self._transactions = TransactionIndex(entries, 0) if entries else None
        self.write_pending_if_possible()

    def add_aborted(self, entry: AbortedTxn) -> None:
        """Add a transaction after its abort marker was written."""
        if not self.has_transactions:
            self.has_transactions = True
            self._transactions = TransactionIndex([], 0)
        self.transactions().append(entry)
        self.write_pending_if_possible()

    def truncate_transactions(self, offset: int) -> None:
        """Remove the transactions that were aborted at or after this offset."""
        if self.has_transactions:
            self.transactions().cut(offset, self.path(files.TRANSACTION_INDEX_SUFFIX))

    def replace_time_index(self, time_index: TimeIndex) -> None:
        """Use a time index that was truncated; its last entry has the largest timestamp."""
        self._time_index = time_index
        self.has_unsynced_indexes = True
        self.max_timestamp = time_index.last_timestamp
        self.max_timestamp_offset = self.base_offset + time_index.last_relative_offset

    def is_index_full(self, segment_index_bytes: int) -> bool:
        if self._index is None:
            return False  # nothing was added since it was unloaded; the next entry loads it
        offset_entries_max = segment_index_bytes // OFFSET_ENTRY_BYTES
        time_entries_max = segment_index_bytes // 12 - 1  # one is reserved for the last entry on roll
        if len(self._index.entries) >= offset_entries_max:
            return True
        return self._time_index is not None and self._time_index.count >= time_entries_max

    def write_pending(self) -> None:
        """Write pending entries of all indexes."""
        if self._index is not None and len(self._index.entries) > self._index.written_count:
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
        """Add the largest timestamp to the time index on roll and on close, as Kafka does, and write all entries."""
        if self.max_timestamp >= 0:
            self.time_index().maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.write_pending()

    def rebuild_indexes(self, why: str) -> None:
        """Rebuild both indexes from the batch headers, because the files are wrong."""
        if self._pool.defers_index_rebuilds and self.size > INLINE_REBUILD_BYTES_MAX:
            raise RebuildNeededError(self, why)
        self.log_index_rebuild(why)
        self.replace_indexes(RebuiltIndexes(self.open_descriptor(), self.size, self.base_offset, INDEX_INTERVAL_BYTES))

    def log_index_rebuild(self, why: str) -> None:
        path = self.path(files.INDEX_SUFFIX)
        logger.warning("Found a corrupted index file %s (%s), rebuilding both indexes from the log", path, why)

    def replace_indexes(self, built: RebuiltIndexes) -> None:
        """Use new indexes. They may not cover records that were appended since their build started."""
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
        """Write pending entries. On a full disk they stay in memory, and a later call tries again."""
        try:
            self.write_pending()
        except OSError as error:
            if not files.is_transient(error):
                raise
            logger.warning("Cannot write the indexes of %s: %s", self.path(files.LOG_SUFFIX), error)
            return False
        return True

    def _empty_index_files(self) -> None:
        for suffix in (files.INDEX_SUFFIX, files.TIME_INDEX_SUFFIX):
            truncate_file(self.path(suffix), 0)

    def unload_indexes(self) -> None:
        self._count_index_bytes(0)
        self._index = None
        self._time_index = None
        self._transactions = None

    def _unload_offset_index(self) -> None:
        self._count_index_bytes(0)
        self._index = None

    def _count_index_bytes(self, count: int) -> None:
        self._pool.index_bytes += count - self._index_bytes_counted
        self._index_bytes_counted = count

    # --- finding ------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, int]:
        """Return position and length of the first batch that ends at or after this offset; (size, 0) if there is none.

        The CRC does not cover offsets, and an index may be damaged: neither may make a reader skip records.
        """
        if offset == self.last_append_offset:
            return self.last_append_position, self.size - self.last_append_position
        if self.size <= FIND_CHUNK_BYTES:
            return self._find_from(offset, 0, UNKNOWN)
        index = self.index()
        relative_offset = offset - self.base_offset
        place = index.lookup(relative_offset)
        for candidate in range(place, max(place - 2, -1), -1):
            entry = index.entries[candidate]
            is_before = entry >> 32 <= relative_offset  # always true, unless the index is damaged
            if is_before and self.is_index_entry_valid(entry & POSITION_MASK, entry >> 32):
                return self._find_from(offset, entry & POSITION_MASK, self.base_offset + (entry >> 32))
        if place > 0:
            self.rebuild_indexes(f"entry {place} does not fit the log")
        return self._find_from(offset, 0, UNKNOWN)

    def _find_from(self, offset: int, position: int, known_offset: int) -> tuple[int, int]:
        """Scan from a position that is the start of a batch.

        If an index entry led here, one of the batches must end with `known_offset`.
        """
        descriptor = self.open_descriptor()
        size = self.size
        chunk = b""
        chunk_start = 0
        last_offset = self.base_offset - 1
        bad_position = UNKNOWN  # of a batch that is out of order
        start = previous_position = position
        while position < size:
            place = position - chunk_start
            if place + OFFSETS_HEADER_BYTES > len(chunk):
                chunk = os.pread(descriptor, FIND_CHUNK_BYTES, position)
                chunk_start = position
                place = 0
                if len(chunk) < HEADER_BYTES:
                    raise self.corrupt_error(position)
            base_offset, length, magic, last_offset_delta = OFFSETS_HEADER.unpack_from(chunk, place)
            batch_bytes: int = length + LENGTH_PREFIX_BYTES
            if batch_bytes < HEADER_BYTES or position + batch_bytes > size or magic != MAGIC:
                raise self.corrupt_error(position)
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
        # The offset itself is missing. Compaction may have removed it, but damage must not hide it.
        if bad_position == UNKNOWN and known_offset != UNKNOWN:
            bad_position = start
        self._raise_if_corrupt(bad_position, previous_position)
        return (position, batch_bytes) if position < size else (size, 0)

    def _raise_if_corrupt(self, bad_position: int, previous_position: int) -> None:
        if bad_position == UNKNOWN and not self._is_batch_valid(previous_position):
            bad_position = previous_position
        if bad_position != UNKNOWN:
            raise self.corrupt_error(bad_position)

    def _is_batch_valid(self, position: int) -> bool:
        """Return whether the batch at this position is valid, so that its length is correct."""
        if not UNKNOWN < position < self.verified_from:
            return True
        return BatchScan(self.open_descriptor(), position, self.size, True).advance()

    def _is_before_next(self, last_offset: int, next_position: int) -> bool:
        """Return whether a batch with this last offset can precede the next one."""
        if 0 <= self.next_base_offset <= last_offset:
            return False
        if next_position < self.size:
            next_offset = peek_header(self.open_descriptor(), next_position, self.size)[0]
        else:
            next_offset = self.next_base_offset
        return next_offset < 0 or last_offset < next_offset

    def is_index_entry_valid(self, position: int, relative_offset: int) -> bool:
        """Return whether an index entry can be valid: a batch starts at the position and ends at or before the offset.

        Kafka 3 has one entry for several batches that a follower appended together; the last of them ends at the
        offset.
        """
        base_offset, last_offset, batch_bytes = peek_header(self.open_descriptor(), position, self.size)
        return batch_bytes > 0 and self.base_offset <= base_offset and last_offset <= self.base_offset + relative_offset

    def corrupt_error(self, position: int) -> KafkaError:
        if position != self._logged_position:
            self._logged_position = position
            path = self.path(files.LOG_SUFFIX)
            logger.error("Found a corrupt batch in %s at position %d; it will not be served", path, position)
        return KafkaError(Error.CORRUPT_MESSAGE, f"The stored batch at position {position} is corrupt")

    def move_to_pool(self, pool: DescriptorPool) -> None:
        """Move the segment to another thread's pool: the file is closed, pending entries are written if possible."""
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
        return f"<Segment {self.base_offset}, {self.size} bytes, {state}, {self.range_count} ranges out>"


def create_segment(
    directory: str, base_offset: int, pool: DescriptorPool, now_ms: int, reserved_bytes: int = 0
) -> Segment:
    """Create the files of a new, empty segment, or none of them. Existing files of that name are emptied.

    `reserved_bytes` are preallocated for the log file.
    """
    segment = Segment(directory, base_offset, 0, pool)
    segment.created_ms = now_ms
    try:
        for suffix in (files.LOG_SUFFIX, files.INDEX_SUFFIX, files.TIME_INDEX_SUFFIX):
            with files.open_descriptor(segment.path(suffix), files.CREATE_FLAGS | os.O_TRUNC) as descriptor:
                if reserved_bytes and suffix == files.LOG_SUFFIX:
                    files.preallocate(descriptor, reserved_bytes)
        files.remove_if_exists(segment.path(files.TRANSACTION_INDEX_SUFFIX))
    except OSError:
        remove_empty_segment(segment)
        raise
    return segment


def remove_empty_segment(segment: Segment) -> None:
    """Remove the files of an empty segment; files that remain are ignored when the log is opened."""
    for suffix in FILE_SUFFIXES:
        with contextlib.suppress(OSError):
            files.remove_if_exists(segment.path(suffix))


UNKNOWN: Final = -1
NOT_LOADED: Final = -2  # a timestamp that was not read from its file yet


def load_max_timestamp(segment: Segment) -> None:
    """Load the largest timestamp from the last entry of the time index."""
    times = segment.time_index()
    is_true = times.count == 0 or is_time_entry_valid(segment, times.last_timestamp, times.last_relative_offset)
    if is_true and not has_later_timestamp(segment, times.last_timestamp):
        segment.max_timestamp = times.last_timestamp
        segment.max_timestamp_offset = segment.base_offset + times.last_relative_offset
    else:
        segment.rebuild_indexes("the last entry of the time index does not fit the log")


def load_first_timestamp(segment: Segment) -> None:
    scan = BatchScan(segment.open_descriptor(), 0, segment.size, False)
    segment.first_timestamp = scan.max_timestamp if scan.advance() else UNKNOWN


def max_timestamp_of(segment: Segment) -> int:
    """Return the largest timestamp of its records, -1 if there is none."""
    if segment.max_timestamp == NOT_LOADED:
        was_open = segment.descriptor >= 0
        load_max_timestamp(segment)
        if not was_open:
            segment.close_if_unused()  # retention checks all segments, most of which are not in use
    return segment.max_timestamp


def first_timestamp_of(segment: Segment) -> int:
    """Return the largest timestamp of its first batch, -1 if there is none."""
    if segment.first_timestamp == NOT_LOADED:
        was_open = segment.descriptor >= 0
        load_first_timestamp(segment)
        if not was_open:
            segment.close_if_unused()
    return segment.first_timestamp


def retention_timestamp(segment: Segment) -> int:
    """Return the timestamp for retention by time; the file's modification time if records have none."""
    timestamp = max_timestamp_of(segment)
    if timestamp >= 0:
        return timestamp
    try:
        return os.stat(segment.path(files.LOG_SUFFIX)).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return segment.created_ms


def find_time(segment: Segment, timestamp: int) -> int:
    """Return an offset at or before the first record with this timestamp or a later one."""
    segment.write_pending()
    path = segment.path(files.TIME_INDEX_SUFFIX)
    entry_timestamp, relative_offset = lookup_time(path, timestamp)
    if entry_timestamp >= 0 and not is_time_entry_valid(segment, entry_timestamp, relative_offset):
        segment.rebuild_indexes(f"an entry of {path} does not fit the log")
        _, relative_offset = lookup_time(path, timestamp)
    return segment.base_offset + relative_offset


def is_time_entry_valid(segment: Segment, timestamp: int, relative_offset: int) -> bool:
    """Return whether the batch with this offset has this largest timestamp."""
    try:
        position, batch_bytes = segment.find(segment.base_offset + relative_offset)
    except KafkaError:  # the log is corrupt before that offset
        return False
    if batch_bytes == 0:
        return False
    scan = BatchScan(segment.open_descriptor(), position, segment.size, False)
    return scan.advance() and scan.max_timestamp == timestamp


def has_later_timestamp(segment: Segment, timestamp: int) -> bool:
    """Return whether one of the last batches proves that entries of the time index are missing."""
    scan = BatchScan(segment.open_descriptor(), segment.index().last_position(), segment.size, False)
    while scan.advance():
        if scan.max_timestamp > timestamp:
            return True
    return False


class IndexRebuild:
    """A rebuild of a large segment's indexes: any thread reads the log, the owner installs the result.

    The segment's file stays open until install().
    """

    def __init__(self, segment: Segment, why: str) -> None:
        segment.log_index_rebuild(why)
        self.segment = segment
        self._range = segment.make_range(0, segment.size)
        self._rebuilds = segment.index_rebuilds
        self._built: RebuiltIndexes | None = None

    def run(self) -> None:
        """Scan, in any thread, the batch headers that existed when the rebuild started."""
        segment = self.segment
        source = self._range
        self._built = RebuiltIndexes(source.descriptor, source.length, segment.base_offset, INDEX_INTERVAL_BYTES)

    def install(self) -> None:
        """Install the result on the owner's thread. Must be called even if run() has failed."""
        segment = self.segment
        is_wanted = not segment.is_closing and segment.index_rebuilds == self._rebuilds
        if self._built is not None and is_wanted and segment.size >= self._range.length:
            segment.replace_indexes(self._built)
        self._range.release()

    def __repr__(self) -> str:
        return f"<IndexRebuild of {self.segment!r}>"
