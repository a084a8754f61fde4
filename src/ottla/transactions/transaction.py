"""One transactional id and where its current transaction stands.

EMPTY ─────────────► ONGOING ──end──► PREPARE_COMMIT ──markers written──► COMPLETE_COMMIT ──► ONGOING, EMPTY
  ▲                     │
  └─ a producer starts  └──end, expiry, a new producer──► PREPARE_ABORT ──► COMPLETE_ABORT ──► ONGOING, EMPTY

With version 2 a transaction may also be aborted that never began: from every state in which none is open.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32_766  # 32,767 is left for fencing the last one
NO_TIME = -1


class State(IntEnum):
    """The numbers are those of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """The name that Kafka's tools show."""
        return "".join(word.capitalize() for word in self.name.split("_"))


LEADS_TO = {
    State.EMPTY: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.DEAD: set[State](),  # Kafka has these two in memory only: they are never written
    State.PREPARE_EPOCH_FENCE: set[State](),
}
SHOWN_STATES = {state.shown: state for state in State}
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
ENDED = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


class Identity(NamedTuple):
    """What a producer believes to be."""

    producer_id: int
    epoch: int


class Transaction:
    """What the coordinator knows about one transactional id; changed by records only, but for the last two."""

    __slots__ = (
        "client_version",
        "has_next",
        "is_pending",
        "last_epoch",
        "last_update_ms",
        "next_epoch",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = NO_EPOCH
        self.last_epoch = NO_EPOCH
        self.previous_producer_id = NO_PRODUCER_ID
        self.next_producer_id = NO_PRODUCER_ID
        self.next_epoch = NO_EPOCH
        self.timeout_ms = timeout_ms
        self.state = State.EMPTY
        self.partitions: set[tuple[str, int]] = set()
        self.start_ms = NO_TIME
        self.last_update_ms = NO_TIME
        self.client_version = 0  # 2: the epoch is raised with every transaction (KIP-890)
        self.has_next = False  # its producer asked for the next one, so it knows that this one was committed
        self.is_pending = False  # a record of it is written but not committed: nothing else may happen meanwhile

    @property
    def is_exhausted(self) -> bool:
        """No further epoch is left for this producer id."""
        return self.producer_epoch >= EPOCH_MAX

    def move_to(self, state: State) -> None:
        assert state in LEADS_TO[self.state], f"{self} cannot become {state.name}"
        self.state = state

    def copy(self) -> Transaction:
        twin = Transaction(self.transactional_id, self.producer_id, self.timeout_ms)
        twin.producer_epoch = self.producer_epoch
        twin.last_epoch = self.last_epoch
        twin.previous_producer_id = self.previous_producer_id
        twin.next_producer_id = self.next_producer_id
        twin.next_epoch = self.next_epoch
        twin.state = self.state
        twin.partitions = set(self.partitions)
        twin.start_ms = self.start_ms
        twin.last_update_ms = self.last_update_ms
        twin.client_version = self.client_version
        twin.has_next = self.has_next
        twin.is_pending = self.is_pending
        return twin

    def __repr__(self) -> str:
        return (
            f"<Transaction {self.transactional_id} {self.state.name} producer {self.producer_id} "
            f"epoch {self.producer_epoch}, {len(self.partitions)} partitions>"
        )
