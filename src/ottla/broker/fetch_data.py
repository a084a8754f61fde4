"""What a fetch tells about one partition: its bytes, what must be done before they are sent, and errors."""

from __future__ import annotations

import logging
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.broker.context import Context
from ottla.broker.fetch_sessions import FetchPartition
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.page_cache import range_is_cached, read_ahead
from ottla.storage.transaction_check import TransactionIndexWrongError
from ottla.storage.verification import needs_check

logger = logging.getLogger(__name__)

NO_RECORDS: Final = b""
FOLLOWERS_SINCE: Final = 11  # consumers of this version may read from them, too (KIP-392)

Result = tuple[FetchPartition, PartitionData]
Unready = tuple[FileRange, Log]


def look_up(context: Context, asked: FetchPartition) -> Partition:
    broker = context.broker
    topic = asked.topic
    if not topic:
        known = broker.image.topics_by_id.get(asked.topic_id)
        if known is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_ID)
        topic = known.name
    partition = broker.replicas.get(topic, asked.index)
    if partition is None:
        raise broker.why_not_here(topic, asked.index)
    if not asked.topic and partition.topic_id != asked.topic_id:
        raise KafkaError(Error.UNKNOWN_TOPIC_ID)  # it is about to make room for a new topic of the same name
    return partition


def is_known(asked: FetchPartition, partition: Partition) -> bool:
    return (
        asked.sent_high_watermark == partition.high_watermark
        and asked.sent_log_start_offset == partition.log.log_start_offset
    )


def has_missed(partitions: list[FetchPartition]) -> bool:
    """Who waited for the high watermark that this fetch has moved may have written to a partition that we had read
    before (a coordinator its markers, for instance): nobody would wake us for that."""
    for asked in partitions:
        if asked.partition is not None and asked.partition.log.end_offset > asked.fetch_offset:
            return True
    return False


def left_out(asked: FetchPartition, partition: Partition, bytes_left: int, is_read_committed: bool) -> int:
    """So many bytes are there for a consumer, but a part of one batch: they count for `min_bytes` all the same, as in
    Kafka. Who would wait for them waits for what has come."""
    end_offset = partition.last_stable_offset if is_read_committed else partition.high_watermark
    return bytes_left if asked.fetch_offset < end_offset else 0


def require_replica(partition: Partition, leader_epoch: int, api_version: int) -> None:
    """Consumers of today may read from any replica; those of yesterday only from the leader."""
    is_follower = partition.leader_id != partition.node_id and partition.replica_count > 1
    if is_follower and api_version >= FOLLOWERS_SINCE and not partition.is_deleted:
        partition.require_epoch(leader_epoch)
    else:
        partition.require_leader(leader_epoch)


def aborted_in(partition: Partition, asked: FetchPartition, file_range: FileRange | None) -> list[AbortedTransaction]:
    """What a reader of committed records must leave out of what it gets."""
    if file_range is None:
        return []
    try:
        entries = partition.log.aborted_transactions_in(asked.fetch_offset, file_range, partition.last_stable_offset)
    except TransactionIndexWrongError:
        file_range.release()
        raise
    return [AbortedTransaction(producer_id=found.producer_id, first_offset=found.first_offset) for found in entries]


def unready(asked: FetchPartition, data: PartitionData) -> list[Unready]:
    """The bytes of this partition, if they must be looked at, or read, before they are sent."""
    records = data.records
    if not isinstance(records, FileRange) or asked.partition is None:
        return []
    return [(records, asked.partition.log)] if needs_check(records) or not range_is_cached(records) else []


def prepare_range(file_range: FileRange, log: Log) -> None:
    """In a worker thread: read the range into the page cache, and check it if this process did not write it."""
    if needs_check(file_range):
        log.check_range(file_range)
    else:
        read_ahead(file_range)


def or_error(asked: FetchPartition, data: PartitionData, failure: object) -> PartitionData:
    if failure is None:
        return data
    assert isinstance(data.records, FileRange)
    data.records.release()
    if isinstance(failure, KafkaError):
        return error_data(asked, failure.error)
    logger.error("cannot read %r: %r", asked, failure)
    return error_data(asked, Error.KAFKA_STORAGE_ERROR)


def after_damage(asked: FetchPartition, error: Error) -> Error:
    """What to answer when a stored batch is not sound: if others have it, one of them will lead in a moment."""
    partition = asked.partition
    if error is not Error.CORRUPT_MESSAGE or partition is None:
        return error
    partition.note_damage(asked.fetch_offset)
    is_elsewhere = partition.damage_offset >= 0 or not partition.is_leader
    return Error.KAFKA_STORAGE_ERROR if is_elsewhere else error


def note_sent(asked: FetchPartition, data: PartitionData, is_replicated: bool) -> None:
    if isinstance(data.records, FileRange) and asked.partition is not None:
        if is_replicated:
            asked.partition.traffic.replication_bytes_out += data.records.length
        else:
            asked.partition.traffic.bytes_out += data.records.length


def error_data(asked: FetchPartition, error: Error) -> PartitionData:
    return PartitionData(partition_index=asked.index, error_code=error, high_watermark=-1, records=NO_RECORDS)


def release(results: list[Result]) -> None:
    for _, data in results:
        if isinstance(data.records, FileRange):
            data.records.release()
