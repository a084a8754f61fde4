"""Keeps the number of open files, and the memory of loaded indexes, bounded however many segments there are.

A segment opens its file when it is used and registers here. When too many are open, those that were not used since
the hand of the clock last passed them are closed again; a file that somebody still reads from is never closed.
So that there is always one to close, no more than half of them may be lent to readers (`is_lent_out`).
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from typing import Final, Protocol

OPEN_FILES_MIN: Final = 64
OPEN_FILES_MAX: Final = 32_768
INDEX_BYTES_MAX: Final = 32 << 20


class Closable(Protocol):
    """A segment, as seen by the pool."""

    is_used: bool

    def close_if_unused(self) -> bool: ...

    def close(self) -> None: ...


class DescriptorPool:
    """All open segments, oldest first; each use sets a flag that buys the segment one more round."""

    def __init__(self, open_files_max: int = 0) -> None:
        self.open_files_max = open_files_max or open_files_limit()
        self.lent_count = 0  # segments with ranges out; the segments keep this figure, too
        self.index_bytes = 0  # of all loaded indexes; the segments keep this figure
        self.defers_rebuilds = False  # while somebody reads who can wait for a worker to rebuild a large index
        self._open: OrderedDict[Closable, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def is_lent_out(self) -> bool:
        """Whether readers hold so many files that they should take one at a time."""
        return self.lent_count >= self.open_files_max // 2

    def add(self, segment: Closable) -> None:
        """Register a segment that just opened its file; may close others."""
        if self.index_bytes > INDEX_BYTES_MAX:
            self._close_one()
        while len(self._open) >= self.open_files_max and self._close_one():
            pass
        self._open[segment] = None

    def close_unused(self) -> None:
        """Close all files that nobody reads: whoever needs one opens it again."""
        for segment in list(self._open):
            segment.close_if_unused()

    def discard(self, segment: Closable) -> None:
        """Forget a segment that closed its file itself."""
        self._open.pop(segment, None)

    def take_all(self) -> list[Closable]:
        """Forget all segments, for the one who closes them."""
        segments = list(self._open)
        self._open.clear()
        return segments

    def _close_one(self) -> bool:
        # Two rounds: the first takes everybody's flag, the second finds a victim, unless all have readers.
        for _ in range(2 * len(self._open)):
            segment, _ = self._open.popitem(last=False)
            if segment.is_used:
                segment.is_used = False
            elif segment.close_if_unused():
                return True
            self._open[segment] = None
        return False

    def __repr__(self) -> str:
        files = f"{len(self._open)} of {self.open_files_max} open, {self.lent_count} lent"
        return f"<DescriptorPool {files}, {self.index_bytes} index bytes>"


def open_files_limit() -> int:
    """Half of what the process may open: the other half is for connections."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return OPEN_FILES_MAX
    return max(OPEN_FILES_MIN, min(soft_limit // 2, OPEN_FILES_MAX))
