"""One ZooKeeper for one data folder: two would write the same snapshots and logs, and each lose what the other knows.

The lock belongs to an open file, so the kernel takes it back when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from ottla.cli.terminal import ToolError

LOCK_FILE: Final = ".ottla.zookeeper.lock"


def lock_folder(folder: Path) -> int:
    """Make the folder and lock it; the descriptor lives on in the program that this process becomes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _in_use(folder) from None
    os.set_inheritable(lock, True)
    return lock


def check_unlocked(folder: Path) -> None:
    """Say that a server runs on this folder, without a change to it."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return  # no server was ever here; or whoever starts one will say why it cannot be
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder) from None
    finally:
        os.close(lock)


def _in_use(folder: Path) -> ToolError:
    return ToolError(f"another ZooKeeper runs on {folder}: stop it first, or choose another folder with --data DIR")
