"""Ranges of whole batches in a segment. Compiled with mypyc where possible.

A fetch that is limited by bytes gets whole batches only: a client discards a partial batch and fetches it again.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from ottla.base.file_range import FileRange
from ottla.protocol.batches import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_POSITION
from ottla.storage.index import POSITION_MASK
from ottla.storage.scan import UNFINISHED_WRITE, BatchScan
from ottla.storage.segment import Segment

SCANNED_BYTES_MAX: Final = 64 << 10  # below this an index interval is a large share: scan to the exact end
READ_BYTES: Final = 64 << 10
COUNT_POSITION: Final = HEADER_BYTES - 4
MAGIC: Final = 2
SCANNED_BATCHES_MAX: Final = 100  # an index interval of 4096 bytes, plus one batch

_LENGTH = struct.Struct(">i")


def position_before(segment: Segment, position: int) -> int:
    """Return the start of a batch before this position, from the sparse index; 0 if the index has none."""
    index = segment.index()
    place = index.count_before_position(position) - 1 if position > 0 else -1
    return index.entries[place] & POSITION_MASK if place >= 0 else 0


def whole_batch_range(
    segment: Segment, position: int, batch_bytes: int, max_bytes: int, minimum_one: bool
) -> FileRange | None:
    """Return whole batches of at most `max_bytes`, starting at this position; more bytes follow. With `minimum_one` the
    first batch is included regardless of its size. Without it the result may be None.
    """
    length = whole_batch_bytes(segment, position, batch_bytes, max_bytes)
    if length == 0:
        return segment.make_range(position, batch_bytes) if minimum_one else None
    file_range = segment.make_range(position, length)
    file_range.cut_bytes = max_bytes - length
    return file_range


def whole_batch_bytes(segment: Segment, position: int, batch_bytes: int, bytes_max: int) -> int:
    """Return the number of the next `bytes_max` bytes that form whole batches; 0 if the first batch is larger.

    For large ranges the result may be smaller than possible: it ends at the last batch in the sparse index.
    """
    if batch_bytes >= bytes_max:
        return batch_bytes if batch_bytes == bytes_max else 0
    first_end = position + batch_bytes
    limit = position + bytes_max
    end = position_before(segment, limit + 1)
    if end < first_end or bytes_max < SCANNED_BYTES_MAX:
        end = scan_to_limit(segment, max(end, first_end), limit)
    return end - position


def scan_to_limit(segment: Segment, position: int, limit: int) -> int:
    """Return the end of the last whole batch before the limit, by scanning headers.

    Returns the limit itself after SCANNED_BATCHES_MAX batches, and at a corrupt batch: the CRC check reports that one.
    """
    scan = BatchScan(segment.open_descriptor(), position, limit, False)
    for _ in range(SCANNED_BATCHES_MAX):
        if not scan.advance():
            return scan.position if scan.problem is None or scan.problem in UNFINISHED_WRITE else limit
    return limit


def batch_start(segment: Segment, offset: int) -> int:
    """Return the first offset of the batch that contains this offset, or of the first corrupt batch before it.

    Reads only the batches after the nearest index entry. Corrupt headers are ignored.
    """
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


def limit_records(file_range: FileRange, records_max: float) -> int:
    """Shorten a range to at most `records_max` records, but never below one batch; returns the number of records.

    Only batch headers are read. A batch of an older format counts as one record.
    """
    taken = position = chunk_start = 0
    chunk = b""
    size = file_range.length
    while position + LENGTH_PREFIX_BYTES <= size:
        if position + HEADER_BYTES > chunk_start + len(chunk) or not chunk:
            chunk = os.pread(file_range.descriptor, min(READ_BYTES, size - position), file_range.position + position)
            chunk_start = position
        at = position - chunk_start
        if len(chunk) - at < HEADER_BYTES:
            break
        batch_bytes = LENGTH_PREFIX_BYTES + _LENGTH.unpack_from(chunk, at + 8)[0]
        if batch_bytes <= LENGTH_PREFIX_BYTES or position + batch_bytes > size:
            break  # a partial batch: the client discards it
        count = _LENGTH.unpack_from(chunk, at + COUNT_POSITION)[0] if chunk[at + MAGIC_POSITION] == MAGIC else 1
        if taken and taken + count > records_max:
            file_range.length = position
            break
        taken += count
        position += batch_bytes
    return taken
