"""ListOffsets by time, without making anybody else wait: the owner's part in slices, the reading in workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.broker.logs.index_rebuilds import IndexRebuilds
from ottla.storage.log import Log
from ottla.storage.segment import RebuildNeededError, Segment
from ottla.storage.segment_times import max_timestamp_of
from ottla.storage.timestamps import FoundOffset, TimeSearch, newest_segment

SLICE_SECONDS: Final = 0.004
REBUILDS_MAX: Final = 4  # of one segment on behalf of one question: then the disk lies faster than we mend

T = TypeVar("T")


class TimeLookup:
    """Questions about the times of one log."""

    def __init__(self, workers: ThreadPoolExecutor, rebuilds: IndexRebuilds, log: Log) -> None:
        self._workers = workers
        self._rebuilds = rebuilds
        self._log = log

    async def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record that is not older than this."""
        for segment in await self._dated_segments():
            if segment.max_timestamp >= timestamp:
                found = await self._search(segment, timestamp)
                if found is not None:
                    return found
        return None

    async def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp of all."""
        segment = newest_segment(await self._dated_segments(), lambda each: each.max_timestamp)
        return None if segment is None else await self._search(segment, segment.max_timestamp)

    async def _dated_segments(self) -> list[Segment]:
        """All segments with something in them, after their largest timestamps were learnt from their files."""
        segments = [segment for segment in self._log.segments if segment.size]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLICE_SECONDS
        for segment in segments:
            if not segment.is_closing:  # else it was deleted meanwhile
                await self._with_rebuilds(partial(max_timestamp_of, segment))
            if loop.time() > deadline:
                await asyncio.sleep(0)
                deadline = loop.time() + SLICE_SECONDS
        return segments

    async def _search(self, segment: Segment, timestamp: int) -> FoundOffset | None:
        if segment.is_closing:
            return None
        start_offset = self._log.log_start_offset
        search = await self._with_rebuilds(lambda: TimeSearch(segment, start_offset, timestamp))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, search.run)
        finally:
            search.release()

    async def _with_rebuilds(self, step: Callable[[], T]) -> T:
        """Do a step that reads indexes; if they turn out to be wrong, again with new ones."""
        for _ in range(REBUILDS_MAX):
            self._log.pool.defers_rebuilds = True
            try:
                return step()
            except RebuildNeededError as needed:
                found = needed
            finally:
                self._log.pool.defers_rebuilds = False
            await self._rebuilds.wait_for(found)
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"The indexes of {found.segment!r} cannot be rebuilt")

    def __repr__(self) -> str:
        return f"<TimeLookup in {self._log!r}>"
