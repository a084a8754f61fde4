"""Log files that are put aside when they are large or old: `server.log`, `server.log.1`, `server.log.2` and so on.

Rule: nothing here raises because of a disk. A line that cannot be written is lost and counted, and when the disk takes
lines again one of them says how many are missing.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final, NamedTuple

RETRY_SECONDS: Final = 1.0


class Rotation(NamedTuple):
    """When a file is put aside, and how many such files are kept."""

    max_bytes: int
    max_ms: int  # counted from midnight (UTC), so that a day's lines are together; -1: the age does not matter
    kept: int


class LogFile:
    """One file of a kind. Owned by one thread."""

    def __init__(self, path: str, rotation: Rotation) -> None:
        self.path = path
        self._rotation = rotation
        self._descriptor = -1
        self._size = 0
        self._period = 0
        self._is_torn = False  # a line was written in part only
        self._retry_s = 0.0
        self.lost = 0  # lines, since the disk refused the first of them
        self.lost_total = 0
        self.problem = ""

    def write(self, line: str) -> None:
        """Append a line, or count it as lost."""
        now_s = time.time()
        if self.lost and time.monotonic() < self._retry_s:
            self._lose(self.problem)
            return
        try:
            self._write(line, now_s)
        except OSError as error:
            self._lose(error.strerror or str(error))
            self._retry_s = time.monotonic() + RETRY_SECONDS

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: str, now_s: float) -> None:
        self._open(now_s)
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        if self._is_due(len(data), now_s):
            self._put_aside(now_s)
        if self.lost:
            note = f"({self.lost} lines before this one were lost: {self.problem})\n"
            self._append(b"\n" * self._is_torn + note.encode())
            self.lost = 0
        self._append(data)

    def _append(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        self._size += written
        self._is_torn = written < len(data)
        if self._is_torn:
            self._append(data[written:])  # says why the disk took only a part

    def _lose(self, problem: str) -> None:
        self.lost += 1
        self.lost_total += 1
        self.problem = problem

    def _open(self, now_s: float) -> None:
        if self._descriptor >= 0:
            return
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        self._period = self._period_of(found.st_mtime if found.st_size else now_s)

    def _is_due(self, more_bytes: int, now_s: float) -> bool:
        if self._size == 0:
            return False
        return self._size + more_bytes > self._rotation.max_bytes or self._period_of(now_s) != self._period

    def _period_of(self, time_s: float) -> int:
        max_ms = self._rotation.max_ms
        return int(time_s * 1000) // max_ms if max_ms > 0 else 0

    def _put_aside(self, now_s: float) -> None:
        """Give every file the next number. A file that cannot be renamed is written to further."""
        self._period = self._period_of(now_s)
        kept = self._rotation.kept
        if kept == 0:
            os.ftruncate(self._descriptor, 0)
            self._size = 0
            return
        for number in range(kept - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
        os.replace(self.path, f"{self.path}.1")
        self.close()
        self._open(now_s)

    def __repr__(self) -> str:
        return f"<LogFile {self.path}, {self._size} bytes, {self.lost_total} lines lost>"
