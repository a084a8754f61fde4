"""The disks: real files on a file system in memory, reached through ottla.storage.files.

Each call knows its caller (the world's current node). It can stop a node between any two of its writes, refuse
writes with ENOSPC, and forget what was not synced when the power goes: every change is noted with what undoes it,
until a sync of that file (or of that folder, for names) makes it last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.brokers.node_loop import CrashError, NodeLoop
from tests.simulation.brokers.world import World

from ottla.storage import files

GRAVES: Final = "graves"  # where files go that were removed and may come back

real_open, real_close, real_write = os.open, os.close, os.pwrite
real_truncate, real_sync, real_rename = os.ftruncate, os.fdatasync, os.rename
real_link, real_unlink, real_mkdir, real_dup2 = os.link, os.unlink, os.mkdir, os.dup2

Key = tuple[int, int]  # device and inode


class NodeDisk:
    """What one broker's process has open, and what its disk has not made lasting yet."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.open: dict[int, Key] = {}
        self.unsynced: list[tuple[Key, Callable[[], None]]] = []  # in the order in which it happened
        self.writes = 0
        self.writes_left = -1  # until the node dies; -1: for ever
        self.is_full = False
        self.refuses_sync = False
        self.failed: str | None = None  # a folder of log.dirs that can be read at most
        self.boots = 1  # how often the machine was started


class Disk:
    """Its methods replace the functions of ottla.storage.files."""

    def __init__(self, world: World, root: str) -> None:
        self.world = world
        self.root = root
        self.disks: dict[str, NodeDisk] = {}  # by host
        self.on_crash: Callable[[NodeLoop], None] = lambda loop: None
        self._graves = 0
        real_mkdir(f"{root}/{GRAVES}")

    def disk_of(self, host: str) -> NodeDisk:
        found = self.disks.get(host)
        if found is None:
            found = self.disks[host] = NodeDisk(f"{self.root}/{host}")
            real_mkdir(found.folder)
        return found

    def _mine(self) -> NodeDisk:
        loop = self.world.current
        if loop is None or loop.is_dead:
            raise CrashError
        return self.disks[loop.name.partition(".")[0]]

    def _changing(self) -> NodeDisk:
        """Before every change: perhaps this one does not happen any more."""
        mine = self._mine()
        mine.writes += 1
        if mine.writes_left == 0:
            mine.writes_left = -1
            loop = self.world.current
            assert loop is not None
            self.on_crash(loop)
            raise CrashError
        if mine.writes_left > 0:
            mine.writes_left -= 1
        return mine

    def _check(self, path: str) -> None:
        """A folder that has failed takes nothing."""
        failed = self._mine().failed
        if failed is not None and path.startswith(f"{failed}/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def boot_id(self) -> str:
        """In place of what Linux tells."""
        mine = self._mine()
        return f"{os.path.basename(mine.folder)}-{mine.boots}"

    # ---- files

    def open_file(self, path: str, flags: int, mode: int = 0o777) -> int:
        mine = self._mine()
        if flags & (os.O_CREAT | os.O_RDWR):
            self._check(path)
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        if is_new:
            mine = self._changing()
            if mine.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if flags & os.O_TRUNC and not is_new:
            self._changing()
        descriptor = real_open(path, flags, mode)
        mine.open[descriptor] = key = _key(descriptor)
        if is_new:
            mine.unsynced.append((_key_of(os.path.dirname(path)), lambda: _remove(path, key)))
        return descriptor

    def close(self, descriptor: int) -> None:
        mine = self._mine()
        mine.open.pop(descriptor, None)
        real_close(descriptor)

    def replace_descriptor(self, source: int, target: int, *args: Any) -> int:
        mine = self._mine()
        made = real_dup2(source, target, *args)
        mine.open[target] = mine.open[source]
        return made

    def write_at(self, descriptor: int, data: Any, position: int) -> int:
        mine = self._changing()
        if mine.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_path = os.readlink(f"/proc/self/fd/{descriptor}")
        self._check(real_path)
        key = mine.open[descriptor]
        size = os.fstat(descriptor).st_size
        before = os.pread(descriptor, min(len(data), max(0, size - position)), position)
        written = real_write(descriptor, data, position)
        mine.unsynced.append((key, lambda: _unwrite(real_path, key, position, before, size)))
        return written

    def truncate(self, descriptor: int, length: int) -> None:
        mine = self._changing()
        key = mine.open[descriptor]
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, size - length, length) if length < size else b""
        real_path = os.readlink(f"/proc/self/fd/{descriptor}")
        self._check(real_path)
        real_truncate(descriptor, length)
        mine.unsynced.append((key, lambda: _unwrite(real_path, key, length, tail, size)))

    def sync(self, descriptor: int) -> None:
        mine = self._changing()
        if mine.refuses_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._check(os.readlink(f"/proc/self/fd/{descriptor}"))
        key = _key(descriptor)
        mine.unsynced = [each for each in mine.unsynced if each[0] != key]

    # ---- names

    def rename(self, source: str, target: str) -> None:
        mine = self._changing()
        self._check(target)
        grave = self._bury(target)
        real_rename(source, target)
        mine.unsynced.append((_key_of(os.path.dirname(target)), lambda: _unrename(source, target, grave)))

    def link(self, source: str, target: str) -> None:
        mine = self._changing()
        real_link(source, target)
        key = _key_of(target)
        mine.unsynced.append((_key_of(os.path.dirname(target)), lambda: _remove(target, key)))

    def unlink(self, path: str) -> None:
        mine = self._changing()
        grave = self._bury(path)
        real_unlink(path)
        if grave is not None:
            mine.unsynced.append((_key_of(os.path.dirname(path)), lambda: _unrename(None, path, grave)))

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        mine = self._changing()
        if mine.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._check(path)
        real_mkdir(path, mode)

    def _bury(self, path: str) -> str | None:
        if not os.path.isfile(path):
            return None
        self._graves += 1
        grave = f"{self.root}/{GRAVES}/{self._graves}"
        real_link(path, grave)
        return grave

    # ---- faults

    def kill(self, host: str, *, with_power: bool = False) -> None:
        """The process is gone, and what it had open; with the power also what was not synced, all or some of it."""
        mine = self.disks[host]
        mine.writes_left = -1
        for descriptor in mine.open:
            real_close(descriptor)
        mine.open.clear()
        if with_power and mine.unsynced:
            kept = self.world.random.choice((0, self.world.random.randrange(len(mine.unsynced))))
            for _, undo in reversed(mine.unsynced[kept:]):
                with contextlib.suppress(FileNotFoundError):
                    undo()
            self.world.tell(f"{host} loses {len(mine.unsynced) - kept} of {len(mine.unsynced)} unsynced changes")
        if with_power:
            mine.boots += 1
            mine.unsynced.clear()

    def wipe(self, host: str) -> None:
        shutil.rmtree(self.disks.pop(host).folder)
        self.disk_of(host)

    def close_all(self) -> None:
        for mine in self.disks.values():
            for descriptor in mine.open:
                real_close(descriptor)
            mine.open.clear()

    def replacements(self) -> dict[str, Any]:
        """The functions of ottla.storage.files and their replacements."""
        names = ("open_file", "close", "replace_descriptor", "write_at", "truncate", "sync")
        names += ("rename", "link", "unlink", "make_directory")
        assert all(hasattr(files, name) for name in names)
        return {name: getattr(self, name) for name in names}


def _key(descriptor: int) -> Key:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _key_of(path: str) -> Key:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _remove(path: str, key: Key) -> None:
    if _key_of(path) == key:
        real_unlink(path)


def _unwrite(path: str, key: Key, position: int, before: bytes, size: int) -> None:
    """Undo a write, if the file is still there under that name or the one that it got later."""
    if _key_of(path) != key:
        return
    descriptor = real_open(path, os.O_RDWR)
    try:
        real_write(descriptor, before, position)
        real_truncate(descriptor, size)
    finally:
        real_close(descriptor)


def _unrename(source: str | None, target: str, grave: str | None) -> None:
    if source is not None:
        real_rename(target, source)
    if grave is not None:
        real_rename(grave, target)
