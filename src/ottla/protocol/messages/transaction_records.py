"""Key and value of the records in `__transaction_state`, as Apache Kafka 4.3 writes them.

Both begin with an int16: the kind of the key (there is only kind 0) and the version of the value. A null value means
that the transactional id has expired.
"""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, Int64, message, part, wire


@message(versions="0")
class TransactionLogKey:
    transactional_id: str


@part
class TransactionPartitions:
    topic: str
    partition_ids: list[Int32]


@message(versions="0-1", flexible=1)
class TransactionLogValue:
    """v1 flexible, with the tagged fields of transaction version 2 (KIP-890)."""

    producer_id: Int64
    previous_producer_id: Int64 = wire(since=1, tag=0, default=-1)
    next_producer_id: Int64 = wire(since=1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = wire(since=1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionPartitions] | None = wire(nullable=0)
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = wire(since=1, tag=2, default=0)
