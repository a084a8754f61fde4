"""How many records a range of a file holds: the headers of its batches say so, nobody walks over records."""

from __future__ import annotations

import os
import struct
from typing import Final

from ottla.base.file_range import FileRange
from ottla.protocol.batches import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_POSITION

READ_BYTES: Final = 64 << 10
COUNT_POSITION: Final = HEADER_BYTES - 4
MAGIC: Final = 2

_length = struct.Struct(">i")


def take_records(file_range: FileRange, most: float) -> int:
    """The number of records in a range that is in memory; it ends before the batch with which it would have more than
    `most`, but not before its first one. What is of an older format counts as one record a batch.
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
        batch_bytes = LENGTH_PREFIX_BYTES + _length.unpack_from(chunk, at + 8)[0]
        if batch_bytes <= LENGTH_PREFIX_BYTES or position + batch_bytes > size:
            break  # the rest is a piece of a batch: the client throws it away
        count = _length.unpack_from(chunk, at + COUNT_POSITION)[0] if chunk[at + MAGIC_POSITION] == MAGIC else 1
        if taken and taken + count > most:
            file_range.length = position
            break
        taken += count
        position += batch_bytes
    return taken
