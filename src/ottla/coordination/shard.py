"""One partition of an internal topic at work: its machine, what was written for it, and who waits for that.

The order is always: decide, append, apply, and, when the high watermark has passed the records, answer. Decisions are
answered in the order of their records; one without records is answered at once, or, if it only reads, after all that
was appended before it.

Many small decisions that come together may be gathered: they are appended as one batch, in their order, and applied and
answered as if each had come alone. Until then nobody else may decide anything here: the machine does not know of them.

Should the machine not take in what was written, it is not what the log says any more: the shard is given up, and
whoever asks next has it loaded anew. A mistake in a decision harms nobody but who asked.

A shard belongs to one unbroken time of leadership. When that ends nobody knows what becomes of the records that are
not committed: whoever waits, for them or inside the machine, is told NOT_COORDINATOR and asks the new coordinator.

Followers may hold the high watermark back. Nobody waits for them for ever: after a while clients are told that it is
not known what became of their requests (REQUEST_TIMED_OUT); the records stay, and count when they are committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.base.tasks import tell
from ottla.coordination.machine import RECORD_BYTES_MORE, Decision, Machine, Record, Stamp
from ottla.protocol.batches import HEADER_BYTES, build_plain_batch
from ottla.replication.partition import Partition
from ottla.replication.waiting import WaitingProduce

logger = logging.getLogger(__name__)

FOREVER_MS: Final = 10**15
BATCH_BYTES_MAX: Final = 256 << 10

M = TypeVar("M", bound=Machine)
Refuse = Callable[[object, Error], object]
"""Makes of a response the same response with an error in it."""


class Shard(Generic[M]):
    """A loaded partition. When leadership is lost or a write fails half-way, it is thrown away as a whole."""

    def __init__(
        self,
        partition: Partition,
        machine: M,
        refuse: Refuse,
        now_ms: Callable[[], int],
        on_settled: Callable[[Shard[M]], None],
        codec: int = 0,
        wait_ms_max: int = FOREVER_MS,
    ) -> None:
        self._wait_ms_max = wait_ms_max
        self.partition = partition
        self.machine = machine
        self._refuse = refuse
        self._now_ms = now_ms
        self._on_settled = on_settled
        self._codec = codec
        self._leading_since = partition.leading_since
        self._is_sound = True  # the machine is what the log says
        self._waiting: deque[tuple[int, int, Decision]] = deque()  # last offset, since when
        self._is_releasing = False
        self._gathered: list[Decision] = []  # to be appended together
        self._gathered_bytes = 0

    @property
    def is_ours(self) -> bool:
        """Still the leader, and without a break since the machine was loaded: nobody else has written to the log."""
        partition = self.partition
        return self._is_sound and partition.is_leader and partition.leading_since == self._leading_since

    def run(self, decision: Decision) -> None:
        """Make a decision of the machine happen."""
        if self._gathered:
            tell(self.flush)
        if decision.records:
            self._write([decision], decision.records, decision.stamp)
        elif decision.is_read and self._waiting:
            self._waiting.append((self._waiting[-1][0], self._now_ms(), decision))
        else:
            self._deliver(decision)

    @property
    def batch_bytes_max(self) -> int:
        """How large the records that are written together may be."""
        return min(self.partition.log.settings.max_message_bytes - HEADER_BYTES, BATCH_BYTES_MAX)

    @property
    def has_gathered(self) -> bool:
        return bool(self._gathered)

    def gather(self, decision: Decision) -> None:
        """Make it happen with the next flush(). It has records, and nothing but them: no event, no transaction."""
        assert decision.records, f"{decision} writes nothing"
        assert decision.stamp is None, f"{decision} is part of a transaction"
        assert decision.event is None, f"{decision} is not all"
        size_bytes = 0
        for key, value in decision.records:
            size_bytes += len(key) + (len(value) if value is not None else 0) + RECORD_BYTES_MORE
        if self._gathered and self._gathered_bytes + size_bytes > self.batch_bytes_max:
            tell(self.flush)
        self._gathered.append(decision)
        self._gathered_bytes += size_bytes

    def flush(self) -> None:
        """Make happen what was gathered."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered:
            self._write(gathered, [record for decision in gathered for record in decision.records], None)

    def _write(self, decisions: list[Decision], records: list[Record], stamp: Stamp | None) -> None:
        """Append the records of these decisions, all or none, and apply them."""
        try:
            last_offset = self._append(records, stamp)
        except KafkaError as error:
            logger.info("%s could not be written to: %s", self.partition.name, error.error.name)
            for decision in decisions:
                self._settle_refused(decision, error.error)
            return
        now_ms = self._now_ms()
        offset = last_offset - len(records)
        goes_on = not self._waiting or offset >= self._waiting[-1][0]
        for decision in decisions:
            offset += len(decision.records)
            self._waiting.append((offset, now_ms, decision))
        self._apply(decisions, goes_on)
        self._release()

    def _apply(self, decisions: list[Decision], goes_on: bool) -> None:
        """Whatever goes wrong here, the log has them: then the machine is not what the log says."""
        try:
            assert goes_on, f"{self} goes back to offsets that others wait for"
            for decision in decisions:
                for key, value in decision.records:
                    self.machine.apply(key, value, decision.stamp)
        except Exception:
            self._is_sound = False
            self.abandon()
            raise

    def _append(self, records: list[Record], stamp: Stamp | None) -> int:
        if not self.is_ours:  # also if we lead again: the log has changed, this machine has not
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
        last_offset = self.partition.append_own(batch, now_ms)
        if not self.partition.is_replicated(last_offset):
            self.partition.wait_for_replication(last_offset, WaitingProduce(1, self._release))
        return last_offset

    def _release(self) -> None:
        """Answer what is committed by now; an answer may lead to new decisions, so this is no recursion."""
        if self._is_releasing:
            return
        if not self.is_ours:  # what the high watermark passes now may be somebody else's
            self.abandon()
            return
        self._is_releasing = True
        try:
            while self._waiting and self.partition.is_replicated(self._waiting[0][0]):
                self._deliver(self._waiting.popleft()[2])
        finally:
            self._is_releasing = False

    def _deliver(self, decision: Decision) -> None:
        for to, response in decision.replies:
            tell(to, response)
        if decision.event is not None:
            self._settle(decision, Error.NONE)

    def _settle_refused(self, decision: Decision, error: Error) -> None:
        """Nothing was written: whoever waits is told so."""
        for reply in decision.replies:
            tell(reply.to, self._refuse(reply.response, error))
        self._settle(decision, error)

    def _settle(self, decision: Decision, error: Error) -> None:
        if decision.event is not None:
            for following in self.machine.settle(decision.event, error, self._now_ms()):
                self.run(following)
            self._on_settled(self)

    def next_wakeup_ms(self) -> int | None:
        """When tick() has something to do, if nothing else happens."""
        wakeup_ms = self.machine.next_wakeup_ms()
        if self._waiting:
            overdue_ms = self._oldest_wait_ms() + self._wait_ms_max
            return overdue_ms if wakeup_ms is None else min(wakeup_ms, overdue_ms)
        return wakeup_ms

    def _oldest_wait_ms(self) -> int:
        """Since when the first waits who has not been answered."""
        for _, since_ms, decision in self._waiting:
            if decision.replies:
                return since_ms
        return FOREVER_MS

    def _answer_overdue(self) -> None:
        overdue_ms = self._now_ms() - self._wait_ms_max
        for _, since_ms, decision in list(self._waiting):
            if since_ms > overdue_ms:
                break
            replies, decision.replies = decision.replies, []
            for reply in replies:
                tell(reply.to, self._refuse(reply.response, Error.REQUEST_TIMED_OUT))

    @property
    def must_pause(self) -> bool:
        """Whether nothing can be written anyway, because too few replicas are in sync."""
        return self.partition.has_too_few_in_sync

    def tick(self) -> None:
        """What is due stays due while it could not be written down: a session that ends now must not be forgotten."""
        self._answer_overdue()
        if self.must_pause:
            return
        for decision in self.machine.tick(self._now_ms()):
            self.run(decision)

    def sweep(self) -> Iterator[Decision] | None:
        """What is due and may take long: decisions to be run when there is time."""
        return None if self.must_pause else self.machine.sweep(self._now_ms(), self.batch_bytes_max)

    def abandon(self) -> None:
        """Leadership is lost: everybody asks the new coordinator."""
        abandoned = [decision for _, _, decision in self._waiting] + self._gathered
        self._waiting, self._gathered, self._gathered_bytes = deque(), [], 0
        for decision in abandoned:
            for reply in decision.replies:
                tell(reply.to, self._refuse(reply.response, Error.NOT_COORDINATOR))
        for reply in self.machine.resign():
            tell(reply.to, reply.response)

    def __repr__(self) -> str:
        return (
            f"<Shard {self.partition.name} since epoch {self._leading_since}, {len(self._waiting)} waiting, "
            f"{self.machine!r}>"
        )
