"""Segments that were taken out of a log: their files get other names, in any thread, and go later.

A crash before that leaves them in the log, and retention comes by again. The epochs are written first: they tell the
next start that whatever is missing below was meant to go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ottla.storage.segment import Segment


class DropJob:
    """The renames to do. run() may be called more than once, and by two at the same time: then one waits."""

    def __init__(self, write_epochs: Callable[[], None], segments: list[tuple[int, Segment]]) -> None:
        self.renamed: list[tuple[int, Segment]] = []  # (when to remove the files, segment)
        self.left = segments
        self.error: OSError | None = None
        self._write_epochs = write_epochs
        self._lock = threading.Lock()

    def run(self) -> None:
        """Done whatever happens: what could not be renamed is `left`, with the `error`."""
        with self._lock:
            self._write_epochs()
            try:
                while self.left:
                    self.left[0][1].rename_to_deleted()
                    self.renamed.append(self.left.pop(0))
            except OSError as error:
                self.error = error

    def __repr__(self) -> str:
        return f"<DropJob {len(self.renamed)} renamed, {len(self.left)} left>"
