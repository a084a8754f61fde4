"""In which order a window is read, and what of it is left. Pure.

Oldest first: one partition after the other, in one go. Newest first: a piece from the end of each partition, then the
pieces before those, so that what happened last is found first everywhere. What lies past the last stable offset is
a chunk of its own, because nobody knows yet which of its transactions count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.operations.messages.windows import Extent

CHUNK_BYTES = 8 << 20
FIRST_CHUNK_BYTES = 1 << 20  # so that the first hits come soon
BYTES_PER_OFFSET = 1024.0  # until we know better


class Chunk(NamedTuple):
    """Offsets start … end - 1 that are read in one go."""

    partition: int
    start: int
    end: int
    is_stable: bool


class Chunks:
    """Iterate over it once; advance() and left() tell how far the reader is."""

    def __init__(self, extents: Iterable[Extent], is_newest_first: bool) -> None:
        self.is_newest_first = is_newest_first
        self.total = 0
        self._left: dict[int, Extent] = {}  # by partition: shrinks as it is read
        self._noted = (0, 0)  # offsets and bytes so far
        for extent in extents:
            if extent.size:
                self._left[extent.partition] = extent
                self.total += extent.size

    def __iter__(self) -> Iterator[Chunk]:
        while self._left:
            for partition in list(self._left):
                while (extent := self._left.get(partition)) is not None:
                    yield self._next_of(extent)
                    if self.is_newest_first:
                        break

    def note(self, offsets: int, read_bytes: int) -> None:
        """So many offsets had so many bytes: the next chunks are made by that."""
        self._noted = (self._noted[0] + offsets, self._noted[1] + read_bytes)

    def advance(self, chunk: Chunk, position: int) -> None:
        """The reader has dealt with this chunk up to here; newest first, only whole chunks count."""
        extent = self._left[chunk.partition]
        if not self.is_newest_first:
            self._keep(extent._replace(start=position))
        elif position >= chunk.end:
            self._keep(extent._replace(end=chunk.start))

    def retreat(self, chunk: Chunk, end: int) -> None:
        """Newest first, the reader ends here: what lies before `end` was not told."""
        self._keep(self._left.get(chunk.partition, Extent(*chunk[:3], chunk.end))._replace(end=end))

    def abandon(self, partition: int) -> list[Extent]:
        """Give up what is left of a partition, and return it."""
        extent = self._left.pop(partition, None)
        return [] if extent is None else [extent]

    def left(self) -> list[Extent]:
        return list(self._left.values())

    def _keep(self, extent: Extent) -> None:
        if extent.size:
            self._left[extent.partition] = extent
        else:
            self._left.pop(extent.partition, None)

    def _next_of(self, extent: Extent) -> Chunk:
        if not self.is_newest_first:
            is_stable = extent.start < extent.stable
            end = min(extent.end, extent.stable) if is_stable else extent.end
            return Chunk(extent.partition, extent.start, end, is_stable)
        is_stable = extent.end <= extent.stable
        floor = extent.start if is_stable else max(extent.start, extent.stable)
        return Chunk(extent.partition, max(floor, extent.end - self._chunk_offsets()), extent.end, is_stable)

    def _chunk_offsets(self) -> int:
        offsets, read_bytes = self._noted
        wanted = CHUNK_BYTES if offsets else FIRST_CHUNK_BYTES
        return max(1, int(wanted / max(1.0, read_bytes / offsets if offsets else BYTES_PER_OFFSET)))

    def __repr__(self) -> str:
        return f"<Chunks left={sum(extent.size for extent in self._left.values())} of {self.total}>"
