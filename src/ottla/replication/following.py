"""What a follower does with its leader's answers: where to go on, where its log parts from the leader's.

Rule 1: pure; offsets and epochs are arguments.
Rule 2: what is cut off is decided by leader epochs alone (KIP-101, KIP-279), never by the high watermark: a record past
the watermark that we know may long be committed.
Rule 3: an answer counts only if it is one to the fetch that we would send now: same leader epoch, same offset.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class FetchPosition(NamedTuple):
    """What a follower asks for."""

    offset: int
    last_epoch: int  # of the record before, -1 if there is none
    leader_epoch: int


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_epoch_end_offset: int, own_end_offset: int
) -> int:
    """Where to cut our log, whose leader says: my epoch at or below your last one is this, and it ends there.

    The two in the middle are the same question put to our own log, for the leader's epoch. If we do not have that
    epoch, we cut all that is newer than it and ask again.
    """
    if leader_epoch == NO_EPOCH or own_epoch_end_offset == NO_OFFSET:
        return min(leader_end_offset, own_end_offset)
    if own_epoch != leader_epoch:
        return min(own_epoch_end_offset, own_end_offset)
    return min(own_epoch_end_offset, leader_end_offset, own_end_offset)


def followed_watermark(known: int, leader_high_watermark: int, end_offset: int) -> int:
    """Our high watermark after an answer. What once was committed stays so: it never goes back by what a leader says,
    who may not know yet how far the one before him had come."""
    return max(known, min(leader_high_watermark, end_offset))
