"""Checks of stored bytes before they are served for the first time. Compiled with mypyc where possible.

Bytes that this process wrote, or that recovery read, need no check (`Segment.verified_from`). For other bytes a segment
stores the ranges that were found valid. needs_check() is cheap and runs on the event loop; check_range() reads the disk
and runs in a thread. Two threads may check the same bytes at once: at worst one result is lost and the check is
repeated.

The CRC does not cover the leader epoch of a batch. A consumer would treat a wrong epoch as a diverging log, and a
follower could never continue after it. The correct epoch is known from the epochs of the log and from the adjacent
batches; only if both agree, the field is repaired.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple

from ottla.base.file_range import FileRange
from ottla.storage import files
from ottla.storage.leader_epochs import LeaderEpochCache
from ottla.storage.scan import BatchScan, peek_header
from ottla.storage.segment import Segment


def needs_check(file_range: FileRange) -> bool:
    """Return whether check_range must run before these bytes may be sent."""
    segment = segment_of(file_range)
    if file_range.position >= segment.verified_from:
        return False
    end = min(file_range.position + file_range.length, segment.verified_from)
    return not is_covered(segment.verified_ranges or [], file_range.position, end)


def invalidate_checks(file_range: FileRange) -> None:
    """Check the whole segment again before it is served: a reader has reported corrupt bytes."""
    segment = segment_of(file_range)
    segment.verified_from = segment.size
    segment.verified_ranges = None


class Truncations:
    """How often a log was truncated, for other threads: their work is void if the log was truncated meanwhile.

    The owner of the log holds the lock while it truncates, another thread while it writes into a segment.
    """

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.Lock()


def check_and_repair(file_range: FileRange, epochs: LeaderEpochCache, truncations: Truncations) -> int:
    """As check_range(), and repair wrong leader epochs.

    After a truncation other batches may already be written at the positions of those that were read.
    """
    with truncations.lock:
        count = truncations.count
    sound_end = check_range(file_range)
    wrong_epochs = wrong_leader_epochs(segment_of(file_range), file_range, epochs)
    if wrong_epochs:
        with truncations.lock:
            if truncations.count == count:
                repair_leader_epochs(segment_of(file_range), file_range, wrong_epochs)
    return sound_end


def check_range(file_range: FileRange) -> int:
    """Check every batch of a range that starts at a batch; in any thread.

    A range with a corrupt batch is shortened to end before it; KafkaError(CORRUPT_MESSAGE) if that batch is the first.
    Returns the end of the verified bytes, for add_verified_range().
    """
    segment = segment_of(file_range)
    start = file_range.position
    sound_end, is_bad = find_valid_end(segment, file_range)
    if is_bad:
        error = segment.corrupt_error(sound_end)
        if sound_end == start:
            raise error
        file_range.length = min(file_range.length, sound_end - start)
    return min(sound_end, segment.verified_from)


def find_valid_end(segment: Segment, file_range: FileRange) -> tuple[int, bool]:
    """Return the end of the valid batches in the range, and whether a corrupt batch follows."""
    end = min(file_range.position + file_range.length, segment.verified_from)
    scan = BatchScan(file_range.descriptor, file_range.position, segment.size, True)
    order = BatchOrder(segment, file_range.descriptor)
    while scan.next_position < end:
        if not scan.advance():
            return scan.position, True
        bad_position = order.add(scan.position, scan.base_offset, scan.last_offset, scan.next_position)
        if bad_position >= 0:
            return bad_position, True
    # The next batch may prove that the last batch of the range has a wrong offset.
    position = scan.next_position
    if position >= segment.size:
        is_bad = 0 <= segment.next_base_offset <= order.last_offset
        return (order.position, True) if is_bad else (position, False)
    base_offset, last_offset, batch_bytes = peek_header(file_range.descriptor, position, segment.size)
    if batch_bytes:
        bad_position = order.add(position, base_offset, last_offset, position + batch_bytes)
        if 0 <= bad_position < position:
            return bad_position, True
    return position, False


class BatchOrder:
    """Detects wrong offsets, which the CRC does not cover, by the order of batches.

    Of two batches in conflict, the wrong one is that which conflicts with its other neighbor. A gap is accepted as a
    result of compaction only if all batches of the segment ascend; otherwise data is missing there.
    """

    def __init__(self, segment: Segment, descriptor: int) -> None:
        self.segment = segment
        self.descriptor = descriptor
        self.position = -1  # of the previous batch
        self.last_offset = segment.base_offset - 1
        self.follows_exactly = False  # the previous batch follows its predecessor without a gap

    def add(self, position: int, base_offset: int, last_offset: int, next_position: int) -> int:
        """Add the next batch; returns the position of a corrupt batch, or -1."""
        if base_offset <= self.last_offset:
            is_previous_bad = self.position >= 0 and not self.follows_exactly
            return (
                self.position if is_previous_bad and self.precedes_next_offset(last_offset, next_position) else position
            )
        self.follows_exactly = self.position >= 0 and base_offset == self.last_offset + 1
        if self.position >= 0 and not self.follows_exactly and not is_ascending(self.segment, self.descriptor):
            return position
        self.position = position
        self.last_offset = last_offset
        return -1

    def precedes_next_offset(self, last_offset: int, next_position: int) -> bool:
        """Return whether the next batch starts at the next offset, which proves that this batch is valid."""
        if next_position < self.segment.size:
            next_offset = peek_header(self.descriptor, next_position, self.segment.size)[0]
        else:
            next_offset = self.segment.next_base_offset
        return next_offset < 0 or next_offset == last_offset + 1


def is_ascending(segment: Segment, descriptor: int) -> bool:
    """Return whether the offsets of all batches ascend; computed once, only if there is a gap."""
    if segment.is_ascending is None:
        last_offset = segment.base_offset - 1
        scan = BatchScan(descriptor, 0, segment.size, False)
        while scan.advance() and scan.base_offset > last_offset:
            last_offset = scan.last_offset
        segment.is_ascending = scan.position >= segment.size
    return segment.is_ascending


def add_verified_range(segment: Segment, start: int, end: int) -> None:
    merged = merge_ranges(segment.verified_ranges or [], start, end)
    if merged[0] == (0, segment.verified_from):
        segment.verified_from = 0
        segment.verified_ranges = None
    else:
        segment.verified_ranges = merged


def merge_ranges(ranges: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return an ordered list without overlaps that covers these ranges and one more."""
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


logger = logging.getLogger("ottla.storage.range_checks")

EPOCH_AT: Final = 12  # in the batch header
EPOCH_BYTES: Final = 4


class EpochEntry(NamedTuple):
    """A batch and its leader epoch."""

    position: int
    base_offset: int
    epoch: int


def wrong_leader_epochs(segment: Segment, file_range: FileRange, epochs: LeaderEpochCache) -> list[EpochEntry]:
    """Batches of a verified range that need another epoch, with that epoch; in any thread."""
    if has_one_epoch(segment, file_range, epochs):
        return []
    found = batch_epochs(segment, file_range)
    wrong: list[EpochEntry] = []
    for place, batch in enumerate(found):
        epoch = epochs.epoch_of(batch.base_offset)
        if batch.epoch == epoch or min(batch.epoch, epoch) < 0:
            continue
        around = [other.epoch for other in (*found[max(place - 1, 0) : place], *found[place + 1 : place + 2])]
        if around and all(other == epoch for other in around):
            wrong.append(batch._replace(epoch=epoch))
    return wrong


def repair_leader_epochs(segment: Segment, file_range: FileRange, wrong: list[EpochEntry]) -> None:
    for batch in wrong:
        files.write_all(file_range.descriptor, batch.epoch.to_bytes(EPOCH_BYTES, "big"), batch.position + EPOCH_AT)
        logger.warning(
            "Repaired the leader epoch of offset %d in %s: it is %d",
            batch.base_offset,
            segment.path(files.LOG_SUFFIX),
            batch.epoch,
        )


def has_one_epoch(segment: Segment, file_range: FileRange, epochs: LeaderEpochCache) -> bool:
    """Return whether all batches have the one epoch that the log has for them: the usual case, checked quickly."""
    scan = BatchScan(file_range.descriptor, file_range.position, segment.size, False)
    if not scan.advance():
        return True
    end = file_range.position + file_range.length
    epoch = scan.leader_epoch
    if epochs.epoch_of(scan.base_offset) != epoch:
        return False
    last_offset = scan.base_offset
    while scan.next_position < end and scan.advance():
        if scan.leader_epoch != epoch:
            return False
        last_offset = scan.base_offset
    return epochs.epoch_of(last_offset) == epoch


def batch_epochs(segment: Segment, file_range: FileRange) -> list[EpochEntry]:
    """Return the batches of the range and the next one."""
    end = file_range.position + file_range.length
    scan = BatchScan(file_range.descriptor, file_range.position, segment.size, False)
    found: list[EpochEntry] = []
    while scan.advance():
        found.append(EpochEntry(scan.position, scan.base_offset, scan.leader_epoch))
        if scan.position >= end:
            break
    return found
