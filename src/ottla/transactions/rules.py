"""Who may do what to a transaction: questions about one and the producer that speaks, without any change."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.transactions.transaction import EPOCH_MAX, NO_EPOCH, PREPARED, Identity, State, Transaction


def may_go_on(transaction: Transaction, known: Identity) -> bool:
    """A producer that was just made here, the current one, or the one whose epochs ran out just now."""
    if transaction.producer_epoch == NO_EPOCH:
        return True
    if known.producer_id == transaction.producer_id:
        return known.epoch in (transaction.producer_epoch, transaction.last_epoch)
    return known.producer_id == transaction.previous_producer_id and known.epoch >= EPOCH_MAX


def is_repeated_init(transaction: Transaction, known: Identity | None) -> bool:
    """The answer to the same request got lost: nothing is raised twice."""
    if known is None or transaction.producer_epoch == NO_EPOCH:
        return False
    if known.producer_id == transaction.producer_id:
        return known.epoch != transaction.producer_epoch and known.epoch == transaction.last_epoch
    return known.producer_id == transaction.previous_producer_id


def end_verdict(transaction: Transaction, who: Identity, is_commit: bool, is_second: bool) -> Error | None:
    """The answer to an EndTxn that changes nothing; None when it does."""
    # Who was told of the end may end its next transaction, an empty one, before all markers are written.
    if transaction.is_pending or (is_second and transaction.state in PREPARED):
        return Error.CONCURRENT_TRANSACTIONS
    is_overflow = (
        is_second
        and transaction.previous_producer_id == who.producer_id
        and who.epoch == EPOCH_MAX
        and transaction.producer_epoch == 0
    )
    is_repeated = is_overflow or (is_second and transaction.producer_epoch == who.epoch + 1)
    if transaction.producer_id != who.producer_id and not is_overflow:
        return Error.INVALID_PRODUCER_ID_MAPPING
    is_complete = transaction.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    if who.epoch != transaction.producer_epoch and not (is_repeated and is_complete):
        return Error.PRODUCER_FENCED
    return _verdict_of_state(transaction, is_commit, is_second, is_repeated)


def _verdict_of_state(transaction: Transaction, is_commit: bool, is_second: bool, is_repeated: bool) -> Error | None:
    state = transaction.state
    if state is State.ONGOING:
        return None
    if state in PREPARED:
        return Error.CONCURRENT_TRANSACTIONS
    if state is State.EMPTY:
        if is_commit:
            return Error.INVALID_TXN_STATE
        return None if is_second else Error.NONE
    is_same = is_commit == (state is State.COMPLETE_COMMIT)
    if is_repeated or not is_second:
        is_nothing = not is_second and not is_commit and transaction.has_next
        return Error.NONE if is_same or is_nothing else Error.INVALID_TXN_STATE
    return Error.INVALID_TXN_STATE if is_commit else None


def is_answered(transaction: Transaction) -> bool:
    """Committed, and its producer was told so."""
    if transaction.state is State.PREPARE_COMMIT:
        return not transaction.is_pending
    return transaction.state is State.COMPLETE_COMMIT


def has_timed_out(transaction: Transaction, now_ms: int) -> bool:
    is_open = transaction.state is State.ONGOING and not transaction.is_pending
    return is_open and transaction.start_ms + transaction.timeout_ms < now_ms
