"""The transaction coordinator's machine: all transactional ids of one partition of `__transaction_state`.

It follows the contract of coordination/machine.py. A transaction ends in two steps: the prepare record decides, and is
what the client is told about; then markers go to every partition that took part, and the complete record closes it.
Whatever happens between the two, after a restart the markers are sent again: the end is the one that prepare says.

Rules that are easy to get wrong:
1. While a record of a transaction is on its way, every other change of it is refused (CONCURRENT_TRANSACTIONS).
2. A producer that starts anew, and the clock, fence: they raise the epoch and abort what is open, and the client asks
   again.
3. With transaction version 2 the epoch goes up with every transaction, so the epoch itself tells a repeated request
   (one less than ours) from the next one (equal to ours).
4. With version 1 it does not: an abort after a commit may mean a transaction in which nothing has happened yet, or the
   committed one, whose answer got lost. Only who is known to have been answered is told that it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.base.errors import Error
from ottla.coordination.machine import Decision, Reply, ReplyTo, Stamp
from ottla.protocol.messages.transaction_steps import DescribedTransaction, ListedTransaction
from ottla.transactions.description import describe_transaction, list_transaction
from ottla.transactions.expiry import forget_unused
from ottla.transactions.records import read_key, read_value, transaction_record
from ottla.transactions.rules import end_verdict, has_timed_out, is_answered, is_repeated_init, may_go_on
from ottla.transactions.transaction import (
    ENDED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    Identity,
    State,
    Transaction,
)

RAISES_EPOCHS = 2  # the transaction version since which every transaction has an epoch of its own
FENCE_EPOCH = 32_767


class TransactionSettings(NamedTuple):
    """Kafka's `transaction.*` and `transactional.*` keys; the defaults are Kafka's."""

    timeout_ms_max: int = 900_000
    abort_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    id_expiration_interval_ms: int = 3_600_000


class Initialized(NamedTuple):
    """The answer to InitProducerId."""

    error: Error
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Ended(NamedTuple):
    """The answer to EndTxn: with transaction version 2 also who the producer is from now on."""

    error: Error
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Changed(NamedTuple):
    """A record of this transaction was committed or refused."""

    transactional_id: str


class AskedForNext(NamedTuple):
    """The producer of this transaction wants the next one, and was told to wait."""

    transactional_id: str


class SendMarkers(NamedTuple):
    """To do for the driver: write these markers, then call markers_written()."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    partitions: frozenset[tuple[str, int]]
    version: int


class TransactionMachine:
    """Decides about transactions; `to_send` is what the driver must do about markers. It empties `settled`, too."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self.to_send: list[SendMarkers] = []
        self.settled: list[str] = []  # ids that something was written about, for whoever waits for that
        self._on_the_way: dict[str, Transaction] = {}  # for apply(): the log does not keep everything
        self._abort_due_ms: int | None = None
        self._expiry_due_ms: int | None = None

    # ---- a producer starts

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        known: Identity | None,
        fresh_id: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """InitProducerId; `known` is who the producer was, if it goes on (KIP-360)."""
        if not 0 < timeout_ms <= self.settings.timeout_ms_max:
            return _answer(reply_to, Initialized(Error.INVALID_TRANSACTION_TIMEOUT))
        transaction = self.transactions.get(transactional_id) or Transaction(transactional_id, fresh_id, timeout_ms)
        if transaction.is_pending or transaction.state in PREPARED:
            return _answer(reply_to, Initialized(Error.CONCURRENT_TRANSACTIONS))
        if known is not None and not may_go_on(transaction, known):
            return _answer(reply_to, Initialized(Error.PRODUCER_FENCED))
        if transaction.state is State.ONGOING:
            decision = self._fence(transaction, now_ms)
            decision.replies.append(Reply(reply_to, Initialized(Error.CONCURRENT_TRANSACTIONS)))
            return decision
        after = transaction.copy()
        after.move_to(State.EMPTY)
        after.timeout_ms = timeout_ms
        after.partitions = set()
        after.start_ms, after.last_update_ms = NO_TIME, now_ms
        if transaction.is_exhausted and not is_repeated_init(transaction, known):
            after.producer_id, after.producer_epoch = fresh_id, 0
            after.last_epoch = transaction.producer_epoch if known is not None else NO_EPOCH
        elif not is_repeated_init(transaction, known):
            after.producer_epoch = transaction.producer_epoch + 1
            after.last_epoch = transaction.producer_epoch if known is not None else NO_EPOCH
        return self._change(after, Reply(reply_to, Initialized(Error.NONE, after.producer_id, after.producer_epoch)))

    # ---- partitions take part

    def add_partitions(
        self,
        transactional_id: str,
        who: Identity,
        partitions: Iterable[tuple[str, int]],
        version: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """AddPartitionsToTxn and AddOffsetsToTxn; the answer is an Error."""
        wanted = set(partitions)
        transaction = self.transactions.get(transactional_id)
        error = self._problem(transaction, who)
        if transaction is None or error is not Error.NONE:
            return _answer(reply_to, error)
        if transaction.is_pending or transaction.state in PREPARED:
            event = AskedForNext(transactional_id) if is_answered(transaction) else None
            return Decision(replies=[Reply(reply_to, Error.CONCURRENT_TRANSACTIONS)], event=event)
        if transaction.state is State.ONGOING and wanted <= transaction.partitions:
            return _answer(reply_to, Error.NONE)
        after = transaction.copy()
        if transaction.state is not State.ONGOING:
            after.start_ms = now_ms
            after.partitions = set()
        after.move_to(State.ONGOING)
        after.partitions |= wanted
        after.last_update_ms = now_ms
        after.client_version = version
        return self._change(after, Reply(reply_to, Error.NONE))

    def verify_partitions(
        self, transactional_id: str, who: Identity, partitions: Iterable[tuple[str, int]]
    ) -> tuple[Error, dict[tuple[str, int], Error]]:
        """Whether these partitions belong to the open transaction of this producer (KIP-890)."""
        transaction = self.transactions.get(transactional_id)
        error = self._problem(transaction, who)
        if transaction is None or error is not Error.NONE:
            return error, {}
        if transaction.is_pending or transaction.state in PREPARED:
            return Error.CONCURRENT_TRANSACTIONS, {}
        is_open = transaction.state is State.ONGOING
        return Error.NONE, {
            each: Error.NONE if is_open and each in transaction.partitions else Error.TRANSACTION_ABORTABLE
            for each in partitions
        }

    def _problem(self, transaction: Transaction | None, who: Identity) -> Error:
        if transaction is None or transaction.producer_id != who.producer_id:
            return Error.INVALID_PRODUCER_ID_MAPPING
        return Error.NONE if transaction.producer_epoch == who.epoch else Error.PRODUCER_FENCED

    # ---- the end

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether end() may need a fresh producer id because the epochs of this one are used up."""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.is_exhausted

    def end(
        self,
        transactional_id: str,
        who: Identity,
        is_commit: bool,
        version: int,
        fresh_id: int,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """EndTxn by a client; the answer is an Ended."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return _answer(reply_to, Ended(Error.INVALID_PRODUCER_ID_MAPPING))
        verdict = end_verdict(transaction, who, is_commit, is_second=version >= RAISES_EPOCHS)
        if verdict is Error.NONE:
            return _answer(reply_to, Ended(Error.NONE, transaction.producer_id, transaction.producer_epoch))
        if verdict is not None:
            return _answer(reply_to, Ended(verdict))
        after = self._prepared(transaction, is_commit, version, fresh_id, now_ms)
        next_identity = (after.producer_id, after.producer_epoch)
        if after.next_producer_id != NO_PRODUCER_ID:
            next_identity = (after.next_producer_id, 0)
        return self._change(after, Reply(reply_to, Ended(Error.NONE, *next_identity)))

    def _prepared(
        self, transaction: Transaction, is_commit: bool, version: int, fresh_id: int, now_ms: int
    ) -> Transaction:
        after = transaction.copy()
        after.move_to(State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT)
        after.last_update_ms = now_ms
        after.client_version = version
        if transaction.state is not State.ONGOING:  # version 2 may abort what it never began
            after.start_ms = now_ms
            after.partitions = set()
        if version >= RAISES_EPOCHS:
            after.last_epoch = transaction.producer_epoch
            after.producer_epoch = transaction.producer_epoch + 1
            if transaction.is_exhausted:
                after.next_producer_id = fresh_id
        return after

    def _fence(self, transaction: Transaction, now_ms: int) -> Decision:
        """Abort what is open under an epoch that its producer does not have."""
        after = transaction.copy()
        after.move_to(State.PREPARE_ABORT)
        after.producer_epoch = FENCE_EPOCH if transaction.is_exhausted else transaction.producer_epoch + 1
        # A producer whose transactions have epochs of their own may find out and go on (KIP-890).
        after.last_epoch = transaction.producer_epoch if transaction.client_version >= RAISES_EPOCHS else NO_EPOCH
        after.last_update_ms = now_ms
        return self._change(after)

    def markers_written(self, transactional_id: str, producer_id: int, epoch: int, now_ms: int) -> Decision:
        """Every partition has its marker: the transaction is over."""
        transaction = self.transactions.get(transactional_id)
        is_current = (
            transaction is not None
            and transaction.state in PREPARED
            and (transaction.producer_id, transaction.producer_epoch) == (producer_id, epoch)
        )
        if transaction is None or not is_current:
            return Decision()
        after = transaction.copy()
        after.move_to(State.COMPLETE_COMMIT if transaction.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT)
        after.partitions = set()
        after.last_update_ms = now_ms
        if transaction.next_producer_id != NO_PRODUCER_ID:
            after.producer_id, after.producer_epoch = transaction.next_producer_id, 0
            after.next_producer_id = NO_PRODUCER_ID
        return self._change(after)

    # ---- looking

    def describe(self, transactional_id: str) -> DescribedTransaction:
        return describe_transaction(transactional_id, self.transactions.get(transactional_id))

    def list_transactions(
        self, states: set[State], producer_ids: set[int], duration_ms: int, now_ms: int
    ) -> Iterable[ListedTransaction]:
        for transaction in self.transactions.values():
            is_wanted = (
                (not states or transaction.state in states)
                and (not producer_ids or transaction.producer_id in producer_ids)
                and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
            )
            if is_wanted and transaction.state is not State.DEAD:
                yield list_transaction(transaction)

    # ---- the log

    def _change(self, after: Transaction, reply: Reply | None = None) -> Decision:
        after.is_pending = True
        before = self.transactions.get(after.transactional_id, after)
        assert before is after or not before.is_pending, f"{before} has a change on its way"
        is_newer = after.producer_id != before.producer_id or after.producer_epoch >= before.producer_epoch
        assert is_newer, f"{before} goes back to epoch {after.producer_epoch}"
        assert not after.partitions or after.state not in ENDED, f"{after} has ended"
        after.previous_producer_id = before.producer_id
        after.has_next = before.has_next and after.state is State.COMPLETE_COMMIT
        self._on_the_way[after.transactional_id] = after
        replies = [reply] if reply is not None else []
        return Decision([transaction_record(after)], replies, Changed(after.transactional_id))

    def apply(self, key: bytes, value: bytes | None, stamp: Stamp | None) -> None:  # noqa: ARG002
        transactional_id = read_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        transaction = read_value(transactional_id, value)
        mine = self._on_the_way.pop(transactional_id, None)
        if mine is not None:
            transaction.last_epoch = mine.last_epoch
            transaction.has_next = mine.has_next
            transaction.is_pending = True
        self.transactions[transactional_id] = transaction

    def apply_marker(self, stamp: Stamp, is_commit: bool) -> None:
        """No transaction writes to this topic."""

    def settle(self, event: Any, error: Error, now_ms: int) -> list[Decision]:  # noqa: ARG002
        if isinstance(event, AskedForNext):
            self.transactions[event.transactional_id].has_next = True
        if not isinstance(event, Changed):
            return []
        refused = self._on_the_way.pop(event.transactional_id, None)
        self.settled.append(event.transactional_id)
        transaction = self.transactions.get(event.transactional_id)
        if transaction is not None:
            transaction.is_pending = False
            if refused is not None and refused.state is State.ONGOING:
                transaction.has_next = transaction.state is State.COMPLETE_COMMIT
            if error is Error.NONE and transaction.state in PREPARED:
                self._send_markers(transaction)
        return []

    def _send_markers(self, transaction: Transaction) -> None:
        self.to_send.append(
            SendMarkers(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state is State.PREPARE_COMMIT,
                frozenset(transaction.partitions),
                transaction.client_version,
            )
        )

    def loaded(self, now_ms: int) -> list[Decision]:
        """What was decided and not yet told to every partition is told now."""
        self._abort_due_ms = now_ms + self.settings.abort_interval_ms
        self._expiry_due_ms = now_ms + self.settings.id_expiration_interval_ms
        for transaction in self.transactions.values():
            transaction.is_pending = False
            if transaction.state in PREPARED:
                self._send_markers(transaction)
        return []

    def renew_sessions(self, now_ms: int) -> None:
        """Nobody reports here."""

    def resign(self) -> list[Reply]:
        """Nobody waits inside this machine."""
        return []

    # ---- time

    def next_wakeup_ms(self) -> int | None:
        times = [at_ms for at_ms in (self._abort_due_ms, self._expiry_due_ms) if at_ms is not None]
        return min(times, default=None)

    def tick(self, now_ms: int) -> list[Decision]:
        """Decisions come one by one: each must be carried out before the next is made."""
        if self._abort_due_ms is None or self._abort_due_ms > now_ms:
            return []
        self._abort_due_ms = now_ms + self.settings.abort_interval_ms
        timed_out = [each for each in self.transactions.values() if has_timed_out(each, now_ms)]
        return [self._fence(transaction, now_ms) for transaction in timed_out]

    def sweep(self, now_ms: int, bytes_max: int) -> Iterator[Decision] | None:
        if self._expiry_due_ms is None or self._expiry_due_ms > now_ms:
            return None
        self._expiry_due_ms = now_ms + self.settings.id_expiration_interval_ms
        return forget_unused(self.transactions, now_ms - self.settings.id_expiration_ms, bytes_max)

    def __repr__(self) -> str:
        return f"<TransactionMachine {len(self.transactions)} ids>"


def _answer(reply_to: ReplyTo, response: Any) -> Decision:
    return Decision(replies=[Reply(reply_to, response)])
