"""Rows and lines about transactions with Kafka's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.cli.java.hash_order import partition_order
from ottla.client.transactions import NO_TRANSACTION, DescribedTransaction
from ottla.operations.hanging_transactions import OpenTransaction
from ottla.protocol.messages.transactions import ListedTransaction, ProducerState

NONE = "None"
MINUTE_MS = 60_000
LIST_COLUMNS = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_COLUMNS = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCER_COLUMNS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING_COLUMNS = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


def list_rows(found: Mapping[int, Sequence[ListedTransaction]]) -> list[tuple[str, ...]]:
    return [
        (item.transactional_id, str(broker), str(item.producer_id), item.transaction_state)
        for broker, items in found.items()
        for item in items
    ]


def described_row(found: DescribedTransaction, now_ms: int) -> tuple[str, ...]:
    return (
        str(found.coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        NONE if found.start_ms is None else str(found.start_ms),
        NONE if found.start_ms is None else str(now_ms - found.start_ms),
        ",".join(map(str, partition_order(found.partitions))),
    )


def producer_row(state: ProducerState) -> tuple[str, ...]:
    start = state.current_txn_start_offset
    return (
        str(state.producer_id),
        str(state.producer_epoch),
        str(state.coordinator_epoch),
        str(state.last_sequence),
        str(state.last_timestamp),
        NONE if start == NO_TRANSACTION else str(start),
    )


def hanging_row(found: OpenTransaction, now_ms: int) -> tuple[str, ...]:
    state = found.producer
    numbers = (
        found.partition.partition,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.current_txn_start_offset,
        state.last_timestamp,
        (now_ms - state.last_timestamp) // MINUTE_MS,
    )
    return found.partition.topic, *map(str, numbers)


def column_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table with a tab after each column."""
    table = [tuple(columns), *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    return ["".join(f"{cell:{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in table]
