"""Leader epochs in stored batches that damage has changed: the checksum does not cover them.

A reader would take a wrong one for another history of the log, and a follower would never get past it. What is right is
known twice, from the epochs of the log and from the batches around; only if both agree, the field is written anew.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from ottla.base.file_range import FileRange
from ottla.storage import files
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.scan import BatchScan
from ottla.storage.segment import Segment

logger = logging.getLogger("ottla.storage.epoch_mending")

EPOCH_AT: Final = 12  # in the header of a batch
EPOCH_BYTES: Final = 4


class Labelled(NamedTuple):
    """A batch and what it says about who wrote it."""

    position: int
    base_offset: int
    epoch: int


def mend_epochs(segment: Segment, file_range: FileRange, epochs: LeaderEpochs) -> int:
    """In any thread, for bytes that are sound otherwise; how many batches were mended."""
    if is_uniform(segment, file_range, epochs):
        return 0
    found = labelled_batches(segment, file_range)
    mended = 0
    for place, batch in enumerate(found):
        epoch = epochs.epoch_of(batch.base_offset)
        if batch.epoch == epoch or min(batch.epoch, epoch) < 0:
            continue
        around = [other.epoch for other in (*found[max(place - 1, 0) : place], *found[place + 1 : place + 2])]
        if around and all(other == epoch for other in around):
            right = epoch.to_bytes(EPOCH_BYTES, "big")
            files.write_whole(file_range.descriptor, right, batch.position + EPOCH_AT)
            mended += 1
            logger.warning(
                "Offset %d in %s said that it is of leader epoch %d; it is of %d, mended",
                batch.base_offset,
                segment.path(files.LOG_SUFFIX),
                batch.epoch,
                epoch,
            )
    return mended


def is_uniform(segment: Segment, file_range: FileRange, epochs: LeaderEpochs) -> bool:
    """Whether all batches are of the one epoch that the log knows for them: nearly always, and quickly told."""
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


def labelled_batches(segment: Segment, file_range: FileRange) -> list[Labelled]:
    """Those of the range and the one behind it."""
    end = file_range.position + file_range.length
    scan = BatchScan(file_range.descriptor, file_range.position, segment.size, False)
    found: list[Labelled] = []
    while scan.advance():
        found.append(Labelled(scan.position, scan.base_offset, scan.leader_epoch))
        if scan.position >= end:
            break
    return found
