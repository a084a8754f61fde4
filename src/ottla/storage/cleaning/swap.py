"""Puts a cleaned segment into the place of the segments that it was made from.

The order is Kafka's, with syncs where Kafka trusts the file system; a crash at any point leaves a folder that opens
as the old or the new state (storage/folder.py), and Kafka opens it in the same way:
1. prepare(): `.cleaned` becomes `.swap`, the log file last. From here on the new segment counts.
2. sync(): in any thread; the names survive a power cut.
3. complete(): the old files become `.deleted`, and the `.swap` files get their final names beside those.
4. sync() again.
5. tidy(): the `.swap` names go, that of the log file first. Before that they would mend any half of step 3.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os

from ottla.storage import files
from ottla.storage.cleaning.job import CleanedGroup
from ottla.storage.cleaning.writer import SUFFIXES, remove_cleaned
from ottla.storage.log_files import LogFiles
from ottla.storage.segment import Segment

logger = logging.getLogger("ottla.storage.cleaning.swap")


class SegmentSwap:
    """One replacement. prepare(), sync() and tidy() run in any thread; the rest belongs to the owner of the log."""

    def __init__(self, log: LogFiles, directory: str, old: list[Segment], group: CleanedGroup) -> None:
        self._log = log
        self._directory = directory  # where the files were made; the log may have moved since
        self._old = old
        self._group = group

    def is_possible(self) -> bool:
        """Whether the log is still what it was when the cleaner read it."""
        log = self._log
        if log.failure is not None or log.directory != self._directory or log.active in self._old:
            return False
        if self._old[0] not in log.segments:
            return False
        place = log.segments.index(self._old[0])
        return log.segments[place : place + len(self._old)] == self._old

    def prepare(self) -> None:
        """OSError leaves the log as it is; cancel() then."""
        path = self._path(files.LOG_SUFFIX) + files.CLEANED_SUFFIX
        size = os.stat(path).st_size
        if size != self._group.size:
            raise OSError(f"{path} has {size} bytes, not {self._group.size}")
        for suffix in reversed(SUFFIXES):
            if suffix != files.TRANSACTION_INDEX_SUFFIX or self._group.has_transactions:
                path = self._path(suffix)
                files.rename(path + files.CLEANED_SUFFIX, path + files.SWAP_SUFFIX)

    def sync(self) -> None:
        files.sync_path(self._directory)

    def complete(self, now_ms: int) -> None:
        """An error half-way puts the log out of service: opening it again completes the replacement."""
        log = self._log
        try:
            for segment in self._old:
                segment.rename_to_deleted()
            for suffix in SUFFIXES:
                if suffix != files.TRANSACTION_INDEX_SUFFIX or self._group.has_transactions:
                    give_second_name(self._path(suffix) + files.SWAP_SUFFIX, self._path(suffix))
        except OSError as error:
            log.fail(f"cannot put a cleaned segment into its place in {self._directory}: {error}")
            raise log.refusal() from error
        segment = Segment(self._directory, self._old[0].base_offset, self._group.size, log.pool)
        segment.has_transactions = self._group.has_transactions
        segment.created_ms = self._old[0].created_ms
        log.replace_segments(self._old, segment, now_ms)

    def tidy(self) -> None:
        """What stays after an error is removed by the next start."""
        with contextlib.suppress(OSError):
            for suffix in SUFFIXES:
                files.remove_if_there(self._path(suffix) + files.SWAP_SUFFIX)

    def cancel(self) -> None:
        """The result is not wanted: remove it, under whichever name it stands."""
        try:
            for suffix in SUFFIXES:
                files.remove_if_there(self._path(suffix) + files.SWAP_SUFFIX)
            remove_cleaned(self._directory)
        except OSError as error:  # the next start removes or completes it
            logger.warning("Cannot remove the cleaned segment %s: %s", self._path(files.LOG_SUFFIX), error)

    def _path(self, suffix: str) -> str:
        return files.segment_path(self._directory, self._old[0].base_offset, suffix)

    def __repr__(self) -> str:
        return f"<SegmentSwap of {[segment.base_offset for segment in self._old]} in {self._directory}>"


def swap_at_once(swap: SegmentSwap, now_ms: int) -> bool:
    """All steps, for those who have nobody to wait for; False if the log has changed meanwhile."""
    if not swap.is_possible():
        swap.cancel()
        return False
    try:
        swap.prepare()
        swap.sync()
    except OSError:
        swap.cancel()
        raise
    swap.complete(now_ms)
    swap.sync()
    swap.tidy()
    return True


def give_second_name(path: str, name: str) -> None:
    """Both names until the first one is removed; where the file system knows no links, a rename has to do."""
    try:
        files.link(path, name)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        files.rename(path, name)
