"""Walking over all partitions without making anybody wait: a few milliseconds at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

SLICE_SECONDS = 0.004


async def for_each_partition(replicas: ReplicaSet, work: Callable[[Partition], None]) -> None:
    """Do the work for all partitions that are not deleted, and give the loop back in between."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SLICE_SECONDS
    for partition in list(replicas.partitions.values()):
        if not partition.is_deleted:
            work(partition)
        if loop.time() > deadline:
            await asyncio.sleep(0)
            deadline = loop.time() + SLICE_SECONDS
