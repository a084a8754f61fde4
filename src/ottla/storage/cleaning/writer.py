"""Writes the segment that replaces cleaned ones, with file names that end with `.cleaned`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ottla.storage import files
from ottla.storage.index import RebuiltIndexes
from ottla.storage.transaction_index import AbortedTxn, TransactionIndex

WRITE_BYTES: Final = 256 << 10
SYNC_BYTES: Final = 16 << 20  # in steps: one large sync would delay the broker's own writes
SUFFIXES: Final = (
    files.LOG_SUFFIX,
    files.INDEX_SUFFIX,
    files.TIME_INDEX_SUFFIX,
    files.TRANSACTION_INDEX_SUFFIX,
)


class CleanedSegmentWriter:
    """Writer of one segment: call begin(), append() for each batch, then finish(), which syncs everything."""

    def __init__(self, directory: str, base_offset: int, pace: Callable[[int], None]) -> None:
        self._directory = directory
        self._base_offset = base_offset
        self._pace = pace
        self._descriptor = -1
        self._pending = bytearray()
        self._written = 0
        self._synced = 0
        # The modification time of the newest replaced file, for retention of records without timestamps.
        self.modified_ns = 0

    @property
    def is_begun(self) -> bool:
        return self._descriptor >= 0

    @property
    def size(self) -> int:
        return self._written + len(self._pending)

    def path(self, suffix: str) -> str:
        return files.segment_path(self._directory, self._base_offset, suffix) + files.CLEANED_SUFFIX

    def begin(self) -> None:
        if self._descriptor < 0:
            for suffix in SUFFIXES:
                files.remove_if_exists(self.path(suffix))
            self._descriptor = files.open_file(
                self.path(files.LOG_SUFFIX), files.CREATE_FLAGS | os.O_TRUNC, files.FILE_MODE
            )

    def begin_with(self, source: int, length: int) -> None:
        """Begin with a copy of the first bytes of another file."""
        self.begin()
        position = 0
        while position < length:
            chunk = os.pread(source, min(WRITE_BYTES, length - position), position)
            if not chunk:
                raise FileNotFoundError("a segment became shorter while it was read")
            self.append(chunk)
            position += len(chunk)

    def append(self, data: bytes | bytearray) -> None:
        self._pending += data
        if len(self._pending) >= WRITE_BYTES:
            self._write()

    def finish(self, aborted: list[AbortedTxn] | None, index_interval_bytes: int) -> None:
        """Write the remaining data and the indexes, and sync; with None there is no transaction index."""
        self._write()
        files.sync(self._descriptor)
        built = RebuiltIndexes(self._descriptor, self._written, self._base_offset, index_interval_bytes)
        files.create_empty(self.path(files.INDEX_SUFFIX))
        built.offsets.write_pending(self.path(files.INDEX_SUFFIX))
        files.create_empty(self.path(files.TIME_INDEX_SUFFIX))
        built.times.write_pending(self.path(files.TIME_INDEX_SUFFIX))
        if aborted is not None:
            files.create_empty(self.path(files.TRANSACTION_INDEX_SUFFIX))
            TransactionIndex(aborted, 0).write_pending(self.path(files.TRANSACTION_INDEX_SUFFIX))
        for suffix in SUFFIXES[1:3] if aborted is None else SUFFIXES[1:]:
            files.sync_path(self.path(suffix))
        files.set_times(self.path(files.LOG_SUFFIX), ns=(self.modified_ns, self.modified_ns))

    def close(self) -> None:
        if self._descriptor >= 0:
            files.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        files.write_all(self._descriptor, self._pending, self._written)
        self._written += len(self._pending)
        self._pace(len(self._pending))
        self._pending = bytearray()
        if self._written - self._synced >= SYNC_BYTES:
            files.sync(self._descriptor)
            self._synced = self._written

    def __repr__(self) -> str:
        return f"<CleanedSegmentWriter {self.path(files.LOG_SUFFIX)}, {self.size} bytes>"


def remove_cleaned(directory: str) -> None:
    """Delete files of an earlier or cancelled cleaning: Kafka would mistake such a file for a part of a later swap."""
    for name in os.listdir(directory):
        if name.endswith(files.CLEANED_SUFFIX):
            files.remove_if_exists(f"{directory}/{name}")
