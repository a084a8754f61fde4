"""ListOffsets (key 2), v1-11: the offset at a moment, or at one of the ends of a partition.

v2 isolation level; v4 leader epochs; v5 OFFSET_NOT_AVAILABLE (KIP-207); v6 flexible; v7 the record with the largest
timestamp; v8 earliest local; v9 latest tiered; v10 time-out; v11 earliest pending upload. Tiered storage does not exist
here: all data is local.

The ends of a partition are known; a moment has to be looked for, in workers where that means reading (time_lookup.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.fetching import READ_COMMITTED
from ottla.broker.logs.time_lookup import TimeLookup
from ottla.broker.slices import Turn, in_slices
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.partition import Partition
from ottla.storage.timestamps import FoundOffset

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

Found = tuple[int, int, int]  # timestamp, offset, leader epoch
NOT_FOUND: Final = (-1, -1, -1)


async def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    is_read_committed = request.isolation_level == READ_COMMITTED
    topics = []
    turn = Turn()
    async for topic in in_slices(request.topics, turn):
        times_asked = Counter(partition.partition_index for partition in topic.partitions)
        allowed = context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers = []
        async for asked in in_slices(topic.partitions, turn):
            try:
                if not allowed:
                    raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
                if times_asked[asked.partition_index] > 1:
                    raise KafkaError(Error.INVALID_REQUEST)
                answers.append(await _answer(topic.name, asked, context, is_read_committed))
            except KafkaError as error:
                answers.append(_error(asked, _told(error.error, context.api_version)))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    topic: str, asked: ListOffsetsPartition, context: Context, is_read_committed: bool
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and context.api_version < FIRST_VERSIONS.get(asked.timestamp, 2**15):
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    partition = context.broker.replicas.get(topic, asked.partition_index)
    if partition is None:
        raise context.broker.why_not_here(topic, asked.partition_index)
    partition.require_leader(asked.current_leader_epoch)
    timestamp, offset, epoch = await _find(context, partition, asked.timestamp, is_read_committed)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


async def _find(context: Context, partition: Partition, timestamp: int, is_read_committed: bool) -> Found:
    log = partition.log
    end_offset = partition.last_stable_offset if is_read_committed else partition.high_watermark
    if timestamp == LATEST:
        partition.require_known_end()
        return -1, end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    found = await _look_up(TimeLookup(context.broker.workers, context.broker.index_rebuilds, log), timestamp)
    if found is None or found[0] >= end_offset:
        partition.require_known_end()
        return NOT_FOUND
    offset, found_timestamp, epoch = found
    return found_timestamp, offset, epoch


async def _look_up(lookup: TimeLookup, timestamp: int) -> FoundOffset | None:
    try:
        if timestamp == MAX_TIMESTAMP:
            return await lookup.offset_of_max_timestamp()
        return await lookup.offset_for_timestamp(timestamp)
    except OSError as error:
        logger.error("cannot look for a timestamp with %r: %s", lookup, error)
        raise KafkaError(Error.KAFKA_STORAGE_ERROR) from error


def _told(error: Error, version: int) -> Error:
    """A new leader that does not know yet how far the last one had come says so; older clients have no word for it."""
    is_unknown = error is Error.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE
    return Error.LEADER_NOT_AVAILABLE if is_unknown else error


def _error(asked: ListOffsetsPartition, error: Error) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )
