"""The records of `__transaction_state`: conversion between a Transaction and bytes."""

from __future__ import annotations

from struct import Struct

from ottla.coordination.machine import Record
from ottla.protocol.codec import ProtocolError, decode, encode
from ottla.protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from ottla.protocol.schema import layout_of
from ottla.transactions.transaction import TransactionMetadata, TransactionState

KEY_TYPE = 0
FLEXIBLE_VERSION = 1  # written by transaction version 1 and later

_NUMBER = Struct(">h")


def transaction_record(transaction: TransactionMetadata) -> Record:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.txn_timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else _by_topic(transaction.topic_partitions),
        transaction_last_update_timestamp_ms=transaction.last_update_timestamp_ms,
        transaction_start_timestamp_ms=transaction.start_timestamp_ms,
        client_transaction_version=transaction.client_transaction_version,
    )
    version = FLEXIBLE_VERSION
    return Record(_key(transaction.transactional_id), _NUMBER.pack(version) + encode(value, version))


def transaction_tombstone(transactional_id: str) -> Record:
    return Record(_key(transactional_id), None)


def decode_key(key: bytes) -> str | None:
    """Return the transactional id; None for an unknown type of record."""
    if len(key) < _NUMBER.size or _NUMBER.unpack_from(key)[0] != KEY_TYPE:
        return None
    message, _ = decode(TransactionLogKey, 0, memoryview(key), _NUMBER.size)
    return message.transactional_id


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    if len(value) < _NUMBER.size:
        raise ProtocolError("a record of __transaction_state is too short")
    version = min(_NUMBER.unpack_from(value)[0], layout_of(TransactionLogValue).max_version)
    message, _ = decode(TransactionLogValue, version, memoryview(value), _NUMBER.size)
    transaction = TransactionMetadata(transactional_id, message.producer_id, message.transaction_timeout_ms)
    transaction.producer_epoch = message.producer_epoch
    transaction.previous_producer_id = message.previous_producer_id
    transaction.next_producer_id = message.next_producer_id
    transaction.next_producer_epoch = message.next_producer_epoch
    transaction.state = TransactionState(message.transaction_status)
    transaction.topic_partitions = {
        (topic.topic, partition) for topic in message.transaction_partitions or () for partition in topic.partition_ids
    }
    transaction.start_timestamp_ms = message.transaction_start_timestamp_ms
    transaction.last_update_timestamp_ms = message.transaction_last_update_timestamp_ms
    transaction.client_transaction_version = message.client_transaction_version
    return transaction


def _key(transactional_id: str) -> bytes:
    return _NUMBER.pack(KEY_TYPE) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def _by_topic(partitions: set[tuple[str, int]]) -> list[TransactionPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [TransactionPartitions(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
