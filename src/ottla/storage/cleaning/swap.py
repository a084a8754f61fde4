"""Replaces segments by a cleaned one.

The order is Kafka's, with syncs where Kafka relies on the file system. A crash at any point leaves a directory that
opens in the old or the new state (partition_dir.py); Kafka opens it in the same way:
1. prepare(): `.cleaned` becomes `.swap`, the log file last. From here on the new segment is valid.
2. sync(): in any thread; the names are durable.
3. complete(): the old files become `.deleted`, and the `.swap` files get their final names as second names.
4. sync() again.
5. remove_swap_names(): the `.swap` names are removed, that of the log file first. Until then they complete an
   interrupted step 3.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os

from ottla.storage import files
from ottla.storage.cleaning.job import CleanedGroup
from ottla.storage.cleaning.writer import SUFFIXES, remove_cleaned
from ottla.storage.log import Log
from ottla.storage.segment import Segment

logger = logging.getLogger("ottla.storage.cleaning.swap")


class SegmentSwap:
    """One replacement. prepare(), sync() and remove_swap_names() are for any thread, the rest for the owner's."""

    def __init__(self, log: Log, directory: str, old: list[Segment], group: CleanedGroup) -> None:
        self._log = log
        self._directory = directory  # the directory of the files; the log may have moved since
        self._old = old
        self._group = group

    def is_possible(self) -> bool:
        """Return whether the segments are still those that the cleaner has read."""
        log = self._log
        if log.offline_reason is not None or log.directory != self._directory or log.active in self._old:
            return False
        if self._old[0] not in log.segments:
            return False
        place = log.segments.index(self._old[0])
        return log.segments[place : place + len(self._old)] == self._old

    def prepare(self) -> None:
        """Rename the new files to `.swap`. After an OSError the log is unchanged; call cancel()."""
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
        """Complete the replacement. An error takes the log offline; opening it again completes the replacement."""
        log = self._log
        try:
            for segment in self._old:
                segment.rename_to_deleted()
            for suffix in SUFFIXES:
                if suffix != files.TRANSACTION_INDEX_SUFFIX or self._group.has_transactions:
                    link_or_rename(self._path(suffix) + files.SWAP_SUFFIX, self._path(suffix))
        except OSError as error:
            log.take_offline(f"cannot move a cleaned segment into place in {self._directory}: {error}")
            raise log.offline_error() from error
        segment = Segment(self._directory, self._old[0].base_offset, self._group.size, log.pool)
        segment.has_transactions = self._group.has_transactions
        segment.created_ms = self._old[0].created_ms
        log.replace_segments(self._old, segment, now_ms)

    def remove_swap_names(self) -> None:
        """Remove the `.swap` names. After an error the next start removes them."""
        with contextlib.suppress(OSError):
            for suffix in SUFFIXES:
                files.remove_if_exists(self._path(suffix) + files.SWAP_SUFFIX)

    def cancel(self) -> None:
        """Discard the result: remove its files under either name."""
        try:
            for suffix in SUFFIXES:
                files.remove_if_exists(self._path(suffix) + files.SWAP_SUFFIX)
            remove_cleaned(self._directory)
        except OSError as error:  # the next start removes or completes it
            logger.warning("Cannot remove the cleaned segment %s: %s", self._path(files.LOG_SUFFIX), error)

    def _path(self, suffix: str) -> str:
        return files.segment_path(self._directory, self._old[0].base_offset, suffix)

    def __repr__(self) -> str:
        return f"<SegmentSwap of {[segment.base_offset for segment in self._old]} in {self._directory}>"


def swap_blocking(swap: SegmentSwap, now_ms: int) -> bool:
    """Run all steps, where blocking is allowed; false if the log has changed in the meantime."""
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
    swap.remove_swap_names()
    return True


def link_or_rename(path: str, name: str) -> None:
    """Hard-link a file; without support of the file system, rename it."""
    try:
        files.link(path, name)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        files.rename(path, name)
