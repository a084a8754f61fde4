"""The contract of a coordinator's state machine: it decides and keeps state; the runtime writes and waits.

A machine owns the state of one partition of an internal topic. It never awaits, reads no clock and opens no file:

* `decide`-like methods read the state and return a Decision: records to append, replies, and an event for later.
* `replay(key, value)` is the only method that changes the replicated state. It runs directly after the append, in
  order, and in the same way when the partition is loaded.
* Replies and the event wait until the high watermark has passed the records. A decision without records completes at
once, unless it is a read: a read waits until all earlier appends are committed.
* When an append is rejected, none of its records were written: the replies are replaced by `refused`, and the event
  returns with the error. When leadership is lost, the machine resigns (requests that wait inside it get a response) and
  is discarded; the next leader rebuilds it by replay.

There is one exception: a rebalance of the classic group protocol. The joined and waiting members and the next
generation are in memory only, as with Kafka. The log stores the result of a completed generation, and after a load the
members rejoin from there. So groups/classic_rebalance.py changes its groups while it decides, and a rejected append
undoes nothing: the members retry, and the records are written then.

All other code follows the contract, including deadlines and caches: if a decision cancelled a deadline or marked a
change as seen before its append, a rejected append would lose it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from ottla.base.errors import Error

RECORD_OVERHEAD_BYTES_MAX: Final = 32  # the maximum overhead of a record in addition to its key and value

ReplyTo = Any  # the target of a reply, opaque to machines: a waiting request in the broker, a number in a simulation


class Record(NamedTuple):
    """One record of an internal topic; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    to: ReplyTo
    response: Any


class TransactionalProducer(NamedTuple):
    """The producer of the transaction that the records belong to."""

    producer_id: int
    producer_epoch: int


class Decision:
    """The effects of one call of a machine: records, replies and an event."""

    __slots__ = ("event", "is_read", "producer", "records", "replies")

    def __init__(
        self,
        records: list[Record] | None = None,
        replies: list[Reply] | None = None,
        event: Any = None,
        *,
        stamp: TransactionalProducer | None = None,
        is_read: bool = False,
    ) -> None:
        self.records = records if records is not None else []
        self.replies = replies if replies is not None else []
        self.event = event
        self.producer = stamp
        self.is_read = is_read

    def __repr__(self) -> str:
        return f"<Decision {len(self.records)} records, {len(self.replies)} replies, event {self.event!r}>"


class Machine(Protocol):
    """The interface of every machine, as the runtime uses it."""

    def replay(self, key: bytes, value: bytes | None, stamp: TransactionalProducer | None) -> None:
        """Apply one record of the log."""

    def replay_end_transaction_marker(self, stamp: TransactionalProducer, is_commit: bool) -> None:
        """Apply the marker of a transaction that wrote to this partition."""

    def on_write_completed(self, event: Any, error: Error, now_ms: int) -> list[Decision]:
        """Handle the event of a decision whose records are committed (NONE) or were rejected (the error)."""

    def on_loaded(self, now_ms: int) -> list[Decision]:
        """Start the timers of the loaded state, after the whole log was replayed."""

    def on_clock_step(self, step_ms: int) -> None:
        """The system clock was set: move every deadline in memory by this difference."""

    def renew_sessions(self, now_ms: int) -> None:
        """Restart the sessions of members that must send heartbeats, because requests were rejected for a while."""

    def on_unloaded(self) -> list[Reply]:
        """Return NOT_COORDINATOR for every request that waits inside the machine, because leadership is lost."""

    def next_wakeup_ms(self) -> int | None:
        """Return the time of the next tick() if no other event comes first, or None."""

    def tick(self, now_ms: int) -> list[Decision]:
        """Return the decisions that are due by now and take little time."""

    def sweep(self, now_ms: int, bytes_max: int) -> Iterator[Decision] | None:
        """Return an iterator over the whole state of the machine if a sweep is due, even if it takes long.

        Each decision takes a fraction of a millisecond and must be run before the next one is requested; other work may
        run in between. No decision has records of more than `bytes_max`; a decision without records has no effect.
        """
