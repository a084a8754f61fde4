"""One transactional id and the state of its current transaction.

EMPTY ─────────────► ONGOING ──end──► PREPARE_COMMIT ──markers written──► COMPLETE_COMMIT ──► ONGOING, EMPTY
  ▲                     │
  └─ a producer starts  └──end, expiry, a new producer──► PREPARE_ABORT ──► COMPLETE_ABORT ──► ONGOING, EMPTY

With version 2 a transaction that never began may also be aborted: from every state without an open one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32_766  # 32,767 is reserved for fencing the last one
NO_TIMESTAMP = -1


class TransactionState(IntEnum):
    """The state of a transaction, with the numbers of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def display_name(self) -> str:
        """The name that Kafka's tools show."""
        return "".join(word.capitalize() for word in self.name.split("_"))


VALID_TRANSITIONS = {
    TransactionState.EMPTY: {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT},
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.COMPLETE_ABORT: {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT},
    TransactionState.DEAD: set[TransactionState](),  # Kafka has these two in memory only: they are never written
    TransactionState.PREPARE_EPOCH_FENCE: set[TransactionState](),
}
STATES_BY_NAME = {state.display_name: state for state in TransactionState}
PREPARED_STATES = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
ENDED_STATES = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch that a producer claims."""

    producer_id: int
    epoch: int


class TransactionMetadata:
    """The state of one transactional id; only records change it, except for the last two fields and `clock_step_ms`."""

    __slots__ = (
        "client_transaction_version",
        "clock_step_ms",
        "has_next_transaction_request",
        "has_pending_transition",
        "last_producer_epoch",
        "last_update_timestamp_ms",
        "next_producer_epoch",
        "next_producer_id",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_timestamp_ms",
        "state",
        "topic_partitions",
        "transactional_id",
        "txn_timeout_ms",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = NO_EPOCH
        self.last_producer_epoch = NO_EPOCH
        self.previous_producer_id = NO_PRODUCER_ID
        self.next_producer_id = NO_PRODUCER_ID
        self.next_producer_epoch = NO_EPOCH
        self.txn_timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY
        self.topic_partitions: set[tuple[str, int]] = set()
        self.start_timestamp_ms = NO_TIMESTAMP
        self.last_update_timestamp_ms = NO_TIMESTAMP
        self.clock_step_ms = 0  # by how much the system clock was set here since the start
        self.client_transaction_version = 0  # 2: every transaction raises the epoch (KIP-890)
        self.has_next_transaction_request = (
            False  # its producer has requested the next one, so it has received the response of this one
        )
        self.has_pending_transition = False  # a record of it is written but not committed: other changes are rejected

    @property
    def is_producer_epoch_exhausted(self) -> bool:
        """Whether this producer id has no epochs left."""
        return self.producer_epoch >= EPOCH_MAX

    def transition_to(self, state: TransactionState) -> None:
        assert state in VALID_TRANSITIONS[self.state], f"{self} cannot become {state.name}"
        self.state = state

    def copy(self) -> TransactionMetadata:
        twin = TransactionMetadata(self.transactional_id, self.producer_id, self.txn_timeout_ms)
        twin.producer_epoch = self.producer_epoch
        twin.last_producer_epoch = self.last_producer_epoch
        twin.previous_producer_id = self.previous_producer_id
        twin.next_producer_id = self.next_producer_id
        twin.next_producer_epoch = self.next_producer_epoch
        twin.state = self.state
        twin.topic_partitions = set(self.topic_partitions)
        twin.start_timestamp_ms = self.start_timestamp_ms
        twin.last_update_timestamp_ms = self.last_update_timestamp_ms
        twin.clock_step_ms = self.clock_step_ms
        twin.client_transaction_version = self.client_transaction_version
        twin.has_next_transaction_request = self.has_next_transaction_request
        twin.has_pending_transition = self.has_pending_transition
        return twin

    def __repr__(self) -> str:
        return (
            f"<TransactionMetadata {self.transactional_id} {self.state.name} producer {self.producer_id} "
            f"epoch {self.producer_epoch}, {len(self.topic_partitions)} partitions>"
        )
