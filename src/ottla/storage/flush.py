"""Making what was written survive a power cut, without stopping the loop that writes.

The log prepares a job on its own thread (pending index entries written, descriptors duplicated), any thread may run it,
and the log takes the result back on its own thread. A failed sync is final: the kernel may have dropped the dirty
pages, so trying again and succeeding would prove nothing (W3 of the reliability list).
"""

from __future__ import annotations

import contextlib

from ottla.storage import files
from ottla.storage.snapshots import SnapshotJob


class FlushJob:
    """The files to sync, and what is safe on disk when that succeeded."""

    def __init__(self, end_offset: int, truncations: int) -> None:
        self.end_offset = end_offset
        self.truncations = truncations  # of the log so far: a truncation meanwhile makes the result void
        self.descriptors: list[int] = []  # of log files, duplicated: theirs may be closed meanwhile
        self.snapshot: SnapshotJob | None = None  # to be written first
        self.paths: list[str] = []  # of smaller files and folders; one that is deleted meanwhile needs no sync
        self.is_done = False
        self.error: OSError | None = None

    def run(self) -> None:
        """Sync everything; runs in any thread, and is done whatever happens: the outcome is in `error`."""
        try:
            if self.snapshot is not None:
                self.snapshot.run()
            for descriptor in self.descriptors:
                files.sync(descriptor)
            for path in self.paths:
                with contextlib.suppress(FileNotFoundError):
                    files.sync_path(path)
        except OSError as error:
            self.error = error
        finally:
            self.is_done = True
            self.close()

    def close(self) -> None:
        """Give the descriptors back; also for a job that is never run."""
        while self.descriptors:
            files.close(self.descriptors.pop())

    def __repr__(self) -> str:
        return f"<FlushJob up to {self.end_offset}, {'done' if self.is_done else 'to do'}, error {self.error}>"
