"""Committed offsets as they are kept."""

from __future__ import annotations

import gc

import pytest

from ottla.groups.offset_records import OffsetOfRecord
from ottla.groups.offsets import Committed, Offsets

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize("metadata", ["", "x", "größer", "m" * 4096])
@pytest.mark.parametrize(("offset", "epoch", "time_ms", "expire_ms"), [(0, -1, 0, -1), (INT64_MAX, 2**31 - 1, -1, 5)])
def test_what_is_committed_is_told_again(metadata: str, offset: int, epoch: int, time_ms: int, expire_ms: int) -> None:
    offsets = Offsets()
    offsets.commit(OffsetOfRecord("g", "t", 3, offset, epoch, metadata, time_ms, expire_ms))
    assert offsets.get("g", "t", 3) == Committed(offset, epoch, metadata, time_ms, expire_ms, 1)
    assert offsets.get("g", "t", 4) is None


def test_the_garbage_collector_does_not_look_at_them() -> None:
    """With a million of them it would stop everybody for 50 ms, again and again."""
    offsets = Offsets()
    for partition in range(100):
        offsets.commit(OffsetOfRecord("g", "t", partition, 7, 0, "some", 1))
    partitions = offsets.topics("g")["t"]
    assert not gc.is_tracked(partitions)
    assert not any(gc.is_tracked(kept) for kept in partitions.values())
