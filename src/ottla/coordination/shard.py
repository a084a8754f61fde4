"""One loaded partition of an internal topic: its machine, the decisions in flight, and the replies that wait for them.

The order is always: decide, append, apply, and, when the high watermark has passed the records, respond. Responses are
sent in the order of the records. A decision without records completes at once; a read completes after all earlier
appends are committed.

Many small decisions that arrive together may be gathered: they are appended as one batch, in order, and applied and
completed as if each had arrived alone. Until the flush no other decision may be made here, because the machine does not
know the gathered ones yet.

If applying the written records fails, the machine no longer matches the log: the shard is discarded, and the next
request loads it again. An error in a decision affects only its own request.

A shard belongs to one uninterrupted period of leadership. When that ends, it is unknown whether uncommitted records are
lost: requests that wait for them, or inside the machine, get NOT_COORDINATOR and go to the new coordinator.

Slow followers may delay the high watermark. After a timeout clients get REQUEST_TIMED_OUT, because the outcome is not
known; the records stay, and take effect when they are committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.base.tasks import notify_safely
from ottla.coordination.machine import (
    RECORD_OVERHEAD_BYTES_MAX,
    Decision,
    Machine,
    Record,
    Reply,
    TransactionalProducer,
)
from ottla.protocol.batches import HEADER_BYTES, build_plain_batch
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingProduce

logger = logging.getLogger(__name__)

NO_TIMEOUT_MS: Final = 10**15
BATCH_BYTES_MAX: Final = 256 << 10
REPLIES_PER_CALLBACK: Final = 100  # a rebalance answers thousands of members at once

M = TypeVar("M", bound=Machine)
MakeErrorResponse = Callable[[object, Error], object]
"""Makes of a response the same response with an error in it."""


class CoordinatorContext(Generic[M]):
    """A loaded partition. It is discarded as a whole when leadership is lost or a write fails half-way."""

    def __init__(
        self,
        partition: Partition,
        machine: M,
        refuse: MakeErrorResponse,
        now_ms: Callable[[], int],
        on_machine_changed: Callable[[CoordinatorContext[M]], None],
        codec: int = 0,
        wait_ms_max: int = NO_TIMEOUT_MS,
        call_soon: Callable[..., object] | None = None,
    ) -> None:
        """`call_soon` of the event loop sends many replies in slices; without it, they are sent at once."""
        self._wait_ms_max = wait_ms_max
        self._call_soon = call_soon
        self.partition = partition
        self.machine = machine
        self._make_error_response = refuse
        self._now_ms = now_ms
        self._on_machine_changed = on_machine_changed
        self._codec = codec
        self._leading_since = partition.leader_since_epoch
        self._matches_log = True  # false if the machine does not match the log
        self._waiting: deque[tuple[int, int, Decision]] = deque()  # last offset, time of the append
        self._is_completing = False
        self._batched: list[Decision] = []  # appended together by flush()
        self._batched_bytes = 0

    @property
    def is_current_leader(self) -> bool:
        """Whether this broker has led without a break since the load, so that no other broker has written to the
        log."""
        partition = self.partition
        return self._matches_log and partition.is_leader and partition.leader_since_epoch == self._leading_since

    def execute(self, decision: Decision) -> None:
        """Append a decision's records, apply them, and respond when they are committed."""
        if self._batched:
            notify_safely(self.flush)
        if decision.records:
            self._write([decision], decision.records, decision.producer)
        elif decision.is_read and self._waiting:
            self._waiting.append((self._waiting[-1][0], self._now_ms(), decision))
        else:
            self._complete(decision)

    @property
    def batch_bytes_max(self) -> int:
        """The maximum size of records that are written together."""
        return min(self.partition.log.settings.max_message_bytes - HEADER_BYTES, BATCH_BYTES_MAX)

    @property
    def has_batched(self) -> bool:
        return bool(self._batched)

    def add_to_batch(self, decision: Decision) -> None:
        """Run a decision with the next flush(). It must have records, and neither an event nor a transaction."""
        assert decision.records, f"{decision} writes nothing"
        assert decision.producer is None, f"{decision} is part of a transaction"
        assert decision.event is None, f"{decision} is not all"
        size_bytes = 0
        for key, value in decision.records:
            size_bytes += len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES_MAX
        if self._batched and self._batched_bytes + size_bytes > self.batch_bytes_max:
            notify_safely(self.flush)
        self._batched.append(decision)
        self._batched_bytes += size_bytes

    def flush(self) -> None:
        """Write the gathered decisions."""
        gathered, self._batched, self._batched_bytes = self._batched, [], 0
        if gathered:
            self._write(gathered, [record for decision in gathered for record in decision.records], None)

    def _write(self, decisions: list[Decision], records: list[Record], stamp: TransactionalProducer | None) -> None:
        """Append the records of these decisions, all or none, and apply them."""
        try:
            last_offset = self._append(records, stamp)
        except KafkaError as error:
            logger.info("%s could not be written to: %s", self.partition.name, error.error.name)
            for decision in decisions:
                self._fail_write(decision, error.error)
            return
        now_ms = self._now_ms()
        offset = last_offset - len(records)
        goes_on = not self._waiting or offset >= self._waiting[-1][0]
        for decision in decisions:
            offset += len(decision.records)
            self._waiting.append((offset, now_ms, decision))
        self._apply(decisions, goes_on)
        self._complete_committed()

    def _apply(self, decisions: list[Decision], is_in_order: bool) -> None:
        """Apply appended records. After an error the machine does not match the log."""
        try:
            assert is_in_order, f"{self} appended below an offset that is waited for"
            for decision in decisions:
                for key, value in decision.records:
                    self.machine.replay(key, value, decision.producer)
        except Exception:
            self._matches_log = False
            self.unload()
            raise

    def _append(self, records: list[Record], stamp: TransactionalProducer | None) -> int:
        # even after leadership was lost and regained: the log has changed, this machine has not
        if not self.is_current_leader:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        now_ms = self._now_ms()
        batch = build_plain_batch(
            records,
            now_ms,
            codec=self._codec,
            producer_id=stamp.producer_id if stamp is not None else -1,
            producer_epoch=stamp.producer_epoch if stamp is not None else -1,
            is_transactional=stamp is not None,
        )
        last_offset = self.partition.append_as_coordinator(batch, now_ms)
        if not self.partition.is_replicated(last_offset):
            self.partition.wait_for_replication(last_offset, WaitingProduce(1, self._complete_committed))
        return last_offset

    def _complete_committed(self) -> None:
        """Complete the committed decisions. A response may lead to new decisions, so nested calls return at once."""
        if self._is_completing:
            return
        if not self.is_current_leader:  # the records below the high watermark may be another leader's
            self.unload()
            return
        self._is_completing = True
        try:
            while self._waiting and self.partition.is_replicated(self._waiting[0][0]):
                self._complete(self._waiting.popleft()[2])
        finally:
            self._is_completing = False

    def _complete(self, decision: Decision) -> None:
        self._send_replies(decision.replies)
        if decision.event is not None:
            self._notify_machine(decision, Error.NONE)

    def _send_replies(self, replies: list[Reply]) -> None:
        count = len(replies) if self._call_soon is None else REPLIES_PER_CALLBACK
        for to, response in replies[:count]:
            notify_safely(to, response)
        if len(replies) > count and self._call_soon is not None:
            self._call_soon(self._send_replies, replies[count:])

    def _fail_write(self, decision: Decision, error: Error) -> None:
        """Fail the decision's requests, and those inside the machine, with the same error, because the write failed."""
        for reply in decision.replies:
            notify_safely(reply.to, self._make_error_response(reply.response, error))
        answered = self._make_error_response(error, error)
        self._notify_machine(decision, answered if isinstance(answered, Error) else error)

    def _notify_machine(self, decision: Decision, error: Error) -> None:
        if decision.event is not None:
            for following in self.machine.on_write_completed(decision.event, error, self._now_ms()):
                self.execute(following)
            self._on_machine_changed(self)

    def on_clock_step(self, step_ms: int) -> None:
        """The system clock was set: all deadlines move with it."""
        self._waiting = deque((offset, since_ms + step_ms, decision) for offset, since_ms, decision in self._waiting)
        self.machine.on_clock_step(step_ms)

    def next_wakeup_ms(self) -> int | None:
        """Return the time of the next tick() if no other event comes first, or None."""
        wakeup_ms = self.machine.next_wakeup_ms()
        if self._waiting:
            overdue_ms = self._oldest_append_ms() + self._wait_ms_max
            return overdue_ms if wakeup_ms is None else min(wakeup_ms, overdue_ms)
        return wakeup_ms

    def _oldest_append_ms(self) -> int:
        """Return the append time of the oldest pending decision."""
        for _, since_ms, decision in self._waiting:
            if decision.replies:
                return since_ms
        return NO_TIMEOUT_MS

    def _time_out_replies(self) -> None:
        overdue_ms = self._now_ms() - self._wait_ms_max
        for _, since_ms, decision in list(self._waiting):
            if since_ms > overdue_ms:
                break
            replies, decision.replies = decision.replies, []
            for reply in replies:
                notify_safely(reply.to, self._make_error_response(reply.response, Error.REQUEST_TIMED_OUT))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether writes are rejected, because too few replicas are in sync."""
        return self.partition.is_under_min_isr

    def tick(self) -> None:
        """Run due work, but not while writes are rejected: an expiry that cannot be written would be lost."""
        self._time_out_replies()
        if self.is_under_min_isr:
            return
        for decision in self.machine.tick(self._now_ms()):
            self.execute(decision)

    def sweep(self) -> Iterator[Decision] | None:
        """Return the decisions of due work that may take long, to be run when there is time."""
        return None if self.is_under_min_isr else self.machine.sweep(self._now_ms(), self.batch_bytes_max)

    def unload(self) -> None:
        """Reject waiting requests with NOT_COORDINATOR, because leadership is lost; clients contact the new
        coordinator.
        """
        abandoned = [decision for _, _, decision in self._waiting] + self._batched
        self._waiting, self._batched, self._batched_bytes = deque(), [], 0
        for decision in abandoned:
            for reply in decision.replies:
                notify_safely(reply.to, self._make_error_response(reply.response, Error.NOT_COORDINATOR))
        for reply in self.machine.on_unloaded():
            notify_safely(reply.to, reply.response)

    def __repr__(self) -> str:
        return (
            f"<CoordinatorContext {self.partition.name} since epoch {self._leading_since}, "
            f"{len(self._waiting)} waiting, "
            f"{self.machine!r}>"
        )
