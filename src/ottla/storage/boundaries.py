"""Where batches end, as far as the sparse index of a segment tells without reading. Compiled with mypyc where possible.

Whoever may have so many bytes gets whole batches only: a piece of one is thrown away by its receiver and sent again.
"""

from __future__ import annotations

from typing import Final

from ottla.base.file_range import FileRange
from ottla.storage.index import POSITION_MASK
from ottla.storage.scan import UNFINISHED, BatchScan
from ottla.storage.segment import Segment

EXACT_BYTES_MAX: Final = 64 << 10  # what stands between two entries is a good part of less
HOPS_MAX: Final = 100  # between two entries of an index stand 4096 bytes, and one batch more


def position_before(segment: Segment, position: int) -> int:
    """The start of a batch before this position, as far as the index knows one."""
    index = segment.index()
    place = index.lookup_position(position) - 1 if position > 0 else -1
    return index.entries[place] & POSITION_MASK if place >= 0 else 0


def some_batches(
    segment: Segment, position: int, batch_bytes: int, max_bytes: int, minimum_one: bool
) -> FileRange | None:
    """Whole batches of at most so many bytes, from the one at this position on; there is more than that.

    With `minimum_one` the first is among them, however large it is; without, there may be none.
    """
    length = whole_bytes(segment, position, batch_bytes, max_bytes)
    if length == 0:
        return segment.make_range(position, batch_bytes) if minimum_one else None
    file_range = segment.make_range(position, length)
    file_range.cut_bytes = max_bytes - length
    return file_range


def whole_bytes(segment: Segment, position: int, batch_bytes: int, bytes_max: int) -> int:
    """How many of the next `bytes_max` bytes belong to whole batches; 0 if the first has more.

    Of many bytes it may be a little less than there is: up to the last batch that the index knows.
    """
    if batch_bytes >= bytes_max:
        return batch_bytes if batch_bytes == bytes_max else 0
    first_end = position + batch_bytes
    limit = position + bytes_max
    end = position_before(segment, limit + 1)
    if end < first_end or bytes_max < EXACT_BYTES_MAX:
        end = hop_to_end(segment, max(end, first_end), limit)
    return end - position


def hop_to_end(segment: Segment, position: int, limit: int) -> int:
    """The same from one batch to the next: a small limit, or small batches with a large one behind them.

    The limit itself if it stays unknown: behind very many small batches there is little to lose, and what is damaged is
    found by those who check.
    """
    scan = BatchScan(segment.open_descriptor(), position, limit, False)
    for _ in range(HOPS_MAX):
        if not scan.advance():
            return scan.position if scan.problem is None or scan.problem in UNFINISHED else limit
    return limit
