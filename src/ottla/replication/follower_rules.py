"""Rules for a follower that handles fetch responses: where to continue, and where its log diverges from the leader's.

Rule 1: pure; offsets and epochs are arguments.
Rule 2: leader epochs alone decide about truncation (KIP-101, KIP-279), never the high watermark: a record above the
watermark that this replica knows may already be committed.
Rule 3: a response is used only if it belongs to the fetch that would be sent now: same leader epoch, same offset.
"""

from __future__ import annotations

from typing import Final, NamedTuple

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class FetchPosition(NamedTuple):
    """The position of a follower's next fetch."""

    offset: int
    last_epoch: int  # of the record before `offset`, -1 if there is none
    leader_epoch: int


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, own_epoch: int, own_epoch_end_offset: int, own_end_offset: int
) -> int:
    """Return where to truncate the local log. The leader has reported its largest epoch at or below the last local one,
    and its end offset. `own_epoch` and `own_epoch_end_offset` are the local values for that epoch. If the local log
    does not have the epoch, all newer epochs are truncated and the follower queries the leader again.
    """
    if leader_epoch == NO_EPOCH or own_epoch_end_offset == NO_OFFSET:
        return min(leader_end_offset, own_end_offset)
    if own_epoch != leader_epoch:
        return min(own_epoch_end_offset, own_end_offset)
    return min(own_epoch_end_offset, leader_end_offset, own_end_offset)


def follower_high_watermark(known: int, leader_high_watermark: int, end_offset: int) -> int:
    """Return the high watermark after a response. It never decreases: a new leader may not know yet how far the
    previous one had advanced it.
    """
    return max(known, min(leader_high_watermark, end_offset))
