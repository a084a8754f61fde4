"""The file of a segment: opened when it is used, lent to senders, closed when nobody needs it. Compiled if possible."""

from __future__ import annotations

from typing import Final

from ottla.base.file_range import FileRange
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool

FILE_SUFFIXES: Final = (
    files.LOG_SUFFIX,
    files.INDEX_SUFFIX,
    files.TIME_INDEX_SUFFIX,
    files.TRANSACTION_INDEX_SUFFIX,
)


class SegmentFile:
    """`<base_offset>.log`. The pool closes it when too many files are open, never while a range of it is out."""

    __slots__ = ("_pool", "base_offset", "descriptor", "directory", "is_closing", "is_used", "references", "size")

    def __init__(self, directory: str, base_offset: int, size: int, pool: DescriptorPool) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size  # what has been written whole
        self.descriptor = -1
        self.references = 0  # ranges of this file that are out
        self.is_used = False  # since the pool last looked
        self.is_closing = False
        self._pool = pool

    def path(self, suffix: str) -> str:
        return files.segment_path(self.directory, self.base_offset, suffix)

    def open_descriptor(self) -> int:
        """The descriptor of the log file; opens it if needed."""
        self.is_used = True
        if self.descriptor < 0:
            self.descriptor = files.open_file(self.path(files.LOG_SUFFIX), files.READ_WRITE_FLAGS)
            self._pool.add(self)
        return self.descriptor

    def make_range(self, position: int, length: int) -> FileRange:
        """Lend a piece of the file; the file stays open until the range is released."""
        descriptor = self.open_descriptor()
        self.references += 1
        return FileRange(self, descriptor, position, length)

    def release_range(self) -> None:
        assert self.references > 0, "a range was released twice"
        self.references -= 1
        if self.references == 0 and self.is_closing:
            self.close_descriptor()

    def close_if_unused(self) -> bool:
        """Give the descriptor and what was loaded back, unless somebody reads or the disk does not take it."""
        if self.references > 0:
            return False
        try:
            self.write_pending()
        except OSError:
            return False
        self.close_descriptor()
        return True

    def close(self) -> None:
        """No more use is made of this segment. Readers may finish; nothing is written any more."""
        self.is_closing = True
        if self.references == 0:
            self.close_descriptor()

    def close_descriptor(self) -> None:
        self.forget_loaded()
        if self.descriptor >= 0:
            self._pool.discard(self)
            files.close(self.descriptor)
            self.descriptor = -1

    def write_pending(self) -> None:
        """Write what waits in memory."""

    def forget_loaded(self) -> None:
        """Give memory back that belongs to the open file."""

    def rename_to_deleted(self) -> None:
        """Take the files out of the log; readers that hold a range are not disturbed."""
        for suffix in FILE_SUFFIXES:
            path = self.path(suffix)
            try:
                files.rename(path, path + files.DELETED_SUFFIX)
            except FileNotFoundError:
                continue

    def deleted_paths(self) -> list[str]:
        return [self.path(suffix) + files.DELETED_SUFFIX for suffix in FILE_SUFFIXES]

    def remove_deleted(self) -> None:
        for path in self.deleted_paths():
            files.remove_if_there(path)
