"""Scans the batches of a segment file, with or without CRC checks. Compiled with mypyc where possible.

A scan reads through one large buffer, so that recovery runs at the speed of the CRC. It stops at the first byte that is
not part of a whole, valid batch; the caller decides what to do about the problem.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from ottla.protocol.batches import ATTRIBUTES_POSITION, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from ottla.protocol.checksums import crc32c

BUFFER_BYTES: Final = 1 << 20
HEADERS_BUFFER_BYTES: Final = 16 << 10
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20


# base offset, length, magic, last offset delta: the fields that are needed to find the next batch
OFFSETS_HEADER: Final = struct.Struct(">qi4xb6xi")
OFFSETS_HEADER_BYTES: Final = 27
ENDS_IN_HEADER: Final = "the file ends inside a batch header"
ENDS_IN_BATCH: Final = "the file ends inside a batch"
UNFINISHED_WRITE: Final = (ENDS_IN_HEADER, ENDS_IN_BATCH)  # the usual result of a write that a crash has interrupted


class BatchScan:
    """A scan of a file. Call advance() until it returns false; then `problem` is None at the end of the file."""

    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_buffer_start",
        "_checks_crc",
        "_descriptor",
        "_view",
        "attributes",
        "base_offset",
        "base_sequence",
        "batch_bytes",
        "end",
        "last_offset",
        "leader_epoch",
        "max_timestamp",
        "position",
        "problem",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, descriptor: int, position: int, end: int, checks_crc: bool, buffer_bytes: int = 0) -> None:
        self._descriptor = descriptor
        self._checks_crc = checks_crc
        if buffer_bytes <= 0:
            buffer_bytes = BUFFER_BYTES if checks_crc else HEADERS_BUFFER_BYTES
        self._buffer = bytearray(min(buffer_bytes, max(end - position, 0)))
        self._view = memoryview(self._buffer)
        self._buffer_start = 0
        self._buffer_bytes = 0  # number of valid bytes in the buffer
        self.end = end  # end of the file
        self.position = position  # of the current batch
        self.batch_bytes = 0
        self.base_offset = -1
        self.last_offset = -1
        self.leader_epoch = -1
        self.attributes = 0
        self.max_timestamp = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.problem: str | None = None

    @property
    def next_position(self) -> int:
        return self.position + self.batch_bytes

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF

    def advance(self) -> bool:
        """Go to the next batch; false at the end of the file or at the first corrupt batch."""
        self.position += self.batch_bytes
        self.batch_bytes = 0
        if self.position >= self.end:
            return False
        if self.end - self.position < HEADER_BYTES:
            return self._fail(ENDS_IN_HEADER)
        place = self.position - self._buffer_start
        if place + HEADER_BYTES > self._buffer_bytes:
            place = self._fill(HEADER_BYTES)
            if place < 0:
                return self._fail("the file is shorter than its size says")
        (
            self.base_offset,
            length,
            self.leader_epoch,
            magic,
            crc,
            self.attributes,
            last_offset_delta,
            _,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            record_count,
        ) = HEADER.unpack_from(self._buffer, place)
        batch_bytes: int = length + LENGTH_PREFIX_BYTES
        self.last_offset = self.base_offset + last_offset_delta
        if batch_bytes < HEADER_BYTES or magic != MAGIC or last_offset_delta < 0 or self.base_offset < 0:
            return self._fail("there is no batch header")
        if self.position + batch_bytes > self.end:
            return self._fail(ENDS_IN_BATCH)
        if record_count < 0 or (self._checks_crc and self._crc(place, batch_bytes) != crc):
            return self._fail("the checksum of a batch is wrong")
        self.batch_bytes = batch_bytes
        return True

    def batch(self) -> bytes:
        """Return the bytes of the current batch."""
        place = self.position - self._buffer_start
        if place >= 0 and place + self.batch_bytes <= self._buffer_bytes:
            return bytes(self._view[place : place + self.batch_bytes])
        return os.pread(self._descriptor, self.batch_bytes, self.position)

    def _fail(self, problem: str) -> bool:
        self.problem = problem
        return False

    def _fill(self, wanted: int) -> int:
        """Read from the current position on; returns its place in the buffer, or -1 if there are too few bytes."""
        self._buffer_start = self.position
        self._buffer_bytes = os.preadv(self._descriptor, [self._view], self.position)
        return 0 if self._buffer_bytes >= wanted else -1

    def _crc(self, place: int, batch_bytes: int) -> int:
        if place + batch_bytes > self._buffer_bytes:
            if batch_bytes > len(self._buffer):
                return self._crc_of_large_batch(batch_bytes)
            place = self._fill(batch_bytes)
            if place < 0:
                return -1
        return int(crc32c(self._view[place + ATTRIBUTES_POSITION : place + batch_bytes]))

    def _crc_of_large_batch(self, batch_bytes: int) -> int:
        """Return the CRC of a batch that does not fit into the buffer; leaves the buffer empty."""
        self._buffer_bytes = 0
        position = self.position + ATTRIBUTES_POSITION
        end = self.position + batch_bytes
        value = 0
        while position < end:
            count = os.preadv(self._descriptor, [self._view[: end - position]], position)
            if count == 0:
                return -1
            value = crc32c(self._view[:count], value)
            position += count
        return int(value)

    def __repr__(self) -> str:
        return f"<BatchScan at {self.position} of {self.end}, offsets {self.base_offset}-{self.last_offset}>"


def peek_header(descriptor: int, position: int, end: int) -> tuple[int, int, int]:
    """Return first offset, last offset and length of the batch at this position, unchecked; (-1, -1, 0) if there is
    none.
    """
    if position < end:
        head = os.pread(descriptor, OFFSETS_HEADER_BYTES, position)
        if len(head) == OFFSETS_HEADER_BYTES:
            base_offset, length, magic, last_offset_delta = OFFSETS_HEADER.unpack(head)
            batch_bytes: int = length + LENGTH_PREFIX_BYTES
            if magic == MAGIC and batch_bytes >= HEADER_BYTES and last_offset_delta >= 0 and base_offset >= 0:
                return base_offset, base_offset + last_offset_delta, batch_bytes
    return -1, -1, 0
