"""How long a thread was ready to run and did not, because others had the cores: the kernel counts it."""

from __future__ import annotations

import os
from typing import Final

PATH: Final = "/proc/thread-self/schedstat"  # time on a core, time waiting for one, how often: nanoseconds
BYTES_MAX: Final = 128


class RunDelay:
    """Of the thread that makes it. A kernel that does not count says that nobody ever waits."""

    def __init__(self) -> None:
        self._last_ns = 0
        try:
            self._descriptor = os.open(PATH, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -1

    def since_last(self) -> int:
        """Nanoseconds since somebody asked last; 0 at first."""
        waited_ns = self.total()
        last_ns, self._last_ns = self._last_ns, waited_ns
        return waited_ns - last_ns if last_ns and waited_ns else 0

    def total(self) -> int:
        """Nanoseconds since the thread began."""
        return int(os.pread(self._descriptor, BYTES_MAX, 0).split()[1]) if self._descriptor >= 0 else 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<RunDelay {self._last_ns / 1e6:.0f} ms>"
