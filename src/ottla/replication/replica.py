"""A replica's log and who waits for it: fetches for records, produces for the high watermark, others for the disk.

Who leads and how far the others are is Partition's business, which builds on this. Compiled with mypyc where possible.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.replication.role import NO_LEADER
from ottla.replication.waiting import WaitingFetch, WaitingProduce
from ottla.storage.log import Log

NO_EPOCH: Final = -1


class ReplicaRead(NamedTuple):
    """What a leader has for a follower."""

    file_range: FileRange | None
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None  # an epoch of ours and where it ends: up to there the logs may agree


class Replica:
    """One copy of a partition, as its readers and those who wait see it."""

    def __init__(self, name: TopicPartition, topic_id: UUID, log: Log, node_id: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.high_watermark = log.log_start_offset
        self.tells_watermark = False  # consumers read from followers: these must know at once how far they may
        self._hidden_bytes = 0  # appended, but not visible yet; about
        self._fetches: dict[WaitingFetch, None] | None = None  # None while nobody waits: most partitions are idle
        self._replica_fetches: dict[WaitingFetch, None] | None = None
        self._produces: list[tuple[int, WaitingProduce]] | None = None
        self._deletions: list[tuple[int, WaitingProduce]] | None = None
        self._flushes: list[WaitingProduce] | None = None

    # ---- who may ask

    def require_leader(self, known_epoch: int) -> None:
        """Refuse a client whose idea of the leader is not ours (KIP-320)."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        self.require_epoch(known_epoch)

    def require_epoch(self, known_epoch: int) -> None:
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            raise KafkaError(
                Error.FENCED_LEADER_EPOCH if known_epoch < self.leader_epoch else Error.UNKNOWN_LEADER_EPOCH
            )

    # ---- reading

    def read(self, offset: int, max_bytes: int, minimum_one: bool, is_read_committed: bool) -> FileRange | None:
        """A range of whole batches that consumers may see, or None when there is nothing new."""
        assert self.high_watermark <= self.log.end_offset, f"{self.name} has committed more than it has"
        end_offset = self.last_stable_offset if is_read_committed else self.high_watermark
        if offset >= end_offset and self.log.log_start_offset <= offset <= self.log.end_offset:
            if offset > self.high_watermark and self.leader_id != self.node_id:
                raise KafkaError(Error.OFFSET_NOT_AVAILABLE)  # the leader may have it (KIP-392)
            return None
        return self.log.read(offset, max_bytes, end_offset, minimum_one)

    @property
    def last_stable_offset(self) -> int:
        """Up to here every transaction has ended, and all replicas know how; without any, the high watermark."""
        first_unstable = self.log.first_unstable_below(self.high_watermark)
        return self.high_watermark if first_unstable < 0 else min(first_unstable, self.high_watermark)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The epoch at or below this one and where it ends; ours has not ended, and starts where our log ended."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        latest_epoch = self.log.latest_epoch
        if latest_epoch < epoch < self.leader_epoch:
            return (epoch if latest_epoch == NO_EPOCH else latest_epoch), self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    # ---- waiting

    def wait_for_records(self, waiting: WaitingFetch) -> None:
        if self._fetches is None:
            self._fetches = {}
        self._fetches[waiting] = None

    def wait_for_appends(self, waiting: WaitingFetch) -> None:
        """The same for a follower, who gets records before they are replicated."""
        if self._replica_fetches is None:
            self._replica_fetches = {}
        self._replica_fetches[waiting] = None

    def forget(self, waiting: WaitingFetch) -> None:
        fetches = self._fetches
        if fetches is not None:
            fetches.pop(waiting, None)
            if not fetches:
                self._fetches = None
        if self._replica_fetches is not None:
            self._replica_fetches.pop(waiting, None)

    def is_replicated(self, last_offset: int) -> bool:
        return self.high_watermark > last_offset

    def wait_for_replication(self, last_offset: int, waiting: WaitingProduce) -> None:
        if self._produces is None:
            self._produces = []
        self._produces.append((last_offset, waiting))

    def wait_for_deletion(self, offset: int, waiting: WaitingProduce) -> None:
        """Until the low watermark has come so far."""
        if self._deletions is None:
            self._deletions = []
        self._deletions.append((offset, waiting))

    def wait_for_flush(self, waiting: WaitingProduce) -> None:
        """Until what was appended so far is on disk."""
        if self._flushes is None:
            self._flushes = []
        self._flushes.append(waiting)

    # ---- what they waited for

    def _set_high_watermark(self, offset: int) -> None:
        before = self.high_watermark
        if offset <= before:
            return
        end_offset = self.log.end_offset
        assert offset <= end_offset, f"{self.name} cannot have committed {offset}, it ends at {end_offset}"
        self.high_watermark = offset
        visible_bytes = self._hidden_bytes
        if offset < end_offset:
            visible_bytes = visible_bytes * (offset - before) // (end_offset - before)
        self._hidden_bytes -= visible_bytes
        if self._fetches is not None:
            for waiting in list(self._fetches):
                waiting.note(max(visible_bytes, 1))
        if self._produces is not None:
            self._answer_produces(self._produces)
        if self.tells_watermark:
            self._wake_replicas()

    def _answer_produces(self, produces: list[tuple[int, WaitingProduce]]) -> None:
        left = [entry for entry in produces if entry[0] >= self.high_watermark]
        done = [entry for entry in produces if entry[0] < self.high_watermark]
        self._produces = left or None
        for _, waiting in done:
            waiting.note()

    def _tell_flushed(self) -> None:
        flushes, self._flushes = self._flushes, None
        for waiting in flushes or ():
            waiting.note()

    def wake_all(self) -> None:
        """The partition changed hands or is gone: whoever waits gets to know."""
        fetches, self._fetches = self._fetches, None
        for waiting_fetch in fetches or ():
            waiting_fetch.wake()
        self._wake_replicas()
        produces, self._produces = self._produces, None
        deletions, self._deletions = self._deletions, None
        for _, waiting_produce in produces or ():
            waiting_produce.note()
        for _, waiting_deletion in deletions or ():
            waiting_deletion.note()
        self._tell_flushed()

    def _wake_replicas(self) -> None:
        fetches, self._replica_fetches = self._replica_fetches, None
        for waiting_fetch in fetches or ():
            waiting_fetch.wake()
