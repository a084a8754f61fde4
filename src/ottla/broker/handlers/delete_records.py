"""DeleteRecords (key 21), v0-2: deletes the records of a partition before an offset. v2 flexible.

Whole segments before it are removed at once (their files after file.delete.delay.ms). The response waits until the new
log start offset would survive a crash (Kafka stores it within a minute), and until the other in-sync replicas have
deleted the records.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingProduce
from ottla.storage.log_dir import LogDir

UNKNOWN_LOW_WATERMARK: Final = -1


async def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    turn = TimeSlice()
    topics = [
        DeleteRecordsTopicResult(name=topic.name, partitions=await delete(topic, context, turn))
        async for topic in in_slices(request.topics, turn)
    ]
    await store_start_offsets(topics, context)
    await wait_for_followers(topics, request.timeout_ms, context)
    return DeleteRecordsResponse(topics=[topic for topic in topics if topic.partitions])


async def delete(topic: DeleteRecordsTopic, context: Context, turn: TimeSlice) -> list[DeleteRecordsPartitionResult]:
    """Delete the records. Of duplicate partitions, the last one is used, as in Kafka."""
    is_allowed = context.is_authorized(Operation.DELETE, ResourceType.TOPIC, topic.name)
    offsets = {partition.partition_index: partition.offset for partition in topic.partitions}
    results = []
    async for index, offset in in_slices(offsets.items(), turn):
        try:
            if not is_allowed:
                raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
            low_watermark = delete_below(topic.name, index, offset, context)
            results.append(DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark))
        except KafkaError as refusal:
            results.append(refused(index, refusal.error))
    return results


def refused(index: int, error: Error) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=error)


def delete_below(topic: str, index: int, offset: int, context: Context) -> int:
    broker = context.broker
    if topic in INTERNAL_TOPICS and topic in broker.image.topics:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION)
    partition = broker.replicas.get(topic, index)
    if partition is None:
        raise broker.error_for_missing_partition(topic, index)
    partition.require_leader(-1)
    return partition.delete_records(offset, broker.clock.now_ms())


async def store_start_offsets(topics: list[DeleteRecordsTopicResult], context: Context) -> None:
    """Store the new log start offsets per directory; a failed write becomes an error of its partitions."""
    broker = context.broker
    by_folder: dict[LogDir, list[DeleteRecordsPartitionResult]] = {}
    async for topic in in_slices(topics):
        async for result in in_slices(topic.partitions):
            partition = broker.replicas.get(topic.name, result.partition_index)
            if partition is not None and result.error_code == Error.NONE:
                by_folder.setdefault(broker.replicas.log_dirs.log_dir_of(partition.log), []).append(result)
    for log_dir, results in by_folder.items():
        try:
            await broker.checkpoints.sync_start_offsets(log_dir)
        except KafkaError as refusal:
            for result in results:
                result.low_watermark, result.error_code = UNKNOWN_LOW_WATERMARK, refusal.error


async def wait_for_followers(topics: list[DeleteRecordsTopicResult], timeout_ms: int, context: Context) -> None:
    """Wait until the in-sync replicas have deleted the records, or until the timeout."""
    waits = [
        DelayedDeleteRecords(partition, result)
        async for topic in in_slices(topics)
        async for result in in_slices(topic.partitions)
        if result.error_code == Error.NONE
        and (partition := context.broker.replicas.get(topic.name, result.partition_index)) is not None
        and partition.low_watermark < result.low_watermark
    ]
    if waits:
        await asyncio.wait([each.done for each in waits], timeout=max(0, timeout_ms) / 1000)
        for each in waits:
            each.set_result()


class DelayedDeleteRecords:
    """A partition whose followers have not deleted yet."""

    def __init__(self, partition: Partition, result: DeleteRecordsPartitionResult) -> None:
        self._partition = partition
        self._result = result
        self._since = partition.leader_since_epoch
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition.wait_for_deletion(result.low_watermark, WaitingProduce(1, self._on_ready))

    def _on_ready(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def set_result(self) -> None:
        if not self._partition.is_leader or self._partition.leader_since_epoch != self._since:
            error = Error.NOT_LEADER_OR_FOLLOWER
        elif self._partition.low_watermark < self._result.low_watermark:
            error = Error.REQUEST_TIMED_OUT
        else:
            return
        self._result.low_watermark, self._result.error_code = UNKNOWN_LOW_WATERMARK, error
