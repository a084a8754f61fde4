"""The transaction coordinator's state machine: all transactional ids of one partition of `__transaction_state`.

It follows the contract of coordination/machine.py. A transaction ends in two steps. The prepare record decides the
outcome, and the response to the client follows it. Then markers go to every partition of the transaction, and the
complete record closes it. If the broker restarts between the two, the markers are sent again, with the outcome of the
prepare record.

Rules that are easy to get wrong:
1. While a record of a transaction is in flight, every other change of it is rejected (CONCURRENT_TRANSACTIONS).
2. A producer that initializes again, and the timeout, fence: they raise the epoch and abort the open transaction, and
   the client retries.
3. With transaction version 2 every transaction raises the epoch, so the epoch distinguishes a repeated request (one
   less than the current epoch) from the next one (equal to it).
4. With version 1 it does not: an abort after a commit may belong to an empty transaction, or to the committed one,
   whose response was lost. Only a producer that has certainly received the response gets a success for the abort.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.base.errors import Error
from ottla.coordination.batch import SweepBatch
from ottla.coordination.machine import Decision, Reply, ReplyTo, TransactionalProducer
from ottla.protocol.messages.transactions import DescribedTransaction, ListedTransaction
from ottla.transactions.description import describe_transaction, list_transaction
from ottla.transactions.transaction import (
    ENDED_STATES,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PREPARED_STATES,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
)
from ottla.transactions.transaction_log import decode_key, decode_value, transaction_record, transaction_tombstone

EPOCH_BUMP_VERSION = 2  # the transaction version from which on every transaction has its own epoch
FENCING_EPOCH = 32_767


class TransactionSettings(NamedTuple):
    """Kafka's `transaction.*` and `transactional.*` keys; the defaults are Kafka's."""

    timeout_ms_max: int = 900_000
    abort_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    id_expiration_interval_ms: int = 3_600_000


class InitProducerIdResult(NamedTuple):
    """The result of InitProducerId."""

    error: Error
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class EndTransactionResult(NamedTuple):
    """The result of EndTxn: with transaction version 2 also the producer's next identity."""

    error: Error
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class TransitionWritten(NamedTuple):
    """A record of this transaction was committed or rejected."""

    transactional_id: str


class NextTransactionRequested(NamedTuple):
    """The producer has requested its next transaction, and has to wait."""

    transactional_id: str


class TransactionMarkers(NamedTuple):
    """A request to the driver: write these markers, then call complete_transaction()."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[tuple[str, int]]
    transaction_version: int


class TransactionCoordinator:
    """Decides about transactions; the driver sends the markers in `pending_markers`, and also empties `changed_ids`."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, TransactionMetadata] = {}
        self.pending_markers: list[TransactionMarkers] = []
        self.changed_ids: list[str] = []  # ids with a new record, for requests that wait for a change
        self._in_flight: dict[str, TransactionMetadata] = {}  # for replay(): the log does not store every field
        self._abort_due_ms: int | None = None
        self._expiry_due_ms: int | None = None

    # ---- initialization

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected_producer: ProducerIdAndEpoch | None,
        new_producer_id: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """Handle InitProducerId; `known` is the producer's identity if it continues (KIP-360)."""
        if not 0 < timeout_ms <= self.settings.timeout_ms_max:
            return _reply(reply_to, InitProducerIdResult(Error.INVALID_TRANSACTION_TIMEOUT))
        transaction = self.transactions.get(transactional_id) or TransactionMetadata(
            transactional_id, new_producer_id, timeout_ms
        )
        if transaction.has_pending_transition or transaction.state in PREPARED_STATES:
            return _reply(reply_to, InitProducerIdResult(Error.CONCURRENT_TRANSACTIONS))
        if expected_producer is not None and not is_valid_producer(transaction, expected_producer):
            return _reply(reply_to, InitProducerIdResult(Error.PRODUCER_FENCED))
        if transaction.state is TransactionState.ONGOING:
            decision = self._fence(transaction, now_ms)
            decision.replies.append(Reply(reply_to, InitProducerIdResult(Error.CONCURRENT_TRANSACTIONS)))
            return decision
        after = transaction.copy()
        after.transition_to(TransactionState.EMPTY)
        after.txn_timeout_ms = timeout_ms
        after.topic_partitions = set()
        after.start_timestamp_ms, after.last_update_timestamp_ms = NO_TIMESTAMP, now_ms
        if transaction.is_producer_epoch_exhausted and not is_retried_init(transaction, expected_producer):
            after.producer_id, after.producer_epoch = new_producer_id, 0
            after.last_producer_epoch = transaction.producer_epoch if expected_producer is not None else NO_EPOCH
        elif not is_retried_init(transaction, expected_producer):
            after.producer_epoch = transaction.producer_epoch + 1
            after.last_producer_epoch = transaction.producer_epoch if expected_producer is not None else NO_EPOCH
        return self._write_transition(
            after, Reply(reply_to, InitProducerIdResult(Error.NONE, after.producer_id, after.producer_epoch))
        )

    # ---- adding partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[tuple[str, int]],
        version: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn; the reply is an Error."""
        wanted = set(partitions)
        transaction = self.transactions.get(transactional_id)
        error = self._validate_producer(transaction, producer)
        if transaction is None or error is not Error.NONE:
            return _reply(reply_to, error)
        if transaction.has_pending_transition or transaction.state in PREPARED_STATES:
            event = NextTransactionRequested(transactional_id) if is_commit_acknowledged(transaction) else None
            return Decision(replies=[Reply(reply_to, Error.CONCURRENT_TRANSACTIONS)], event=event)
        if transaction.state is TransactionState.ONGOING and wanted <= transaction.topic_partitions:
            return _reply(reply_to, Error.NONE)
        after = transaction.copy()
        if transaction.state is not TransactionState.ONGOING:
            after.start_timestamp_ms = now_ms
            after.topic_partitions = set()
        after.transition_to(TransactionState.ONGOING)
        after.topic_partitions |= wanted
        after.last_update_timestamp_ms = now_ms
        after.client_transaction_version = version
        return self._write_transition(after, Reply(reply_to, Error.NONE))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[tuple[str, int]]
    ) -> tuple[Error, dict[tuple[str, int], Error]]:
        """Return whether these partitions belong to the open transaction of this producer (KIP-890)."""
        transaction = self.transactions.get(transactional_id)
        error = self._validate_producer(transaction, producer)
        if transaction is None or error is not Error.NONE:
            return error, {}
        if transaction.has_pending_transition or transaction.state in PREPARED_STATES:
            return Error.CONCURRENT_TRANSACTIONS, {}
        is_open = transaction.state is TransactionState.ONGOING
        return Error.NONE, {
            each: Error.NONE if is_open and each in transaction.topic_partitions else Error.TRANSACTION_ABORTABLE
            for each in partitions
        }

    def _validate_producer(self, transaction: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> Error:
        if transaction is None or transaction.producer_id != producer.producer_id:
            return Error.INVALID_PRODUCER_ID_MAPPING
        return Error.NONE if transaction.producer_epoch == producer.epoch else Error.PRODUCER_FENCED

    # ---- the end

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Return whether end() may need a fresh producer id because this one has no epochs left."""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.is_producer_epoch_exhausted

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        version: int,
        new_producer_id: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """Handle EndTxn of a client; the reply is an EndTransactionResult."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return _reply(reply_to, EndTransactionResult(Error.INVALID_PRODUCER_ID_MAPPING))
        verdict = validate_end(transaction, producer, is_commit, is_version_2=version >= EPOCH_BUMP_VERSION)
        if verdict is Error.NONE:
            return _reply(
                reply_to, EndTransactionResult(Error.NONE, transaction.producer_id, transaction.producer_epoch)
            )
        if verdict is not None:
            return _reply(reply_to, EndTransactionResult(verdict))
        after = self._prepare_end(transaction, is_commit, version, new_producer_id, now_ms)
        next_identity = (after.producer_id, after.producer_epoch)
        if after.next_producer_id != NO_PRODUCER_ID:
            next_identity = (after.next_producer_id, 0)
        return self._write_transition(after, Reply(reply_to, EndTransactionResult(Error.NONE, *next_identity)))

    def _prepare_end(
        self, transaction: TransactionMetadata, is_commit: bool, version: int, new_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        after = transaction.copy()
        after.transition_to(TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT)
        after.last_update_timestamp_ms = now_ms
        after.client_transaction_version = version
        if transaction.state is not TransactionState.ONGOING:  # version 2 may abort a transaction that never began
            after.start_timestamp_ms = now_ms
            after.topic_partitions = set()
        if version >= EPOCH_BUMP_VERSION:
            after.last_producer_epoch = transaction.producer_epoch
            after.producer_epoch = transaction.producer_epoch + 1
            if transaction.is_producer_epoch_exhausted:
                after.next_producer_id = new_producer_id
        return after

    def _fence(self, transaction: TransactionMetadata, now_ms: int) -> Decision:
        """Abort the open transaction under an epoch that its producer does not have."""
        after = transaction.copy()
        after.transition_to(TransactionState.PREPARE_ABORT)
        after.producer_epoch = (
            FENCING_EPOCH if transaction.is_producer_epoch_exhausted else transaction.producer_epoch + 1
        )
        # A producer with an epoch for each transaction may get the new one and continue (KIP-890).
        after.last_producer_epoch = (
            transaction.producer_epoch if transaction.client_transaction_version >= EPOCH_BUMP_VERSION else NO_EPOCH
        )
        after.last_update_timestamp_ms = now_ms
        return self._write_transition(after)

    def complete_transaction(self, transactional_id: str, producer_id: int, epoch: int, now_ms: int) -> Decision:
        """Complete the transaction after every partition has its marker."""
        transaction = self.transactions.get(transactional_id)
        is_current = (
            transaction is not None
            and transaction.state in PREPARED_STATES
            and (transaction.producer_id, transaction.producer_epoch) == (producer_id, epoch)
        )
        if transaction is None or not is_current:
            return Decision()
        after = transaction.copy()
        after.transition_to(
            TransactionState.COMPLETE_COMMIT
            if transaction.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT
        )
        after.topic_partitions = set()
        after.last_update_timestamp_ms = now_ms
        if transaction.next_producer_id != NO_PRODUCER_ID:
            after.producer_id, after.producer_epoch = transaction.next_producer_id, 0
            after.next_producer_id = NO_PRODUCER_ID
        return self._write_transition(after)

    # ---- queries

    def describe(self, transactional_id: str) -> DescribedTransaction:
        return describe_transaction(transactional_id, self.transactions.get(transactional_id))

    def list_transactions(
        self, states: set[TransactionState], producer_ids: set[int], duration_ms: int, now_ms: int
    ) -> Iterable[ListedTransaction]:
        for transaction in self.transactions.values():
            is_wanted = (
                (not states or transaction.state in states)
                and (not producer_ids or transaction.producer_id in producer_ids)
                and (duration_ms < 0 or now_ms - transaction.start_timestamp_ms > duration_ms)
            )
            if is_wanted and transaction.state is not TransactionState.DEAD:
                yield list_transaction(transaction)

    # ---- the log

    def _write_transition(self, after: TransactionMetadata, reply: Reply | None = None) -> Decision:
        after.has_pending_transition = True
        before = self.transactions.get(after.transactional_id, after)
        assert before is after or not before.has_pending_transition, f"{before} has a change in flight"
        is_newer = after.producer_id != before.producer_id or after.producer_epoch >= before.producer_epoch
        assert is_newer, f"{before} cannot return to epoch {after.producer_epoch}"
        assert not after.topic_partitions or after.state not in ENDED_STATES, f"{after} has ended"
        after.previous_producer_id = before.producer_id
        after.has_next_transaction_request = (
            before.has_next_transaction_request and after.state is TransactionState.COMPLETE_COMMIT
        )
        self._in_flight[after.transactional_id] = after
        replies = [reply] if reply is not None else []
        return Decision([transaction_record(after)], replies, TransitionWritten(after.transactional_id))

    def replay(self, key: bytes, value: bytes | None, stamp: TransactionalProducer | None) -> None:  # noqa: ARG002
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        transaction = decode_value(transactional_id, value)
        before = self.transactions.get(transactional_id)
        if before is not None and before.start_timestamp_ms == transaction.start_timestamp_ms:
            transaction.clock_step_ms = before.clock_step_ms
        mine = self._in_flight.pop(transactional_id, None)
        if mine is not None:
            transaction.last_producer_epoch = mine.last_producer_epoch
            transaction.has_next_transaction_request = mine.has_next_transaction_request
            transaction.has_pending_transition = True
        self.transactions[transactional_id] = transaction

    def replay_end_transaction_marker(self, stamp: TransactionalProducer, is_commit: bool) -> None:
        """Do nothing: no transaction writes to this topic."""

    def on_write_completed(self, event: Any, error: Error, now_ms: int) -> list[Decision]:  # noqa: ARG002
        if isinstance(event, NextTransactionRequested):
            self.transactions[event.transactional_id].has_next_transaction_request = True
        if not isinstance(event, TransitionWritten):
            return []
        refused = self._in_flight.pop(event.transactional_id, None)
        self.changed_ids.append(event.transactional_id)
        transaction = self.transactions.get(event.transactional_id)
        if transaction is not None:
            transaction.has_pending_transition = False
            if refused is not None and refused.state is TransactionState.ONGOING:
                transaction.has_next_transaction_request = transaction.state is TransactionState.COMPLETE_COMMIT
            if error is Error.NONE and transaction.state in PREPARED_STATES:
                self._send_markers(transaction)
        return []

    def _send_markers(self, transaction: TransactionMetadata) -> None:
        self.pending_markers.append(
            TransactionMarkers(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state is TransactionState.PREPARE_COMMIT,
                frozenset(transaction.topic_partitions),
                transaction.client_transaction_version,
            )
        )

    def on_loaded(self, now_ms: int) -> list[Decision]:
        """Send the markers of all prepared transactions again."""
        self._abort_due_ms = now_ms + self.settings.abort_interval_ms
        self._expiry_due_ms = now_ms + self.settings.id_expiration_interval_ms
        for transaction in self.transactions.values():
            # Started by the clock of another broker; a start in the future would keep it open longer.
            transaction.clock_step_ms = min(now_ms - transaction.start_timestamp_ms, 0)
            transaction.has_pending_transition = False
            if transaction.state in PREPARED_STATES:
                self._send_markers(transaction)
        return []

    def on_clock_step(self, step_ms: int) -> None:
        for transaction in self.transactions.values():
            transaction.clock_step_ms += step_ms
        if self._abort_due_ms is not None:
            self._abort_due_ms += step_ms
        if self._expiry_due_ms is not None:
            self._expiry_due_ms += step_ms

    def renew_sessions(self, now_ms: int) -> None:
        """Do nothing: transactions have no heartbeats."""

    def on_unloaded(self) -> list[Reply]:
        """Return no replies: no request waits inside this machine."""
        return []

    # ---- time

    def next_wakeup_ms(self) -> int | None:
        times = [at_ms for at_ms in (self._abort_due_ms, self._expiry_due_ms) if at_ms is not None]
        return min(times, default=None)

    def tick(self, now_ms: int) -> list[Decision]:
        """Fence the transactions that have timed out."""
        if self._abort_due_ms is None or self._abort_due_ms > now_ms:
            return []
        self._abort_due_ms = now_ms + self.settings.abort_interval_ms
        timed_out = [each for each in self.transactions.values() if has_timed_out(each, now_ms)]
        return [self._fence(transaction, now_ms) for transaction in timed_out]

    def sweep(self, now_ms: int, bytes_max: int) -> Iterator[Decision] | None:
        if self._expiry_due_ms is None or self._expiry_due_ms > now_ms:
            return None
        self._expiry_due_ms = now_ms + self.settings.id_expiration_interval_ms
        return expire_transactional_ids(self.transactions, now_ms - self.settings.id_expiration_ms, bytes_max)

    def __repr__(self) -> str:
        return f"<TransactionCoordinator {len(self.transactions)} ids>"


def _reply(reply_to: ReplyTo, response: Any) -> Decision:
    return Decision(replies=[Reply(reply_to, response)])


# Rules about a transaction and the producer of a request. They change nothing.
def is_valid_producer(transaction: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Return whether a producer may continue:

    one without a record yet, the current one, or one whose epochs just ran out.
    """
    if transaction.producer_epoch == NO_EPOCH:
        return True
    if expected.producer_id == transaction.producer_id:
        return expected.epoch in (transaction.producer_epoch, transaction.last_producer_epoch)
    return expected.producer_id == transaction.previous_producer_id and expected.epoch >= EPOCH_MAX


def is_retried_init(transaction: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> bool:
    """Return whether this repeats a request whose response was lost: the epoch is not raised again."""
    if expected is None or transaction.producer_epoch == NO_EPOCH:
        return False
    if expected.producer_id == transaction.producer_id:
        return expected.epoch != transaction.producer_epoch and expected.epoch == transaction.last_producer_epoch
    return expected.producer_id == transaction.previous_producer_id


def validate_end(
    transaction: TransactionMetadata, producer: ProducerIdAndEpoch, is_commit: bool, is_version_2: bool
) -> Error | None:
    """Return the result of an EndTxn without a change; None if it changes the state."""
    # A producer that has the response may end its next, empty transaction before all markers are written.
    if transaction.has_pending_transition or (is_version_2 and transaction.state in PREPARED_STATES):
        return Error.CONCURRENT_TRANSACTIONS
    is_overflow = (
        is_version_2
        and transaction.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX
        and transaction.producer_epoch == 0
    )
    is_repeated = is_overflow or (is_version_2 and transaction.producer_epoch == producer.epoch + 1)
    if transaction.producer_id != producer.producer_id and not is_overflow:
        return Error.INVALID_PRODUCER_ID_MAPPING
    is_complete = transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    if producer.epoch != transaction.producer_epoch and not (is_repeated and is_complete):
        return Error.PRODUCER_FENCED
    return _validate_end_in_state(transaction, is_commit, is_version_2, is_repeated)


def _validate_end_in_state(
    transaction: TransactionMetadata, is_commit: bool, is_version_2: bool, is_repeated: bool
) -> Error | None:
    state = transaction.state
    if state is TransactionState.ONGOING:
        return None
    if state in PREPARED_STATES:
        return Error.CONCURRENT_TRANSACTIONS
    if state is TransactionState.EMPTY:
        if is_commit:
            return Error.INVALID_TXN_STATE
        return None if is_version_2 else Error.NONE
    is_same = is_commit == (state is TransactionState.COMPLETE_COMMIT)
    if is_repeated or not is_version_2:
        is_nothing = not is_version_2 and not is_commit and transaction.has_next_transaction_request
        return Error.NONE if is_same or is_nothing else Error.INVALID_TXN_STATE
    return Error.INVALID_TXN_STATE if is_commit else None


def is_commit_acknowledged(transaction: TransactionMetadata) -> bool:
    """Return whether the transaction is committed, and its producer has received the response."""
    if transaction.state is TransactionState.PREPARE_COMMIT:
        return not transaction.has_pending_transition
    return transaction.state is TransactionState.COMPLETE_COMMIT


def has_timed_out(transaction: TransactionMetadata, now_ms: int) -> bool:
    is_open = transaction.state is TransactionState.ONGOING and not transaction.has_pending_transition
    started_ms = transaction.start_timestamp_ms + transaction.clock_step_ms
    return is_open and started_ms + transaction.txn_timeout_ms < now_ms


# Expiry of transactional ids that were not used for long, a few at a time (`Machine.sweep`).
def expire_transactional_ids(
    transactions: dict[str, TransactionMetadata], since_ms: int, bytes_max: int
) -> Iterator[Decision]:
    batch = SweepBatch(bytes_max)
    for transactional_id in list(transactions):
        record = transaction_tombstone(transactional_id)
        if batch.is_full(len(record.key)):
            yield batch.take()
        transaction = transactions.get(transactional_id)
        if transaction is not None and is_expired(transaction, since_ms):
            batch.add(record)
    yield batch.take()


def is_expired(transaction: TransactionMetadata, since_ms: int) -> bool:
    return (
        transaction.state in ENDED_STATES
        and not transaction.has_pending_transition
        and transaction.last_update_timestamp_ms <= since_ms
    )
