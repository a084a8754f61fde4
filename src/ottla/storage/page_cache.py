"""Would reading these bytes wait for the disk? The loop must not; a thread may."""

from __future__ import annotations

import os

from ottla.base.file_range import FileRange
from ottla.storage.segment import Segment
from ottla.storage.segment_times import UNKNOWN

PROBE_INTERVAL_BYTES = 128 << 10  # what the kernel reads ahead in one go
RECENT_BYTES = 32 << 20  # the tail that was just written is taken to be in memory
READ_BYTES = 1 << 20
NO_WAIT = getattr(os, "RWF_NOWAIT", None)

_probe = bytearray(1)


def range_is_cached(file_range: FileRange) -> bool:
    """Whether sending the range now would not block, as far as one byte in 128 KiB tells."""
    if NO_WAIT is None or is_recent(file_range):
        return True
    end = file_range.position + file_range.length
    try:
        for position in range(file_range.position, end, PROBE_INTERVAL_BYTES):
            os.preadv(file_range.descriptor, [_probe], position, NO_WAIT)
        os.preadv(file_range.descriptor, [_probe], end - 1, NO_WAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system that cannot tell
        return True
    return True


def read_ahead(file_range: FileRange) -> None:
    """Bring the range into memory; for a thread."""
    buffer = memoryview(bytearray(min(READ_BYTES, file_range.length)))
    end = file_range.position + file_range.length
    for position in range(file_range.position, end, READ_BYTES):
        os.preadv(file_range.descriptor, [buffer[: end - position]], position)


def is_recent(file_range: FileRange) -> bool:
    segment = file_range.owner
    if not isinstance(segment, Segment) or segment.last_append_offset == UNKNOWN:
        return False
    return file_range.position >= max(segment.size - RECENT_BYTES, segment.verified_from)
