"""One partition of a fetch response: byte ranges, their preparation, and errors (Kafka's FetchPartitionData)."""

from __future__ import annotations

import logging
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.broker.context import Context
from ottla.broker.fetch_sessions import CachedPartition
from ottla.broker.offload import TimeSlice
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.page_cache import is_range_cached, read_ahead
from ottla.storage.range_checks import needs_check
from ottla.storage.transaction_check import TransactionIndexWrongError

logger = logging.getLogger(__name__)

NO_RECORDS: Final = b""
FETCH_FROM_FOLLOWER_SINCE: Final = 11  # consumers of this version may read from followers (KIP-392)

FetchResult = tuple[CachedPartition, PartitionData]
UnpreparedRange = tuple[FileRange, Log]


def get_partition(context: Context, asked: CachedPartition) -> Partition:
    broker = context.broker
    topic = asked.topic
    if not topic:
        known = broker.image.topics_by_id.get(asked.topic_id)
        if known is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID)
        topic = known.name
    partition = broker.replicas.get(topic, asked.index)
    if partition is None:
        raise broker.error_for_missing_partition(topic, asked.index)
    if not asked.topic and partition.topic_id != asked.topic_id:
        raise KafkaError(Error.UNKNOWN_TOPIC_ID)  # the hosted partition belongs to a deleted topic with the same name
    return partition


def is_current_partition(asked: CachedPartition, partition: Partition) -> bool:
    return (
        asked.sent_high_watermark == partition.high_watermark
        and asked.sent_log_start_offset == partition.log.log_start_offset
    )


def has_new_records(partitions: list[CachedPartition]) -> bool:
    """Return whether a partition that was read before has new records.

    This fetch may have moved a high watermark, and a woken coordinator may have appended to another partition of this
    fetch. Those records would not wake this fetch.
    """
    for asked in partitions:
        if asked.partition is not None and asked.partition.log.end_offset > asked.fetch_offset:
            return True
    return False


def partial_batch_bytes(asked: CachedPartition, partition: Partition, bytes_left: int, is_read_committed: bool) -> int:
    """Return the available bytes of a partial batch. They count towards `min_bytes`, as in Kafka."""
    end_offset = partition.last_stable_offset if is_read_committed else partition.high_watermark
    return bytes_left if asked.fetch_offset < end_offset else 0


def require_replica(partition: Partition, leader_epoch: int, api_version: int) -> None:
    """Check that the client may read from this replica:

    older consumers only read from the leader. Raises KafkaError.
    """
    is_follower = partition.leader_id != partition.node_id and partition.replica_count > 1
    if is_follower and api_version >= FETCH_FROM_FOLLOWER_SINCE and not partition.is_deleted:
        partition.require_epoch(leader_epoch)
    else:
        partition.require_leader(leader_epoch)


def aborted_transactions(
    partition: Partition, asked: CachedPartition, file_range: FileRange | None
) -> list[AbortedTransaction]:
    """Return the aborted transactions that a read_committed consumer must skip."""
    if file_range is None:
        return []
    try:
        entries = partition.log.aborted_transactions_in_range(
            asked.fetch_offset, file_range, partition.last_stable_offset
        )
    except TransactionIndexWrongError:
        file_range.release()
        raise
    return [AbortedTransaction(producer_id=found.producer_id, first_offset=found.first_offset) for found in entries]


def unprepared_ranges(asked: CachedPartition, data: PartitionData) -> list[UnpreparedRange]:
    """Return the ranges of this partition that must be read or checked before they are sent."""
    records = data.records
    if not isinstance(records, FileRange) or asked.partition is None:
        return []
    return [(records, asked.partition.log)] if needs_check(records) or not is_range_cached(records) else []


def prepare_range(file_range: FileRange, log: Log) -> None:
    """Read the range into the page cache in a worker thread, and check it if this process did not write it."""
    if needs_check(file_range):
        log.check_range(file_range)
    else:
        read_ahead(file_range)


def data_or_error(asked: CachedPartition, data: PartitionData, failure: object) -> PartitionData:
    if failure is None:
        return data
    assert isinstance(data.records, FileRange)
    data.records.release()
    if isinstance(failure, KafkaError):
        return error_data(asked, failure.error)
    logger.error("cannot read %r: %r", asked, failure)
    return error_data(asked, Error.KAFKA_STORAGE_ERROR)


def error_for_damaged_batch(asked: CachedPartition, error: Error) -> Error:
    """Return the error for a damaged stored batch: if other replicas have the batch, one of them becomes leader."""
    partition = asked.partition
    if error is not Error.CORRUPT_MESSAGE or partition is None:
        return error
    partition.mark_damaged(asked.fetch_offset)
    is_elsewhere = partition.damage_offset >= 0 or not partition.is_leader
    return Error.KAFKA_STORAGE_ERROR if is_elsewhere else error


def remember_sent_values(asked: CachedPartition, data: PartitionData, is_replicated: bool) -> None:
    if isinstance(data.records, FileRange) and asked.partition is not None:
        if is_replicated:
            asked.partition.traffic.replication_bytes_out += data.records.length
        else:
            asked.partition.traffic.bytes_out += data.records.length


def error_data(asked: CachedPartition, error: Error) -> PartitionData:
    return PartitionData(partition_index=asked.index, error_code=error, high_watermark=-1, records=NO_RECORDS)


def release_ranges(results: list[FetchResult]) -> None:
    for _, data in results:
        if isinstance(data.records, FileRange):
            data.records.release()


async def release_ranges_in_slices(results: list[FetchResult], turn: TimeSlice) -> None:
    """Release the ranges in slices. Empties `results`, which are also freed in slices."""
    while results:
        release_ranges([results.pop()])
        if turn.is_used_up:
            await turn.yield_to_loop()
