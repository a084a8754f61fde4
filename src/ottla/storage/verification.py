"""Never serve a byte that nobody has checked: bytes that an earlier run wrote are checked when they are first read.

Bytes that this process wrote, or that recovery read, need no check (`Segment.verified_from`). For the rest a segment
remembers the ranges that were found sound. Asking is cheap and happens on the loop; checking reads the disk and runs in
a thread. Two threads may check the same bytes at once: at worst one of the results is forgotten and checked again.
"""

from __future__ import annotations

from ottla.base.file_range import FileRange
from ottla.storage.scan import BatchScan, peek
from ottla.storage.segment import Segment


def needs_check(file_range: FileRange) -> bool:
    """Whether check_range must run before these bytes may be sent."""
    segment = segment_of(file_range)
    if file_range.position >= segment.verified_from:
        return False
    end = min(file_range.position + file_range.length, segment.verified_from)
    return not is_covered(segment.verified_ranges or [], file_range.position, end)


def distrust(file_range: FileRange) -> None:
    """Somebody could not make use of these bytes: the whole segment is checked again when it is read."""
    segment = segment_of(file_range)
    segment.verified_from = segment.size
    segment.verified_ranges = None


def check_range(file_range: FileRange) -> int:
    """Check every batch of the range, in any thread; the range must start with a batch, as those of a log do.

    A range with a bad batch in it is shortened to end before it; KafkaError(CORRUPT_MESSAGE) if it is the first.
    Returns where what remember() may be told of ends.
    """
    segment = segment_of(file_range)
    start = file_range.position
    sound_end, is_bad = find_sound_end(segment, file_range)
    if is_bad:
        error = segment.corrupt(sound_end)
        if sound_end == start:
            raise error
        file_range.length = min(file_range.length, sound_end - start)
    return min(sound_end, segment.verified_from)


def find_sound_end(segment: Segment, file_range: FileRange) -> tuple[int, bool]:
    """Where the sound batches of the range end, and whether a bad one follows."""
    end = min(file_range.position + file_range.length, segment.verified_from)
    scan = BatchScan(file_range.descriptor, file_range.position, segment.size, True)
    order = BatchOrder(segment, file_range.descriptor)
    while scan.next_position < end:
        if not scan.advance():
            return scan.position, True
        bad_position = order.add(scan.position, scan.base_offset, scan.last_offset, scan.next_position)
        if bad_position >= 0:
            return bad_position, True
    # What follows the range may prove that its last batch has a wrong offset.
    position = scan.next_position
    if position >= segment.size:
        is_bad = 0 <= segment.next_base_offset <= order.last_offset
        return (order.position, True) if is_bad else (position, False)
    base_offset, last_offset, batch_bytes = peek(file_range.descriptor, position, segment.size)
    if batch_bytes:
        bad_position = order.add(position, base_offset, last_offset, position + batch_bytes)
        if 0 <= bad_position < position:
            return bad_position, True
    return position, False


class BatchOrder:
    """Offsets stand outside of the checksum; a wrong one shows in that batches do not follow each other.

    Of two batches that contradict each other the one lies that does not fit its other neighbour. A gap is believed
    to come from compaction only if all batches of the segment stand in order; else it is where something is missing.
    """

    def __init__(self, segment: Segment, descriptor: int) -> None:
        self.segment = segment
        self.descriptor = descriptor
        self.position = -1  # of the batch before
        self.last_offset = segment.base_offset - 1
        self.follows_exactly = False  # the batch before follows the one before it without a gap

    def add(self, position: int, base_offset: int, last_offset: int, next_position: int) -> int:
        """Take the next batch; the position of a bad one, or -1."""
        if base_offset <= self.last_offset:
            is_previous_bad = self.position >= 0 and not self.follows_exactly
            return self.position if is_previous_bad and self.fits_next(last_offset, next_position) else position
        self.follows_exactly = self.position >= 0 and base_offset == self.last_offset + 1
        if self.position >= 0 and not self.follows_exactly and not is_ascending(self.segment, self.descriptor):
            return position
        self.position = position
        self.last_offset = last_offset
        return -1

    def fits_next(self, last_offset: int, next_position: int) -> bool:
        """Whether what follows is the next offset, which proves that this batch is right."""
        if next_position < self.segment.size:
            next_offset = peek(self.descriptor, next_position, self.segment.size)[0]
        else:
            next_offset = self.segment.next_base_offset
        return next_offset < 0 or next_offset == last_offset + 1


def is_ascending(segment: Segment, descriptor: int) -> bool:
    """Whether the offsets of all batches rise; read once, and only if a gap asks for it."""
    if segment.is_ascending is None:
        last_offset = segment.base_offset - 1
        scan = BatchScan(descriptor, 0, segment.size, False)
        while scan.advance() and scan.base_offset > last_offset:
            last_offset = scan.last_offset
        segment.is_ascending = scan.position >= segment.size
    return segment.is_ascending


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
