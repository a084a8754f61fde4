"""ListOffsets (key 2), v1-11: offsets by timestamp, or of the ends of a partition.

v2 isolation level; v4 leader epochs; v5 OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible; v7 the record with the largest
timestamp; v8 earliest local; v9 latest tiered; v10 timeout; v11 earliest pending upload. There is no tiered storage:
all data is local.

The ends of a partition are known. Timestamps are looked up in slices on the loop, and worker threads read indexes and
segments.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.delayed_fetch import READ_COMMITTED
from ottla.broker.log_manager.log_dir_loader import IndexRebuilds
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.segment import RebuildNeededError, Segment, max_timestamp_of
from ottla.storage.timestamp_search import TimeSearch, TimestampAndOffset, segment_with_max_timestamp

logger = logging.getLogger(__name__)

NOT_AVAILABLE_SINCE: Final = 5
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
FIRST_VERSIONS: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

LookupResult = tuple[int, int, int]  # timestamp, offset, leader epoch
NOT_FOUND: Final = (-1, -1, -1)

SLICE_SECONDS: Final = 0.004
REBUILDS_MAX: Final = 4  # of one segment for one lookup: then the disk is considered failed

T = TypeVar("T")


async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    is_read_committed = request.isolation_level == READ_COMMITTED
    topics = []
    turn = TimeSlice()
    async for topic in in_slices(request.topics, turn):
        times_asked = Counter(partition.partition_index for partition in topic.partitions)
        allowed = context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        async for asked in in_slices(topic.partitions, turn):
            try:
                if not allowed:
                    raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
                if times_asked[asked.partition_index] > 1:
                    raise KafkaError(Error.INVALID_REQUEST)
                answers.append(await _answer(topic.name, asked, context, is_read_committed))
            except KafkaError as error:
                answers.append(_error(asked, _error_for_version(error.error, context.api_version)))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    topic: str, asked: ListOffsetsPartition, context: Context, is_read_committed: bool
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and context.api_version < FIRST_VERSIONS.get(asked.timestamp, 2**15):
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    partition = context.broker.replicas.get(topic, asked.partition_index)
    if partition is None:
        raise context.broker.error_for_missing_partition(topic, asked.partition_index)
    partition.require_leader(asked.current_leader_epoch)
    timestamp, offset, epoch = await _find(context, partition, asked.timestamp, is_read_committed)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


async def _find(context: Context, partition: Partition, timestamp: int, is_read_committed: bool) -> LookupResult:
    log = partition.log
    end_offset = partition.last_stable_offset if is_read_committed else partition.high_watermark
    if timestamp == LATEST:
        partition.require_known_high_watermark()
        return -1, end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    found = await _look_up(TimeLookup(context.broker.workers, context.broker.index_rebuilds, log), timestamp)
    if found is None or found[0] >= end_offset:
        partition.require_known_high_watermark()
        return NOT_FOUND
    offset, found_timestamp, epoch = found
    return found_timestamp, offset, epoch


async def _look_up(lookup: TimeLookup, timestamp: int) -> TimestampAndOffset | None:
    try:
        if timestamp == MAX_TIMESTAMP:
            return await lookup.offset_of_max_timestamp()
        return await lookup.offset_for_timestamp(timestamp)
    except OSError as error:
        logger.error("cannot look for a timestamp with %r: %s", lookup, error)
        raise KafkaError(Error.KAFKA_STORAGE_ERROR) from error


def _error_for_version(error: Error, version: int) -> Error:
    """Return the error for a new leader without a known high watermark; older clients have no own error for it."""
    is_unknown = error is Error.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE
    return Error.LEADER_NOT_AVAILABLE if is_unknown else error


def _error(asked: ListOffsetsPartition, error: Error) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )


class TimeLookup:
    """Timestamp lookups in one log."""

    def __init__(self, workers: ThreadPoolExecutor, rebuilds: IndexRebuilds, log: Log) -> None:
        self._workers = workers
        self._rebuilds = rebuilds
        self._log = log

    async def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Return the first record with at least this timestamp."""
        for segment in await self._segments_with_timestamps():
            if segment.max_timestamp >= timestamp:
                found = await self._search(segment, timestamp)
                if found is not None:
                    return found
        return None

    async def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the largest timestamp."""
        segment = segment_with_max_timestamp(await self._segments_with_timestamps(), lambda each: each.max_timestamp)
        return None if segment is None else await self._search(segment, segment.max_timestamp)

    async def _segments_with_timestamps(self) -> list[Segment]:
        """Return all nonempty segments, after their largest timestamps were read from their files."""
        segments = [segment for segment in self._log.segments if segment.size]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLICE_SECONDS
        for segment in segments:
            if not segment.is_closing:  # otherwise it was deleted meanwhile
                await self._with_rebuilds(partial(max_timestamp_of, segment))
            if loop.time() > deadline:
                await asyncio.sleep(0)
                deadline = loop.time() + SLICE_SECONDS
        return segments

    async def _search(self, segment: Segment, timestamp: int) -> TimestampAndOffset | None:
        if segment.is_closing:
            return None
        start_offset = self._log.log_start_offset
        search = await self._with_rebuilds(lambda: TimeSearch(segment, start_offset, timestamp))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, search.run)
        finally:
            search.release()

    async def _with_rebuilds(self, step: Callable[[], T]) -> T:
        """Run a step that reads indexes; repeat it after rebuilding damaged ones."""
        for _ in range(REBUILDS_MAX):
            self._log.pool.defers_index_rebuilds = True
            try:
                return step()
            except RebuildNeededError as needed:
                found = needed
            finally:
                self._log.pool.defers_index_rebuilds = False
            await self._rebuilds.wait_for(found)
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"The indexes of {found.segment!r} cannot be rebuilt")

    def __repr__(self) -> str:
        return f"<TimeLookup in {self._log!r}>"
