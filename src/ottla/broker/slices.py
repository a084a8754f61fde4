"""Long work without making anybody wait: a few milliseconds at a time.

A legal request may name a million things. Whoever looks at them one by one does so with `in_slices`, which gives the
loop back in between; what may not be interrupted is done for some hundreds of them at a time (`pieces_of`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

SLICE_SECONDS: Final = 0.003
PIECE_ROWS: Final = 100  # so many can be decided, written and remembered in such a time

T = TypeVar("T")


class Turn:
    """How long somebody may go on before others have their turn. One for each request, through all of its loops."""

    __slots__ = ("_ends", "_now")

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._ends = self._now() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        return self._now() > self._ends

    async def give_way(self) -> None:
        """Let everybody else have a turn, then begin a new one."""
        await asyncio.sleep(0)
        self._ends = self._now() + SLICE_SECONDS


async def in_slices(items: Iterable[T], turn: Turn | None = None) -> AsyncIterator[T]:
    """One item after the other; everybody else is served in between."""
    turn = turn or Turn()
    for item in items:
        yield item
        if turn.is_over:
            await turn.give_way()


def pieces_of(items: Sequence[T], size: int = PIECE_ROWS) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def for_each_partition(replicas: ReplicaSet, work: Callable[[Partition], None]) -> None:
    """Do the work for all partitions that are not deleted."""
    async for partition in in_slices(list(replicas.partitions.values())):
        if not partition.is_deleted:
            work(partition)
