"""How DescribeTransactions and ListTransactions show a transaction."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.protocol.messages.transaction_steps import DescribedTransaction, DescribedTransactionTopic, ListedTransaction
from ottla.transactions.transaction import State, Transaction


def describe_transaction(transactional_id: str, transaction: Transaction | None) -> DescribedTransaction:
    if transaction is None or transaction.state is State.DEAD:
        return unknown_transaction(transactional_id, Error.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        error_code=Error.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.shown,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
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


def list_transaction(transaction: Transaction) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.shown,
    )
