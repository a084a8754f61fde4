"""The contract of a coordinator's machine: it decides and remembers, somebody else writes and waits.

A machine owns the state of one partition of an internal topic. It never awaits, reads no clock and touches no file:

* `decide`-like methods read the state and return a Decision: records to append, replies, and an event for later.
* `apply(key, value)` is the only writer of what the log remembers. It runs directly after the append, in order, and in
  the same way when the partition is loaded.
* Replies and the event wait until the high watermark has passed the records. A decision without records is answered at
  once, unless it is a read: that one waits until all that was appended before it is committed.
* When an append is refused, nothing of it was written: the replies are replaced by `refused`, and the event comes back
  with the error. When leadership is lost, the machine resigns (whoever waits inside it is answered) and is thrown away;
  the next leader builds it again by replay.

One exception: a rebalance of the classic group protocol. Who has joined, who waits, and which generation comes next is
in memory only, as with Kafka; the log keeps what a generation has agreed on, and whoever loads it lets the members
begin anew from there. So groups/classic.py changes its groups while it decides, and a refused append takes nothing
back: the members try again, and what could not be written is written then.

Everybody else keeps to it, deadlines and caches included: a deadline that a decision cancels, or a change that it notes
as seen, is lost when its records are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from ottla.base.errors import Error

RECORD_BYTES_MORE: Final = 32  # what a record takes beside its key and its value, at most

ReplyTo = Any  # whom a reply goes to: opaque to machines, a parked request for the broker, a number in a simulation


class Record(NamedTuple):
    """One record of an internal topic; without value it says that its key is to be forgotten."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    to: ReplyTo
    response: Any


class Stamp(NamedTuple):
    """Whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


class Decision:
    """What a machine wants to happen."""

    __slots__ = ("event", "is_read", "records", "replies", "stamp")

    def __init__(
        self,
        records: list[Record] | None = None,
        replies: list[Reply] | None = None,
        event: Any = None,
        *,
        stamp: Stamp | None = None,
        is_read: bool = False,
    ) -> None:
        self.records = records if records is not None else []
        self.replies = replies if replies is not None else []
        self.event = event
        self.stamp = stamp
        self.is_read = is_read

    def __repr__(self) -> str:
        return f"<Decision {len(self.records)} records, {len(self.replies)} replies, event {self.event!r}>"


class Machine(Protocol):
    """What the runtime asks of every machine."""

    def apply(self, key: bytes, value: bytes | None, stamp: Stamp | None) -> None:
        """Take in one record of the log."""

    def apply_marker(self, stamp: Stamp, is_commit: bool) -> None:
        """A transaction that wrote here has ended."""

    def settle(self, event: Any, error: Error, now_ms: int) -> list[Decision]:
        """The records of a decision with this event are committed (NONE) or were refused."""

    def loaded(self, now_ms: int) -> list[Decision]:
        """The whole log was replayed: start the clocks of what it holds."""

    def renew_sessions(self, now_ms: int) -> None:
        """For a while nobody was listened to: whoever must report gets time anew."""

    def resign(self) -> list[Reply]:
        """Leadership is lost: NOT_COORDINATOR for every request that waits inside the machine."""

    def next_wakeup_ms(self) -> int | None:
        """When tick() has something to do, if nothing else happens."""

    def tick(self, now_ms: int) -> list[Decision]:
        """What is due by now, and does not take long."""

    def sweep(self, now_ms: int, bytes_max: int) -> Iterator[Decision] | None:
        """If it is due: a way through all that the machine holds, whatever time that takes.

        Each of these decisions takes a fraction of a millisecond, and is to be run before the next is made; anything
        may happen in between. None has more records than `bytes_max`, one without any has looked in vain.
        """
