"""Descriptions of a transaction, for DescribeTransactions and ListTransactions."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.protocol.messages.transactions import DescribedTransaction, DescribedTransactionTopic, ListedTransaction
from ottla.transactions.transaction import TransactionMetadata, TransactionState


def describe_transaction(transactional_id: str, transaction: TransactionMetadata | None) -> DescribedTransaction:
    if transaction is None or transaction.state is TransactionState.DEAD:
        return unknown_transaction(transactional_id, Error.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.topic_partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        error_code=Error.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.display_name,
        transaction_timeout_ms=transaction.txn_timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[DescribedTransactionTopic(topic=topic, partitions=ids) for topic, ids in topics.items()],
    )


def unknown_transaction(transactional_id: str, error: Error) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def list_transaction(transaction: TransactionMetadata) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.display_name,
    )
