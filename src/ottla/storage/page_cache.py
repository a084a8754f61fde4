"""Check whether reading a range would wait for the disk, which only a worker thread may do."""

from __future__ import annotations

import os

from ottla.base.file_range import FileRange
from ottla.storage.segment import UNKNOWN, Segment

PROBE_INTERVAL_BYTES = 128 << 10  # the kernel's default read-ahead
RECENT_BYTES = 32 << 20  # the recently written tail is assumed to be cached
READ_BYTES = 1 << 20
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", None)

_probe = bytearray(1)


def is_range_cached(file_range: FileRange) -> bool:
    """Return whether sending the range would not block, judged by one byte in 128 KiB."""
    if RWF_NOWAIT is None or is_recently_appended(file_range):
        return True
    end = file_range.position + file_range.length
    try:
        for position in range(file_range.position, end, PROBE_INTERVAL_BYTES):
            os.preadv(file_range.descriptor, [_probe], position, RWF_NOWAIT)
        os.preadv(file_range.descriptor, [_probe], end - 1, RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system without RWF_NOWAIT
        return True
    return True


def read_ahead(file_range: FileRange) -> None:
    """Read the range into the page cache; for a worker thread."""
    buffer = memoryview(bytearray(min(READ_BYTES, file_range.length)))
    end = file_range.position + file_range.length
    for position in range(file_range.position, end, READ_BYTES):
        os.preadv(file_range.descriptor, [buffer[: end - position]], position)


def is_recently_appended(file_range: FileRange) -> bool:
    segment = file_range.owner
    if not isinstance(segment, Segment) or segment.last_append_offset == UNKNOWN:
        return False
    return file_range.position >= max(segment.size - RECENT_BYTES, segment.verified_from)
