"""Writes the segment that takes the place of cleaned ones, under names that end with `.cleaned`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ottla.storage import files
from ottla.storage.index import BuiltIndexes
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndex

WRITE_BYTES: Final = 256 << 10
SYNC_BYTES: Final = 16 << 20  # little by little: one large sync would make the broker's own writes wait
SUFFIXES: Final = (
    files.LOG_SUFFIX,
    files.INDEX_SUFFIX,
    files.TIME_INDEX_SUFFIX,
    files.TRANSACTION_INDEX_SUFFIX,
)


class CleanedSegmentWriter:
    """begin(), append() batch after batch, finish(): then everything is on disk."""

    def __init__(self, directory: str, base_offset: int, pace: Callable[[int], None]) -> None:
        self._directory = directory
        self._base_offset = base_offset
        self._pace = pace
        self._descriptor = -1
        self._pending = bytearray()
        self._written = 0
        self._synced = 0
        self.modified_ns = 0  # the time of the newest replaced file: retention looks at it where records have none

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
                files.remove_if_there(self.path(suffix))
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

    def finish(self, aborted: list[AbortedTransaction] | None, index_interval_bytes: int) -> None:
        """Write what is left and the indexes, and sync all of it; with None there is no transaction index."""
        self._write()
        files.sync(self._descriptor)
        built = BuiltIndexes(self._descriptor, self._written, self._base_offset, index_interval_bytes)
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
        files.write_whole(self._descriptor, self._pending, self._written)
        self._written += len(self._pending)
        self._pace(len(self._pending))
        self._pending = bytearray()
        if self._written - self._synced >= SYNC_BYTES:
            files.sync(self._descriptor)
            self._synced = self._written

    def __repr__(self) -> str:
        return f"<CleanedSegmentWriter {self.path(files.LOG_SUFFIX)}, {self.size} bytes>"


def remove_cleaned(directory: str) -> None:
    """Throw away what an earlier or unwanted round has left. Kafka would take such a file for part of a later swap."""
    for name in os.listdir(directory):
        if name.endswith(files.CLEANED_SUFFIX):
            files.remove_if_there(f"{directory}/{name}")
