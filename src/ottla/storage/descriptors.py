"""A pool of open segment files that limits descriptors and the memory of loaded indexes.

A segment registers here when it opens its file. When too many files are open, the CLOCK algorithm closes those that
were not used recently. A file with active readers is never closed. Readers may hold at most half of the files
(`is_mostly_lent`), so there is always one to close. Compiled with mypyc where possible.
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from typing import Final, Protocol

OPEN_FILES_MIN: Final = 64
OPEN_FILES_MAX: Final = 32_768
INDEX_BYTES_MAX: Final = 32 << 20


class PooledSegment(Protocol):
    """A segment, as the pool sees it."""

    was_used: bool

    def close_if_unused(self) -> bool: ...

    def close(self) -> None: ...


class DescriptorPool:
    """All open segments, oldest first; each use sets a flag that keeps the segment for one more round."""

    def __init__(self, open_files_max: int = 0) -> None:
        self.open_files_max = open_files_max or open_files_limit()
        self.lent_segment_count = 0  # segments with active ranges; updated by the segments
        self.index_bytes = 0  # of all loaded indexes; updated by the segments
        self.defers_index_rebuilds = False  # while a fetch reads: it can wait for a worker to rebuild a large index
        self._open: OrderedDict[PooledSegment, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def is_mostly_lent(self) -> bool:
        """Whether readers hold so many files that each fetch should use one at a time."""
        return self.lent_segment_count >= self.open_files_max // 2

    def add(self, segment: PooledSegment) -> None:
        """Register a segment that has opened its file; may close others."""
        if self.index_bytes > INDEX_BYTES_MAX:
            self._close_one()
        while len(self._open) >= self.open_files_max and self._close_one():
            pass
        self._open[segment] = None

    def close_unused(self) -> None:
        """Close all files without active readers. They are reopened on demand."""
        for segment in list(self._open):
            segment.close_if_unused()

    def remove(self, segment: PooledSegment) -> None:
        """Remove a segment that has closed its file itself."""
        self._open.pop(segment, None)

    def remove_all(self) -> list[PooledSegment]:
        """Remove and return all segments; the caller closes them."""
        segments = list(self._open)
        self._open.clear()
        return segments

    def _close_one(self) -> bool:
        # Two rounds: the first clears the flags, the second finds a file to close, unless all have readers.
        for _ in range(2 * len(self._open)):
            segment, _ = self._open.popitem(last=False)
            if segment.was_used:
                segment.was_used = False
            elif segment.close_if_unused():
                return True
            self._open[segment] = None
        return False

    def __repr__(self) -> str:
        files = f"{len(self._open)} of {self.open_files_max} open, {self.lent_segment_count} lent"
        return f"<DescriptorPool {files}, {self.index_bytes} index bytes>"


def open_files_limit() -> int:
    """Return half of the process limit: the other half is for connections."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return OPEN_FILES_MAX
    return max(OPEN_FILES_MIN, min(soft_limit // 2, OPEN_FILES_MAX))
