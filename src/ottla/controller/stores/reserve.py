"""Room that is set aside on the disk of the metadata store, so that a full disk can be emptied through the broker.

Deleting a topic or shortening its retention is a change of metadata, which needs a little room itself. A file beside
the store holds that room: it is given back to the file system piece by piece when a write finds no room, and made
anew when there is plenty again. In pieces, because others write to the same disk and may be faster.
"""

from __future__ import annotations

import os
from typing import Final

SUFFIX: Final = ".reserve"
RESERVE_BYTES: Final = 2 << 20
PIECE_BYTES: Final = 512 << 10
FREE_BYTES_MIN: Final = 4 * RESERVE_BYTES  # with less the disk is as good as full: nothing is set aside then
FILE_MODE: Final = 0o644


class Reserve:
    """The file, whether it is there or not."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0

    @property
    def is_whole(self) -> bool:
        return self._size >= RESERVE_BYTES

    def look(self) -> None:
        """Take over what is set aside already; a file that cannot be looked at counts for nothing."""
        try:
            self._size = os.stat(self.path).st_size
        except OSError:
            self._size = 0

    def give_piece(self) -> bool:
        """Make room for one more try; False if nothing is left."""
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
        """Set the room aside again if there is plenty of it."""
        if self.is_whole:
            return
        try:
            state = os.statvfs(os.path.dirname(self.path))
            if state.f_bavail * state.f_frsize >= FREE_BYTES_MIN:
                allocate(self.path, RESERVE_BYTES)
                self._size = RESERVE_BYTES
        except OSError:  # somebody was faster
            self.look()

    def __repr__(self) -> str:
        return f"<Reserve {self.path}: {self._size} bytes>"


def allocate(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
