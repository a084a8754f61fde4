"""Transactional ids that nobody has used for long, some at a time (`Machine.sweep`)."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordination.batch import Batch
from ottla.coordination.machine import Decision
from ottla.transactions.records import tombstone
from ottla.transactions.transaction import ENDED, Transaction


def forget_unused(transactions: dict[str, Transaction], since_ms: int, bytes_max: int) -> Iterator[Decision]:
    batch = Batch(bytes_max)
    for transactional_id in list(transactions):
        record = tombstone(transactional_id)
        if batch.is_full(len(record.key)):
            yield batch.taken()
        transaction = transactions.get(transactional_id)
        if transaction is not None and is_unused(transaction, since_ms):
            batch.add(record)
    yield batch.taken()


def is_unused(transaction: Transaction, since_ms: int) -> bool:
    return transaction.state in ENDED and not transaction.is_pending and transaction.last_update_ms <= since_ms
