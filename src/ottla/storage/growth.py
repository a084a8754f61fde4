"""Room on the disk ahead of a log that grows fast.

ext4 decides where bytes go when it writes them back, and whoever appends to the file meanwhile waits for that: the loop
waited for 40 to 80 ms at a time, and for an eighth of all time, while the kernel wrote back what producers sent. Where
the room is set aside before, appending waits for nobody. Only a segment that grows by megabytes a second gets any:
never more than half of what it holds, nor past the size at which the next one begins. It gives back what it did not
need, and its length is always that of what was written.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from ottla.storage import files

if TYPE_CHECKING:
    from ottla.storage.segment import Segment

logger = logging.getLogger("ottla.storage.growth")

LOOK_BYTES: Final = 8 << 20  # growth is looked at whenever so much was written
FAST_BYTES_PER_SECOND: Final = 8 << 20
ROOM_BYTES_MAX: Final = 64 << 20
FREE_SHARE: Final = 16  # of the free room of the disk, at most one part in so many is set aside for one segment
TOO_LITTLE_BYTES: Final = 2 << 20  # is not given back
NEVER: Final = 1 << 62


def look_at_growth(segment: Segment, segment_bytes: int) -> None:
    """Set room aside if the segment has grown fast since the last look, and say when the next one is due."""
    size = segment.size
    now_ns = time.monotonic_ns()
    grown = size - segment.looked_size
    is_fast = segment.looked_ns > 0 and grown * 1_000_000_000 >= FAST_BYTES_PER_SECOND * (now_ns - segment.looked_ns)
    segment.looked_size = size
    segment.looked_ns = now_ns
    segment.look_at = size + LOOK_BYTES
    if is_fast:
        try:
            _set_aside(segment, min(size // 2, ROOM_BYTES_MAX, segment_bytes - size))
        except OSError as error:  # then it takes its room as it grows
            logger.debug("no room is set aside for %s: %s", segment, error)
            segment.look_at = NEVER


def _set_aside(segment: Segment, room: int) -> None:
    descriptor = segment.open_descriptor()
    if TOO_LITTLE_BYTES < room <= files.free_bytes(descriptor) // FREE_SHARE:
        files.reserve(descriptor, segment.size, room)
        segment.room_end = segment.size + room
        segment.look_at = segment.size + room - room // 4  # before it is used up


def has_room_left(segment: Segment) -> bool:
    """Whether the segment holds so much room that it is worth giving back."""
    return segment.room_end - segment.size > TOO_LITTLE_BYTES
