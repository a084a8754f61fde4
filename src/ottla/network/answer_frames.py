"""Cuts what comes back over an outgoing connection into frames.

Rules:
1. Whoever gets a frame may keep views of it for as long as he likes: it is never written to again while one is held.
2. A large frame is received straight into memory of its own. That is an anonymous map: the kernel hands its pages out
   as the bytes come, so a length alone costs nothing, and nothing is moved when the frame grows.
3. Memory of large frames is used again when nobody holds a view of it any more: a follower gets the same few
   megabytes over and over, and fresh pages cost nearly as much as receiving.
"""

from __future__ import annotations

import mmap
import struct
from sys import getrefcount
from typing import Final

from ottla.protocol.codec import ProtocolError

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 64 * 1024
FRAME_BYTES_MAX: Final = 1024 * 1024 * 1024
FRAME_BYTES_MIN: Final = 4  # the correlation id
LARGE_BYTES_MIN: Final = 128 * 1024  # the smallest map
KEPT_MAX: Final = 3
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024  # of one map that is kept

_size: Final = struct.Struct(">i")


class AnswerFrames:
    """Where the next bytes go, and the frames that are whole."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._have = 0  # bytes in scratch
        self._large: memoryview | None = None  # a frame of its own that is not whole yet
        self._filled = 0
        self._kept: list[mmap.mmap] = []
        self._free_references = self._references_of_free()
        self.large_count = 0  # frames that got memory of their own

    def room(self) -> memoryview:
        """Receive into this; never past the end of a large frame."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._have :]

    def took(self, count: int) -> list[memoryview]:
        """So many bytes were received into room(): the frames that are whole now, without their size."""
        large = self._large
        if large is None:
            self._have += count
            return self._cut()
        self._filled += count
        if self._filled < len(large):
            return []
        self._large = None
        return [large]

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        scratch, end, position = self._scratch, self._have, 0
        while end - position >= SIZE_BYTES:
            size: int = _size.unpack_from(scratch, position)[0]
            if not FRAME_BYTES_MIN <= size <= FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {size} bytes")
            start = position + SIZE_BYTES
            if start + size > end:
                break
            frames.append(memoryview(bytes(scratch[start : start + size])))
            position = start + size
        self._keep(position, end)
        return frames

    def _keep(self, position: int, end: int) -> None:
        """Move the first part of the next frame to where the rest of it will be received."""
        scratch, rest = self._scratch, end - position
        self._have = rest
        if rest >= SIZE_BYTES:
            size: int = _size.unpack_from(scratch, position)[0]
            if SIZE_BYTES + size > SCRATCH_BYTES:
                self._large = large = self._take(size)
                self._filled = rest - SIZE_BYTES
                large[: self._filled] = scratch[position + SIZE_BYTES : end]
                self._have = 0
                return
        if rest and position:
            scratch[:rest] = bytes(scratch[position:end])

    # ---- memory of large frames

    def _take(self, size: int) -> memoryview:
        self.large_count += 1
        kept = self._kept
        for index in range(len(kept)):
            if len(kept[index]) >= size and self._references(index) == self._free_references:
                return memoryview(kept[index])[:size]
        made = mmap.mmap(-1, max(LARGE_BYTES_MIN, 1 << (size - 1).bit_length()))
        if len(made) <= KEPT_BYTES_MAX:
            kept.append(made)
            if len(kept) > KEPT_MAX:
                del kept[0]
        return memoryview(made)[:size]

    def forget(self) -> None:
        """Nothing large came for a while: hand the memory back."""
        self._kept.clear()

    def _references(self, index: int) -> int:
        return getrefcount(self._kept[index])

    def _references_of_free(self) -> int:
        """What the count is when nobody else holds a map; it is not the same in a compiled file."""
        self._kept.append(mmap.mmap(-1, mmap.PAGESIZE))
        references = self._references(0)
        self._kept.clear()
        return references

    def __repr__(self) -> str:
        part = f"{self._filled} of {len(self._large)}" if self._large is not None else f"{self._have}"
        return f"<AnswerFrames {part} bytes, {len(self._kept)} maps kept>"
