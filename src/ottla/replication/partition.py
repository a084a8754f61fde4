"""One partition as this broker sees it: its log, who leads it, how far it is replicated, who waits for it.

Rules:
1. Only the leader appends for producers and answers fetches; everybody else gets NOT_LEADER_OR_FOLLOWER.
2. Consumers never see records at or beyond the high watermark.
3. The high watermark is the smallest log end offset of the in-sync replicas; alone in the ISR, that is our own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.metrics.traffic import TopicTraffic
from ottla.replication.waiting import WaitingFetch, WaitingProduce
from ottla.storage.log import Appended, Log

NO_EPOCH: Final = -1
TO_HIGH_WATERMARK: Final = -1


class Partition:
    """A replica on this broker and what is known about its leader."""

    def __init__(
        self, name: TopicPartition, topic_id: UUID, log: Log, node_id: int, traffic: TopicTraffic | None = None
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.traffic = traffic if traffic is not None else TopicTraffic()  # one for all partitions of the topic
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.in_sync: tuple[int, ...] = ()
        self.replica_count = 1
        self.high_watermark = log.log_start_offset
        self.is_deleted = False
        self.flush: Callable[[Partition], None] | None = None  # starts a flush; on_flushed() ends it
        self.flush_rolled: Callable[[Partition], None] | None = None  # the same for segments that are full; no hurry
        self.flushed_ms = 0  # when flush.ms last had its way
        self.is_flushing = False  # an append asked for a flush (flush.messages): nothing newer is visible before it
        self._fetches: dict[WaitingFetch, None] | None = None  # None while nobody waits: most partitions are idle
        self._produces: list[tuple[int, WaitingProduce]] | None = None

    # ---- leadership

    def lead(self, leader_id: int, leader_epoch: int, in_sync: tuple[int, ...], replica_count: int = 1) -> None:
        """Take over what the controller decided."""
        if leader_epoch < self.leader_epoch:
            return
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.in_sync = in_sync
        self.replica_count = replica_count
        if leader_id == self.node_id:
            self._advance(0)  # the log notes the epoch with its first record: most epochs of a partition have none
        else:
            self.wake_all()

    @property
    def min_in_sync(self) -> int:
        """How many replicas must be in sync for acks=all: never more than there are, as with Kafka 4."""
        return min(self.log.settings.min_insync_replicas, self.replica_count)

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def require_leader(self, known_epoch: int) -> None:
        """Refuse a client whose idea of the leader is not ours (KIP-320)."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            raise KafkaError(
                Error.FENCED_LEADER_EPOCH if known_epoch < self.leader_epoch else Error.UNKNOWN_LEADER_EPOCH
            )

    # ---- producing

    def append(self, records: memoryview, is_acks_all: bool, now_ms: int) -> Appended:
        """Append one producer's batch; the caller waits for the high watermark itself if it must."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        if is_acks_all:
            self._require_replicas()
        appended = self.log.append(records, self.leader_epoch, now_ms)
        self._on_appended(len(records))
        return appended

    def append_own(self, batch: bytearray, now_ms: int) -> int:
        """Append what the broker itself has to say (a coordinator's records, a marker); the last offset of it."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        self._require_replicas()
        last_offset = self.log.append_own(memoryview(batch), self.leader_epoch, now_ms)
        self._on_appended(len(batch))
        return last_offset

    def _require_replicas(self) -> None:
        if len(self.in_sync) < self.min_in_sync:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.in_sync)} is insufficient to satisfy the min.isr requirement "
                f"of {self.min_in_sync} for partition {self.name}",
            )

    def _on_appended(self, new_bytes: int) -> None:
        if self.log.unflushed_messages >= self.log.settings.flush_messages and not self.is_flushing:
            self._start_flush()
        if self.log.has_rolled and self.flush_rolled is not None:
            self.flush_rolled(self)
        self._advance(new_bytes)

    def _start_flush(self) -> None:
        if self.flush is not None:
            self.is_flushing = True
            self.flush(self)

    def on_flushed(self) -> None:
        """A flush has ended. If more came meanwhile than may stay unflushed, the next one starts at once."""
        self.is_flushing = False
        if self.log.unflushed_messages >= self.log.settings.flush_messages:
            self._start_flush()
        self._advance(0)

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Forget everything below an offset (-1 = the high watermark); the offset where the log starts then."""
        policy = self.log.settings.cleanup_policy
        if "compact" in policy and "delete" not in policy:
            raise KafkaError(Error.POLICY_VIOLATION, f"Records of partition {self.name} can not be deleted")
        wanted = self.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= wanted <= self.high_watermark:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"The offset {offset} for partition {self.name} is not valid")
        self.log.raise_log_start_offset(wanted)
        self.log.delete_hidden_segments(now_ms, self.high_watermark)
        return self.log.log_start_offset

    def is_replicated(self, last_offset: int) -> bool:
        return self.high_watermark > last_offset

    def wait_for_replication(self, last_offset: int, waiting: WaitingProduce) -> None:
        if self._produces is None:
            self._produces = []
        self._produces.append((last_offset, waiting))

    # ---- reading

    def read(self, offset: int, max_bytes: int, minimum_one: bool, is_read_committed: bool) -> FileRange | None:
        """A range of whole batches that consumers may see, or None when there is nothing new."""
        end_offset = self.last_stable_offset if is_read_committed else self.high_watermark
        if offset >= end_offset and self.log.log_start_offset <= offset <= self.log.end_offset:
            return None
        return self.log.read(offset, max_bytes, end_offset, minimum_one)

    @property
    def last_stable_offset(self) -> int:
        """Up to here every transaction has ended; the same as the high watermark while there are none."""
        first_unstable = self.log.first_unstable_offset
        return self.high_watermark if first_unstable < 0 else min(first_unstable, self.high_watermark)

    def wait_for_records(self, waiting: WaitingFetch) -> None:
        if self._fetches is None:
            self._fetches = {}
        self._fetches[waiting] = None

    def forget(self, waiting: WaitingFetch) -> None:
        fetches = self._fetches
        if fetches is not None:
            fetches.pop(waiting, None)
            if not fetches:
                self._fetches = None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The epoch at or below this one and where it ends; ours has not ended."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    # ---- the high watermark

    def _advance(self, new_bytes: int) -> None:
        """Alone in the ISR the high watermark is the end of our own log; followers' progress comes with replication."""
        if len(self.in_sync) > 1:
            return
        end_offset = self.log.recovery_point if self.is_flushing else self.log.end_offset
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            if self._fetches is not None:
                for waiting in list(self._fetches):
                    waiting.note(new_bytes)
            if self._produces is not None:
                self._answer_produces(self._produces)

    def _answer_produces(self, produces: list[tuple[int, WaitingProduce]]) -> None:
        left = [entry for entry in produces if entry[0] >= self.high_watermark]
        done = [entry for entry in produces if entry[0] < self.high_watermark]
        self._produces = left or None
        for _, waiting in done:
            waiting.note()

    def wake_all(self) -> None:
        """The partition changed hands or is gone: whoever waits gets to know."""
        fetches, self._fetches = self._fetches, None
        for waiting_fetch in fetches or ():
            waiting_fetch.wake()
        produces, self._produces = self._produces, None
        for _, waiting_produce in produces or ():
            waiting_produce.note()

    def retire(self) -> None:
        """The topic was deleted, or its folder failed: nobody may append or read any more."""
        self.is_deleted = True
        self.leader_id = -1
        self.wake_all()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return (
            f"<Partition {self.name} {role} epoch {self.leader_epoch}, "
            f"{self.log.log_start_offset}..{self.high_watermark}..{self.log.end_offset}>"
        )
