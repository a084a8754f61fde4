"""The link of the local user: the address of the console with its token, in a file that only its owner can read.

Rules:
1. There is one file per port, in the data folder of the console. It is written at each start and removed at the end. A
   killed console leaves a file without a lock, which `read_links` skips.
2. The file is always created anew: an existing symbolic link or a world-readable file must not get the token.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Final

FILE_NAME: Final = "console-{port}.link"
FILE_MODE: Final = 0o600
_FILE_PATTERN: Final = re.compile(r"console-(\d{1,5})\.link")
_LINK_BYTES_MAX: Final = 4_096


def make_link(address: str, token: str) -> str:
    return f"{address}/?token={token}"


class LinkFile:
    """The link file of a running console, until `remove`."""

    def __init__(self, data: Path, port: int, link: str) -> None:
        self.path = data / FILE_NAME.format(port=port)
        self.path.unlink(missing_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
        os.fchmod(self._file, FILE_MODE)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # held until this process ends
        os.write(self._file, f"{link}\n".encode())

    def __repr__(self) -> str:
        return f"<LinkFile {self.path}>"

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._file)


def read_links(data: Path) -> dict[int, str]:
    """The links of running consoles with this data folder, by port. Raises OSError."""
    found = {}
    for path in data.iterdir() if data.is_dir() else ():
        name = _FILE_PATTERN.fullmatch(path.name)
        link = _read(path) if name is not None else None
        if name is not None and link is not None:
            found[int(name[1])] = link
    return dict(sorted(found.items()))


def _read(path: Path) -> str | None:
    """None: the console has ended."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(file, _LINK_BYTES_MAX).decode(errors="replace").strip()
    finally:
        os.close(file)
    return None
