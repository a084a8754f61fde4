"""Making the indexes of a large segment anew while others are served: read in any thread, installed by the owner."""

from __future__ import annotations

from ottla.storage.index import BuiltIndexes
from ottla.storage.segment import INDEX_INTERVAL_BYTES, Segment


class IndexRebuild:
    """One segment's indexes on their way. The segment's file stays open until finish()."""

    def __init__(self, segment: Segment, why: str) -> None:
        segment.tell_rebuild(why)
        self.segment = segment
        self._range = segment.make_range(0, segment.size)
        self._rebuilds = segment.index_rebuilds
        self._built: BuiltIndexes | None = None

    def run(self) -> None:
        """In any thread: walk the batch headers of what the segment had when this began."""
        segment = self.segment
        source = self._range
        self._built = BuiltIndexes(source.descriptor, source.length, segment.base_offset, INDEX_INTERVAL_BYTES)

    def finish(self) -> None:
        """On the thread that owns the log, whatever became of run()."""
        segment = self.segment
        is_wanted = not segment.is_closing and segment.index_rebuilds == self._rebuilds
        if self._built is not None and is_wanted and segment.size >= self._range.length:
            segment.install_indexes(self._built)
        self._range.release()

    def __repr__(self) -> str:
        return f"<IndexRebuild of {self.segment!r}>"
