"""How far a log reached that has to be cut: the bytes behind the damage are read before they are dropped.

Sound batches behind it tell exactly what is lost. They are found again by their looks (a header that fits, then the
checksum), since the length of what is damaged cannot be believed.
"""

from __future__ import annotations

import os
from typing import Final

from ottla.protocol.batches import HEADER, HEADER_BYTES, BatchHeader
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.scan import UNFINISHED, BatchScan

MAGIC_POSITION: Final = 16
MAGIC_BYTE: Final = b"\x02"
CHUNK_BYTES: Final = 1 << 20
SEARCHED_BYTES_MAX: Final = 64 << 20  # of damage: what lies behind so much of it is not looked for


class LossScan:
    """Reads dropped bytes, one file after the other; `end_offset` is where the log ended as far as they tell."""

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.is_exact = False  # the last bytes are a batch, or the beginning of one
        self._bytes_left = SEARCHED_BYTES_MAX

    def read(self, descriptor: int, position: int, size: int) -> None:
        while position >= 0:
            scan = BatchScan(descriptor, position, size, True)
            while scan.advance():
                self._note(scan)
            self.is_exact = scan.problem is None
            if self.is_exact:
                return
            if scan.problem in UNFINISHED and scan.base_offset == self.end_offset <= scan.last_offset:
                self._note(scan)  # a write that a crash has cut short
                self.is_exact = True
            position = self._next_batch(descriptor, scan.position + 1, size)

    def _note(self, scan: BatchScan) -> None:
        if self.end_offset <= scan.last_offset:
            self.end_offset = scan.last_offset + 1

    def _next_batch(self, descriptor: int, position: int, size: int) -> int:
        """Where the next sound batch begins; -1 if there is none."""
        while self._bytes_left > 0 and size - position >= HEADER_BYTES:
            chunk = os.pread(descriptor, CHUNK_BYTES + HEADER_BYTES, position)
            place = chunk.find(MAGIC_BYTE, MAGIC_POSITION)
            while 0 <= place - MAGIC_POSITION <= min(CHUNK_BYTES, len(chunk) - HEADER_BYTES):
                start = place - MAGIC_POSITION
                if self._looks_like_one(chunk, start, size - position - start):
                    scan = BatchScan(descriptor, position + start, size, True)
                    if scan.advance():
                        return position + start
                place = chunk.find(MAGIC_BYTE, place + 1)
            self._bytes_left -= CHUNK_BYTES
            position += CHUNK_BYTES
        return -1

    def _looks_like_one(self, chunk: bytes, start: int, bytes_left: int) -> bool:
        header = BatchHeader(HEADER.unpack_from(chunk, start))
        is_in_file = HEADER_BYTES <= header.batch_bytes <= bytes_left
        is_in_order = 0 <= header.base_offset - self.end_offset <= RELATIVE_OFFSET_MAX
        return is_in_file and is_in_order and 0 <= header.record_count <= header.last_offset_delta + 1

    def __repr__(self) -> str:
        return f"<LossScan up to {'' if self.is_exact else 'at least '}{self.end_offset}>"


def told_loss(first_offset: int, seen: LossScan, end_offset_min: int) -> str:
    """The offsets that are gone, in words: as the dropped bytes tell, or further if other files know of more."""
    last_offset = max(seen.end_offset, end_offset_min) - 1
    if last_offset < first_offset:
        return "no known offset"
    is_exact = seen.is_exact and end_offset_min <= seen.end_offset
    return f"offsets {first_offset} to {'' if is_exact else 'at least '}{last_offset}"
