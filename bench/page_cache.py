"""Normalizes the page cache before every measurement, and evicts single files.

A machine that has run for a while has its memory full of cached files: a new page comes from reclaim, which is cheap.
A freshly started virtual machine instead has to take every new page from its host (and gives freed pages back within
seconds), which costs about 2 CPU seconds per GB and hides everything else. So free memory is filled with a
ballast file first: a sparse file, whose pages take memory but no disk.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from bench.paths import cache_folder
from bench.procfs import meminfo_mb

FREE_MB_WANTED = 900
CHUNK_BYTES = 8 << 20
FILL_SECONDS_MAX = 150.0


class PageCache:
    """Fills free memory with the ballast file; stores its position, so that it reads uncached pages."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.path = cache_folder() / "ballast.bin"
        self.size = meminfo_mb("MemTotal") << 20
        self._position = 0

    def __repr__(self) -> str:
        return f"<PageCache {'on' if self.enabled else 'off'}, {meminfo_mb('MemFree')} MiB free>"

    def fill(self) -> float:
        """Reads ballast until little memory is free; returns the seconds it took."""
        start = time.monotonic()
        if self.enabled and meminfo_mb("MemFree") > FREE_MB_WANTED:
            self._fill(start + FILL_SECONDS_MAX)
        return time.monotonic() - start

    def _fill(self, deadline: float) -> None:
        buffer = bytearray(CHUNK_BYTES)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(handle, self.size)
            left = self.size
            while left > 0 and meminfo_mb("MemFree") > FREE_MB_WANTED and time.monotonic() < deadline:
                count = os.preadv(handle, [buffer], self._position)
                self._position = self._position + count if count == CHUNK_BYTES else 0
                left -= CHUNK_BYTES
        finally:
            os.close(handle)


def load(files: Iterable[Path]) -> None:
    """Reads the files, so that their pages are in the cache."""
    buffer = bytearray(CHUNK_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def evict(files: Iterable[Path]) -> int:
    """Write the files back and drop their pages; return their size in bytes."""
    total = 0
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)  # dirty pages cannot be dropped
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(handle).st_size
        finally:
            os.close(handle)
    return total
