"""The leader epochs of one partition: for each epoch, the first offset that its leader wrote (KIP-101, KIP-279).

They are stored in `leader-epoch-checkpoint` next to the segments. Each batch also contains its epoch, so a lost or
damaged file is rebuilt from the log. The file is therefore written without a sync, and synced together with the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ottla.storage import files
from ottla.storage.checkpoints import CheckpointError, format_lines, parse_lines

logger = logging.getLogger("ottla.storage.leader_epochs")

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochCache:
    """Pairs of (epoch, start offset), both strictly ascending."""

    __slots__ = ("_lock", "_version", "_written_version", "directory", "entries", "is_unsynced")

    def __init__(self, directory: str, entries: list[tuple[int, int]] | None = None) -> None:
        self.directory = directory
        self.entries = entries or []
        self.is_unsynced = False
        self._version = 0  # version of the entries
        self._written_version = 0  # version of the entries in the file
        self._lock = threading.Lock()

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that a leader of this epoch writes from this offset on. Removes conflicting entries, as in Kafka."""
        entries = self.entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.write()

    def add_from_batch(self, epoch: int, offset: int) -> None:
        """Add the epoch of a batch during recovery; does not write the file.

        The CRC does not cover the epoch, so the epoch of a single batch may be wrong. If the previous epoch appears
        again, the entry in between was such a case and is removed.
        """
        entries = self.entries
        if not entries or epoch > entries[-1][0]:
            if not entries or offset > entries[-1][1]:
                entries.append((epoch, offset))
        elif len(entries) > 1 and epoch == entries[-2][0] and offset > entries[-1][1]:
            entries.pop()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the response to OffsetForLeaderEpoch:

        the largest known epoch at or below this one, and its end offset.
        """
        if epoch < 0 or not self.entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        if epoch > self.entries[-1][0]:
            return NO_EPOCH, NO_OFFSET
        found = epoch if epoch < self.entries[0][0] else NO_EPOCH
        for known_epoch, start_offset in self.entries:
            if known_epoch > epoch:
                return found, start_offset
            found = known_epoch
        return NO_EPOCH, NO_OFFSET

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the leader that wrote this offset, or -1."""
        found = NO_EPOCH
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or past the end of the log."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self.write()

    def truncate_from_start(self, start_offset: int, *, writes: bool = True) -> None:
        """Remove epochs that ended before the log start offset; the epoch at that offset now starts there."""
        before = [entry for entry in self.entries if entry[1] <= start_offset]
        if not before or (before[-1][1] == start_offset and len(before) == 1):
            return
        after = [entry for entry in self.entries if entry[1] > start_offset]
        self.entries = [(before[-1][0], start_offset), *after]
        self._version += 1
        if writes:
            self.write()

    def write(self) -> None:
        """Write the file. A failure is only logged: a later write, or a rebuild from the log, repairs it."""
        self._version += 1
        self.begin_write()()

    def begin_write(self) -> Callable[[], None]:
        """Return a function that writes the file in any thread.

        Of two writers, the one with newer entries is effective.
        """
        self.is_unsynced = True
        text = format_lines(f"{epoch} {start_offset}" for epoch, start_offset in self.entries)
        return partial(self._write, self.path(), text.encode(), self._version)

    def _write(self, path: str, data: bytes, version: int) -> None:
        with self._lock:
            if version <= self._written_version:
                return
            try:
                files.replace_file(path, data, is_durable=False)
                self._written_version = version
            except OSError as error:
                logger.warning("Cannot write %s: %s", path, error)

    def path(self) -> str:
        return f"{self.directory}/{FILE_NAME}"

    def __repr__(self) -> str:
        return f"<LeaderEpochCache {self.entries}>"


def load_epochs(directory: str) -> LeaderEpochCache:
    """Return the epochs in the file; a missing or empty file has none. Raises CheckpointError for invalid content."""
    epochs = LeaderEpochCache(directory)
    try:
        data = files.read_file(epochs.path())
    except FileNotFoundError:
        return epochs
    for line in parse_lines(data, epochs.path()):
        epoch, start_offset = parse_epoch_entry(line, epochs.path())
        if epochs.entries and (epoch <= epochs.entries[-1][0] or start_offset < epochs.entries[-1][1]):
            raise CheckpointError(f"{epochs.path()}: epochs are not ascending")
        epochs.entries.append((epoch, start_offset))
    return epochs


def parse_epoch_entry(line: str, path: str) -> tuple[int, int]:
    words = line.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise CheckpointError(f"{path}: malformed line {line!r}")
    return int(words[0]), int(words[1])
