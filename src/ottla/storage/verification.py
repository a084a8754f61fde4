"""Never serve a byte that nobody has checked: bytes that an earlier run wrote are checked when they are first read.

Bytes that this process wrote, or that recovery read, need no check (`Segment.verified_from`). For the rest a segment
remembers the ranges that were found sound. Asking is cheap and happens on the loop; checking reads the disk and runs in
a thread. Two threads may check the same bytes at once: at worst one of the results is forgotten and checked again.
"""

from __future__ import annotations

from ottla.base.file_range import FileRange
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment


def needs_check(file_range: FileRange) -> bool:
    """Whether check_range must run before these bytes may be sent."""
    segment = segment_of(file_range)
    if file_range.position >= segment.verified_from:
        return False
    end = min(file_range.position + file_range.length, segment.verified_from)
    return not is_covered(segment.verified_ranges or [], file_range.position, end)


def check_range(file_range: FileRange) -> None:
    """Check every batch of the range, in any thread; the range must start with a batch, as those of a log do.

    A range with a bad batch in it is shortened to end before it; KafkaError(CORRUPT_MESSAGE) if it is the first.
    """
    segment = segment_of(file_range)
    start = file_range.position
    end = min(start + file_range.length, segment.verified_from)
    scan = BatchScan(file_range.descriptor, start, segment.size, True)
    next_offset = segment.base_offset
    while scan.next_position < end:
        if not scan.advance() or scan.base_offset < next_offset:
            error = segment.corrupt(scan.position)
            if scan.position == start:
                raise error
            file_range.length = scan.position - start
            break
        next_offset = scan.last_offset + 1
    remember(segment, start, min(scan.next_position, segment.verified_from))


def remember(segment: Segment, start: int, end: int) -> None:
    merged = merge(segment.verified_ranges or [], start, end)
    if merged[0] == (0, segment.verified_from):
        segment.verified_from = 0
        segment.verified_ranges = None
    else:
        segment.verified_ranges = merged


def merge(ranges: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """A new list, in order and without overlaps, that covers all of these and one more."""
    merged: list[tuple[int, int]] = []
    for range_start, range_end in sorted([*ranges, (start, end)]):
        if merged and range_start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], range_end))
        else:
            merged.append((range_start, range_end))
    return merged


def is_covered(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    return any(range_start <= start and end <= range_end for range_start, range_end in ranges)


def segment_of(file_range: FileRange) -> Segment:
    segment = file_range.owner
    assert isinstance(segment, Segment)
    return segment
