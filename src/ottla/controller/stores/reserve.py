"""Reserved space on the disk of the metadata store, so that a full disk can be freed through the broker.

Deleting a topic or lowering its retention is a metadata change, which needs some space itself. A file next to the store
reserves it: when a write finds the disk full, a part of the file is released, and the file is filled again when the
disk has enough space. It is released in parts, because other writers may use the released space first.
"""

from __future__ import annotations

import os
from typing import Final

SUFFIX: Final = ".reserve"
RESERVE_BYTES: Final = 2 << 20
PIECE_BYTES: Final = 512 << 10
FREE_BYTES_MIN: Final = 4 * RESERVE_BYTES  # with less free space the reserve is not filled
FILE_MODE: Final = 0o644


class Reserve:
    """The reserve file, which may not exist."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0

    @property
    def is_whole(self) -> bool:
        return self._size >= RESERVE_BYTES

    def look(self) -> None:
        """Read the current size of the file; on an error it is treated as empty."""
        try:
            self._size = os.stat(self.path).st_size
        except OSError:
            self._size = 0

    def give_piece(self) -> bool:
        """Release a part of the reserve for one more attempt; returns False if it is empty."""
        if self._size == 0:
            return False
        size = max(0, self._size - PIECE_BYTES)
        try:
            if size:
                os.truncate(self.path, size)
            else:
                os.unlink(self.path)
        except OSError:
            return False
        self._size = size
        return True

    def fill(self) -> None:
        """Fill the reserve again if the disk has enough space."""
        if self.is_whole:
            return
        try:
            state = os.statvfs(os.path.dirname(self.path))
            if state.f_bavail * state.f_frsize >= FREE_BYTES_MIN:
                allocate(self.path, RESERVE_BYTES)
                self._size = RESERVE_BYTES
        except OSError:  # another writer has used the space
            self.look()

    def __repr__(self) -> str:
        return f"<Reserve {self.path}: {self._size} bytes>"


def allocate(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
