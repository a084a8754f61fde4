"""Committed offsets in packed form."""

from __future__ import annotations

import gc

import pytest

from ottla.groups.coordinator_records import OffsetCommitRecord
from ottla.groups.offsets import OffsetAndMetadata, Offsets

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize("metadata", ["", "x", "größer", "m" * 4096])
@pytest.mark.parametrize(("offset", "epoch", "time_ms", "expire_ms"), [(0, -1, 0, -1), (INT64_MAX, 2**31 - 1, -1, 5)])
def test_committed_offset_is_returned(metadata: str, offset: int, epoch: int, time_ms: int, expire_ms: int) -> None:
    offsets = Offsets()
    offsets.commit(OffsetCommitRecord("g", "t", 3, offset, epoch, metadata, time_ms, expire_ms))
    assert offsets.get("g", "t", 3) == OffsetAndMetadata(offset, epoch, metadata, time_ms, expire_ms, 1)
    assert offsets.get("g", "t", 4) is None


def test_garbage_collector_does_not_track_packed_offsets() -> None:
    """With a million tracked objects a collection would pause the broker for 50 ms."""
    offsets = Offsets()
    for partition in range(100):
        offsets.commit(OffsetCommitRecord("g", "t", partition, 7, 0, "some", 1))
    partitions = offsets.topics("g")["t"]
    assert not gc.is_tracked(partitions)
    assert not any(gc.is_tracked(kept) for kept in partitions.values())
