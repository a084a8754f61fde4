"""Data folders of test brokers: in memory if there is enough of it, and removed soon after a killed run.

A killed test run cannot remove its folders, and those in /dev/shm use memory. So each folder holds a lock file, and a
new folder's owner removes those of earlier runs that are no longer locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "ottla-testing-"
UNFINISHED = "ottla-unfinished-"  # not locked yet: other processes leave these alone
LOCK = "owner.lock"
MEMORY = Path("/dev/shm")  # noqa: S108 (mkdtemp makes the name)
MEMORY_BYTES_MIN = 1 << 30  # containers often have only 64 MiB there, which a test can fill


class Folder:
    """One folder, locked until remove()."""

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or default_parent()
        remove_abandoned(parent)
        made = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=parent))
        self._lock = os.open(made / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.with_name(PREFIX + made.name.removeprefix(UNFINISHED))
        made.rename(self.path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __repr__(self) -> str:
        return f"<Folder {self.path}{'' if self._lock >= 0 else ' removed'}>"


def default_parent() -> Path:
    """Memory if there is enough, else the default directory for temporary files."""
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return Path(tempfile.gettempdir())
    is_roomy = room.f_bavail * room.f_frsize >= MEMORY_BYTES_MIN and os.access(MEMORY, os.W_OK)
    return MEMORY if is_roomy else Path(tempfile.gettempdir())


def remove_abandoned(parent: Path) -> None:
    """Remove folders of this user whose owner has ended."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or being removed by another process
            lock = os.open(path / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
