"""One partition on this broker: its log, its role, the state of its replication, and the requests that wait for it.

Rules:
1. Only the leader appends for producers; followers append the leader's records with the leader's offsets.
2. Consumers never see records at or above the high watermark, on any replica.
3. On the leader the high watermark never decreases. leader_state.py decides about it and about the ISR;
   follower_rules.py finds where a follower's log diverges. This file applies these rules to the log.
4. A partition with a single replica skips all of this: appended records are replicated at once.
5. A replica with damage in its log does not become leader while other replicas are in sync. It reports the damage (the
   controller handles it like a failed log directory), and is rebuilt from the leader as soon as it is out of the ISR.
   A replica on a full disk reports that in the same way: other replicas lead, the high watermark does not wait for this
   one, and it follows again once there is space. A sole replica keeps its records.

Compiled with mypyc where possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.base.tasks import notify_safely
from ottla.metrics.traffic import TopicTraffic
from ottla.replication.follower_rules import FetchPosition, follower_high_watermark, truncation_offset
from ottla.replication.leader_state import (
    NO_LEADER,
    AlterPartitionProposal,
    FollowerState,
    LeaderState,
    LogOffsets,
    PartitionState,
)
from ottla.replication.waiting_requests import WaitingFetch, WaitingProduce
from ottla.storage.log import Log
from ottla.storage.log_validator import LogAppendInfo
from ottla.storage.range_checks import invalidate_checks

UNKNOWN: Final = -1
NO_EPOCH: Final = -1
UNDAMAGED: Final = -1
TO_HIGH_WATERMARK: Final = -1
LAG_MS_MAX: Final = 30_000
NO_ROLE: Final = PartitionState(NO_LEADER, NO_EPOCH, (), (), -1)

PartitionListener = Callable[[Any], None]
"""Called with the partition."""


class ReplicaRead(NamedTuple):
    """A leader's response to a follower's fetch."""

    file_range: FileRange | None
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None  # an epoch of the leader and its end offset: up to there the logs may agree


class Partition:
    """A replica on this broker and its leadership state."""

    def __init__(
        self, name: TopicPartition, topic_id: UUID, log: Log, node_id: int, traffic: TopicTraffic | None = None
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.traffic = traffic if traffic is not None else TopicTraffic()  # shared by all partitions of the topic
        self.high_watermark = log.log_start_offset
        self.is_deleted = False
        self.notifies_followers_of_watermark = (
            False  # consumers read from followers, which need new high watermarks at once
        )

        self.state: PartitionState = NO_ROLE  # the controller's decision
        self.leader_id = NO_LEADER  # of that decision; none if this replica cannot lead or is retired
        self.leader_epoch = NO_EPOCH
        self.replica_count = 1
        # The first epoch of uninterrupted leadership: since then no other broker has written to the log.
        self.leader_since_epoch = NO_EPOCH
        self.lag_ms_max = LAG_MS_MAX
        self.on_state_change: PartitionListener | None = None  # called for each new role, and at the end
        self.on_isr_proposal_due: PartitionListener | None = None  # called when there is a change to propose
        self._leader_state: LeaderState | None = None  # only if there are other replicas

        self.flush: PartitionListener | None = None  # starts a flush; on_flushed() ends it
        self.flush_rolled: PartitionListener | None = None  # the same for rolled segments; not urgent
        self.flushed_ms = 0  # the last flush because of flush.ms
        # A flush for flush.messages is in progress: newer records are not visible before it ends.
        self.is_flushing = False
        self.damage_offset = UNDAMAGED  # from this offset on the log may differ from the other replicas
        self.on_damage: PartitionListener | None = None  # called when damage is found, and when it is repaired
        self.is_disk_full = False  # an append failed for lack of disk space: other replicas continue without this one
        self.on_disk_full_change: PartitionListener | None = None  # called when `is_disk_full` changes

        self._invisible_bytes = 0  # approximate size of appended records that are not visible yet
        self._fetch_waiters: dict[WaitingFetch, None] | None = (
            None  # None while there are none: most partitions are idle
        )
        self._follower_fetch_waiters: dict[WaitingFetch, None] | None = None
        self._produce_waiters: list[tuple[int, WaitingProduce]] | None = None
        self._delete_records_waiters: list[tuple[int, WaitingProduce]] | None = None
        self._flush_waiters: list[WaitingProduce] | None = None

    # ---- leadership

    def apply_state(self, role: PartitionState, now_ms: int) -> None:
        """Apply the controller's decision. `now_ms` is monotonic."""
        known = self.state
        if role == known or role.leader_epoch < known.leader_epoch:
            return
        if role.leader_epoch == known.leader_epoch and role.partition_epoch < self.partition_epoch:
            return
        self.state = role
        try:
            self._apply_role(role, now_ms)
        except Exception:
            self.state = known  # the next attempt must not find the role applied already
            raise
        if self.on_state_change is not None:
            notify_safely(self.on_state_change, self)

    def _apply_role(self, role: PartitionState, now_ms: int) -> None:
        self.replica_count = len(role.replicas)
        if self.is_disk_full and (role.leader == NO_LEADER or role.isr == (self.node_id,)):
            self.mark_disk_available()  # there is no other replica: a leader that only serves reads is better than none
        if self.damage_offset != UNDAMAGED:
            role = self._state_for_damaged(role)
        if role.leader != self.leader_id or role.leader_epoch != self.leader_epoch:
            self._change_leader(role, now_ms)
        elif role.leader == self.node_id:
            self._update_leader_state(role, now_ms)

    def _change_leader(self, role: PartitionState, now_ms: int) -> None:
        self._flush_if_due()  # records that a crash left unflushed are not committed before they are on disk
        if self.leader_id != self.node_id or role.leader != self.node_id:
            self.leader_since_epoch = role.leader_epoch if role.leader == self.node_id else NO_EPOCH
        assert role.leader_epoch >= self.leader_epoch, f"{self} goes back to leader epoch {role.leader_epoch}"
        self.leader_id = role.leader
        self.leader_epoch = role.leader_epoch
        self._leader_state = None
        if role.leader == self.node_id:
            self._wake_followers()
            self._make_leader(role, self.log.end_offset, now_ms)  # the log records the epoch with its first batch
            return
        self.wake_all()

    def _make_leader(self, role: PartitionState, epoch_start_offset: int, now_ms: int) -> None:
        if role.replicas != (self.node_id,) and len(role.replicas) + len(role.isr) > 1:
            self._leader_state = LeaderState(self.node_id, role, epoch_start_offset, self.lag_ms_max, now_ms)
            self._request_isr_change()
        self._maybe_increment_high_watermark(0)

    def _update_leader_state(self, role: PartitionState, now_ms: int) -> None:
        leading = self._leader_state
        if leading is None:
            # Its first followers. The records of this epoch so far had a single replica, so all of them are committed.
            self._make_leader(role, self.log.end_offset, now_ms)
            return
        leading.update_partition_state(role, now_ms)
        self._on_isr_changed(leading)

    @property
    def partition_epoch(self) -> int:
        leading = self._leader_state
        return self.state.partition_epoch if leading is None else leading.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR, as confirmed by the controller."""
        leading = self._leader_state
        return self.state.isr if leading is None else leading.committed_isr

    @property
    def effective_min_isr(self) -> int:
        """Return how many replicas must be in sync for acks=all: at most all replicas, as in Kafka 4. The controller
        uses the same number: with fewer in sync the high watermark does not advance, and replicas that left the ISR
        stay eligible (KIP-966). Therefore replicas that are being added are included.
        """
        return min(self.log.settings.min_insync_replicas, self.replica_count)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_isr

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def followers(self) -> list[FollowerState]:
        """Return the states of the other replicas."""
        return list(self._leader_state.followers.values()) if self._leader_state is not None else []

    def require_leader(self, known_epoch: int) -> None:
        """Reject a client with another leader epoch (KIP-320)."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        self.require_epoch(known_epoch)

    def require_epoch(self, known_epoch: int) -> None:
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            raise KafkaError(
                Error.FENCED_LEADER_EPOCH if known_epoch < self.leader_epoch else Error.UNKNOWN_LEADER_EPOCH
            )

    def require_known_high_watermark(self) -> None:
        """Check that this leader knows the high watermark of the previous one (KIP-207). Raises KafkaError."""
        leading = self._leader_state
        if leading is not None and self.high_watermark < leading.epoch_start_offset:
            raise KafkaError(Error.OFFSET_NOT_AVAILABLE)

    def close(self) -> None:
        """Close the partition, because the topic was deleted or its directory failed:

        rejects further appends and reads.
        """
        self.is_deleted = True
        self.leader_id = NO_LEADER
        self._leader_state = None
        self.leader_since_epoch = NO_EPOCH
        self.wake_all()
        if self.on_state_change is not None:
            notify_safely(self.on_state_change, self)

    # ---- reading

    def read(self, offset: int, max_bytes: int, minimum_one: bool, is_read_committed: bool) -> FileRange | None:
        """Return a range of whole batches that are visible to consumers, or None if there is nothing new."""
        assert self.high_watermark <= self.log.end_offset, f"{self.name} has committed more than it has"
        end_offset = self.last_stable_offset if is_read_committed else self.high_watermark
        if offset >= end_offset and self.log.log_start_offset <= offset <= self.log.end_offset:
            if offset > self.high_watermark and self.leader_id != self.node_id:
                raise KafkaError(Error.OFFSET_NOT_AVAILABLE)  # the leader may have it (KIP-392)
            return None
        file_range = self.log.read(offset, max_bytes, end_offset, minimum_one)
        return None if file_range is None else self._refuse_missing_offsets(file_range, offset)

    def _refuse_missing_offsets(self, file_range: FileRange, offset: int) -> FileRange:
        """Reject a read of missing offsets while other replicas may have their records."""
        if not self.log.skips_missing_offsets(offset, file_range) or self.isr == (self.node_id,):
            return file_range
        file_range.release()
        raise KafkaError(Error.CORRUPT_MESSAGE, f"The file of {self.name} that held offset {offset} is gone")

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which every transaction has ended, on all replicas; without open ones, the high
        watermark.
        """
        first_unstable = self.log.producer_state.first_unstable_offset_below(self.high_watermark)
        return self.high_watermark if first_unstable < 0 else min(first_unstable, self.high_watermark)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the epoch at or below this one and its end; the current epoch ends at the end of the log."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        latest_epoch = self.log.latest_epoch
        if latest_epoch < epoch < self.leader_epoch:
            return (epoch if latest_epoch == NO_EPOCH else latest_epoch), self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    # ---- producing

    def append(self, records: memoryview, is_acks_all: bool, now_ms: int) -> LogAppendInfo:
        """Append one producer's batch; with acks=all the caller waits for the high watermark."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        if is_acks_all:
            self._require_min_isr()
        try:
            appended = self.log.append(records, self.leader_epoch, now_ms)
        except KafkaError:
            self._check_disk_full()
            raise
        self._on_appended(len(records))
        return appended

    def append_as_coordinator(self, batch: bytearray, now_ms: int) -> int:
        """Append a batch of the broker itself (a coordinator's records, a marker); returns its last offset."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        self._require_min_isr()
        try:
            last_offset = self.log.append_as_coordinator(memoryview(batch), self.leader_epoch, now_ms)
        except KafkaError:
            self._check_disk_full()
            raise
        self._on_appended(len(batch))
        self.log.producer_state.remove_unreplicated(self.high_watermark)
        return last_offset

    def _require_min_isr(self) -> None:
        if len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {self.effective_min_isr} for partition {self.name}",
            )

    def _on_appended(self, new_bytes: int) -> None:
        self._flush_if_due()
        self._maybe_increment_high_watermark(new_bytes)

    # ---- deleting

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Delete everything below an offset (-1 = the high watermark); returns the new log start offset."""
        policy = self.log.settings.cleanup_policy
        if "compact" in policy and "delete" not in policy:
            raise KafkaError(Error.POLICY_VIOLATION, f"Records of partition {self.name} can not be deleted")
        wanted = self.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= wanted <= self.high_watermark:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"The offset {offset} for partition {self.name} is not valid")
        self.log.raise_log_start_offset(wanted)
        self.log.delete_log_start_offset_breached_segments(now_ms, self.high_watermark)
        self._wake_followers()  # so that followers advance their start offsets at once
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """Return the lowest log start offset of all in-sync replicas."""
        leading = self._leader_state
        start_offset = self.log.log_start_offset
        return start_offset if leading is None else leading.low_watermark(start_offset)

    def _complete_delete_records(self, deletions: list[tuple[int, WaitingProduce]]) -> None:
        low_watermark = self.low_watermark
        self._delete_records_waiters = [entry for entry in deletions if entry[0] > low_watermark] or None
        for offset, waiting in deletions:
            if offset <= low_watermark:
                waiting.complete_partition()

    # ---- serving followers

    def read_for_replica(
        self,
        replica_id: int,
        broker_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        leader_epoch: int,
        max_bytes: int,
        minimum_one: bool,
        now_ms: int,
        log_start_offset: int = UNKNOWN,
        is_first: bool = True,
    ) -> ReplicaRead:
        """Return records for a follower, up to the end of the log; the fetch offset reports the follower's progress.
        `is_first` is false if the same fetch reads again after a wait, which reports no progress.
        """
        self.require_leader(leader_epoch)
        leading = self._leader_state
        if leading is None:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER if leader_epoch < 0 else Error.UNKNOWN_LEADER_EPOCH)
        follower = leading.follower(replica_id, leader_epoch >= 0)
        leading.check_broker_epoch(follower, broker_epoch)
        log = self.log
        if offset < log.log_start_offset:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"{self.name} starts at {log.log_start_offset}, not {offset}")
        diverging = self._divergence(offset, last_fetched_epoch)
        if diverging is not None:
            return ReplicaRead(None, self.high_watermark, log.log_start_offset, diverging)
        file_range = log.read(offset, max_bytes, log.end_offset, minimum_one)
        if file_range is not None:
            file_range = self._refuse_missing_offsets(file_range, offset)
        if is_first:
            if file_range is not None and leading.count_repeated_fetch(follower, offset):
                invalidate_checks(file_range)
            leading.update_fetch_state(follower, broker_epoch, offset, log_start_offset, log.end_offset, now_ms)
            self._on_follower_fetch(leading, follower)
        return ReplicaRead(file_range, self.high_watermark, log.log_start_offset, None)

    def _divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        if last_fetched_epoch < 0:
            end_offset = self.log.end_offset
            return (NO_EPOCH, end_offset) if offset > end_offset else None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        # No leader had this epoch: it comes from damage.
        if epoch == NO_EPOCH and last_fetched_epoch > self.leader_epoch:
            epoch, end_offset = self.log.latest_epoch, self.log.end_offset
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    def _on_follower_fetch(self, leading: LeaderState, follower: FollowerState) -> None:
        self._move_high_watermark(leading)
        if self._delete_records_waiters is not None:
            self._complete_delete_records(self._delete_records_waiters)
        if leading.pending_proposal is None and leading.can_join_isr(follower, self.high_watermark):
            self._request_isr_change()

    def reset_follower(self, broker_id: int) -> None:
        """Reset a failed or restarted follower: the high watermark does not wait for it."""
        leading = self._leader_state
        if leading is not None:
            leading.reset_follower(broker_id)
            self._move_high_watermark(leading)

    # ---- the in-sync replicas

    def _request_isr_change(self) -> None:
        if self.on_isr_proposal_due is not None:
            notify_safely(self.on_isr_proposal_due, self)

    def wants_isr_change(self, now_ms: int) -> bool:
        """Return whether a replica lags, or could join; cheap."""
        leading = self._leader_state
        return leading is not None and leading.has_isr_change(
            LogOffsets(self.log.end_offset, self.high_watermark), now_ms
        )

    def is_pending_proposal(self, proposal: AlterPartitionProposal) -> bool:
        """Return whether the response to this proposal is still needed."""
        return self._leader_state is not None and self._leader_state.pending_proposal is proposal

    def propose_isr_change(self, now_ms: int, own_broker_epoch: int = UNKNOWN) -> AlterPartitionProposal | None:
        """Return the next proposal for the controller. Until on_alter_partition_response() there is no other."""
        leading = self._leader_state
        if leading is None:
            return None
        topic, index = self.name
        offsets = LogOffsets(self.log.end_offset, self.high_watermark)
        return leading.propose_isr(self.topic_id, topic, index, own_broker_epoch, offsets, now_ms)

    def on_alter_partition_response(
        self,
        proposal: AlterPartitionProposal,
        error: Error,
        leader_epoch: int = UNKNOWN,
        isr: tuple[int, ...] = (),
        partition_epoch: int = UNKNOWN,
        is_recovering: bool = False,
    ) -> bool:
        """Apply the outcome of a proposal; true if the ISR is now the controller's."""
        leading = self._leader_state
        if leading is None or not leading.apply_response(proposal, error, leader_epoch, isr, partition_epoch):
            return False
        leading.is_recovering = is_recovering and error is Error.NONE
        self._on_isr_changed(leading)
        return True

    def _on_isr_changed(self, leading: LeaderState) -> None:
        self._move_high_watermark(leading)
        if self._produce_waiters is not None and self.is_under_min_isr:
            produces, self._produce_waiters = self._produce_waiters, None
            self._produce_waiters = [entry for entry in produces if not entry[1].fails_below_min_isr] or None
            for _, waiting in produces:
                if waiting.fails_below_min_isr:
                    waiting.complete_partition()
        if any(leading.can_join_isr(follower, self.high_watermark) for follower in leading.followers.values()):
            self._request_isr_change()

    # ---- following

    def fetch_position(self) -> FetchPosition:
        """Return the position of the next fetch."""
        return FetchPosition(self.log.end_offset, self.log.latest_epoch, self.leader_epoch)

    def is_response_valid(self, position: FetchPosition) -> bool:
        """Return whether the response to this fetch is still valid: not after a new role, and only once."""
        if self.leader_id == self.node_id or self.is_deleted:
            return False
        return position.leader_epoch == self.leader_epoch and position.offset == self.log.end_offset

    def append_fetched(
        self, position: FetchPosition, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Append fetched records; false if the response is outdated. Raises KafkaError if the append fails."""
        if not self.is_response_valid(position):
            return False
        log = self.log
        if len(records):
            try:
                self._append_records(log, records)
            except KafkaError:
                self._check_disk_full()
                raise
            self._invisible_bytes += len(records)
            self._flush_if_due()
        self._set_high_watermark(follower_high_watermark(self.high_watermark, high_watermark, log.end_offset))
        log.producer_state.remove_unreplicated(self.high_watermark)
        if log.log_start_offset < log_start_offset:
            log.raise_log_start_offset(min(log_start_offset, self.high_watermark))
        return True

    def _append_records(self, log: Log, records: memoryview) -> None:
        start_offset = log.log_start_offset
        base_offset = first_offset(records)
        if base_offset < log.end_offset == start_offset:
            # The leader's log starts within a batch (DeleteRecords): the batch arrives as a whole.
            log.truncate_fully_and_start_at(base_offset)
            log.append_as_follower(records)
            log.raise_log_start_offset(min(start_offset, log.end_offset))
            return
        if base_offset < log.end_offset:
            self._truncate_overlapping_batch(log, base_offset)
        log.append_as_follower(records)

    def _truncate_overlapping_batch(self, log: Log, base_offset: int) -> None:
        """Truncate a local log that ends within a batch of the leader: its last records are not the leader's. While
        this replica is in the ISR, it must report the damage first; the append is rejected until it has left the ISR.
        """
        self.mark_damaged(base_offset)
        if self.damage_offset != UNDAMAGED:
            raise KafkaError(Error.CORRUPT_MESSAGE, f"{self.name} ends within the leader's batch at {base_offset}")
        log.truncate_to(base_offset)
        self._limit_high_watermark()

    def truncate_on_divergence(self, position: FetchPosition, epoch: int, end_offset: int) -> bool:
        """Truncate where the leader reports a divergence; false if nothing was removed."""
        if not self.is_response_valid(position):
            return False
        log = self.log
        own_epoch, own_epoch_end = log.end_offset_for_epoch(epoch)
        offset = truncation_offset(epoch, end_offset, own_epoch, own_epoch_end, log.end_offset)
        if offset >= log.end_offset:
            return False
        log.truncate_to(offset)
        self._limit_high_watermark()
        return True

    def restart_at(self, position: FetchPosition, offset: int) -> bool:
        """Start again at this offset, because the leader's log starts after the end of the local one."""
        if not self.is_response_valid(position) or offset <= self.log.end_offset:
            return False
        self.log.truncate_fully_and_start_at(offset)
        self.load_high_watermark(offset)
        return True

    # ---- the high watermark: the only place that changes it

    def load_high_watermark(self, offset: int) -> None:
        """Start from a stored high watermark, or from that of the leader whose log this one restarts at."""
        self.high_watermark = min(max(offset, self.log.log_start_offset), self.log.end_offset)

    def _limit_high_watermark(self) -> None:
        """Lower the high watermark to the end of a truncated log."""
        self.high_watermark = min(self.high_watermark, self.log.end_offset)

    def _maybe_increment_high_watermark(self, new_bytes: int) -> None:
        """Advance the high watermark after the local log has grown, or more of it was flushed."""
        if self._leader_state is not None:
            self._advance_with_followers(self._leader_state, new_bytes)
            return
        end_offset = self.log.recovery_point if self.is_flushing else self.log.end_offset
        assert end_offset <= self.log.end_offset, f"{self} has flushed up to {end_offset}"
        if end_offset > self.high_watermark and len(self.isr) <= 1:
            self.high_watermark = end_offset
            if self._fetch_waiters is not None:
                for waiting in list(self._fetch_waiters):
                    waiting.add_bytes(new_bytes)
            if self._produce_waiters is not None:
                self._complete_produces(self._produce_waiters)

    def _advance_with_followers(self, leading: LeaderState, new_bytes: int) -> None:
        if new_bytes:
            self._invisible_bytes += new_bytes
            if self._follower_fetch_waiters is not None:
                for waiting in list(self._follower_fetch_waiters):
                    waiting.add_bytes(new_bytes)
            if not leading.is_sole_replica:
                return  # no follower has it yet
        self._move_high_watermark(leading)

    def _move_high_watermark(self, leading: LeaderState) -> None:
        assert self.is_leader, f"{self} has followers"
        if len(self.isr) < self.effective_min_isr:
            return  # KIP-966: records on fewer than min.insync.replicas are not committed
        own_offset = self.log.recovery_point if self.is_flushing else self.log.end_offset
        self._set_high_watermark(leading.replicated_offset(own_offset))

    def _set_high_watermark(self, offset: int) -> None:
        before = self.high_watermark
        if offset <= before:
            return
        end_offset = self.log.end_offset
        assert offset <= end_offset, f"{self.name} cannot have committed {offset}, it ends at {end_offset}"
        self.high_watermark = offset
        visible_bytes = self._invisible_bytes
        if offset < end_offset:
            visible_bytes = visible_bytes * (offset - before) // (end_offset - before)
        self._invisible_bytes -= visible_bytes
        if self._fetch_waiters is not None:
            for waiting in list(self._fetch_waiters):
                waiting.add_bytes(max(visible_bytes, 1))
        if self._produce_waiters is not None:
            self._complete_produces(self._produce_waiters)
        if self.notifies_followers_of_watermark:
            self._wake_followers()

    # ---- damage and the disk

    def mark_damaged(self, offset: int) -> None:
        """Mark the stored batch with this offset as corrupt.

        Another replica with the batch becomes leader and restores it here.
        """
        if self.damage_offset == UNDAMAGED and self.node_id in self.isr and len(self.isr) > 1:
            self.damage_offset = self.log.batch_start(offset)
            if self.on_damage is not None:
                notify_safely(self.on_damage, self)

    def _state_for_damaged(self, role: PartitionState) -> PartitionState:
        """Return the role that a damaged replica accepts:

        it does not become leader while other replicas have the data.
        """
        trusted = frozenset((*role.isr, *role.eligible_leader_replicas))
        if self.node_id in trusted and len(trusted) > 1:
            begins = role.leader == self.node_id != self.leader_id
            return role._replace(leader=NO_LEADER) if begins else role
        if self.node_id not in role.isr and self.damage_offset < self.log.end_offset:
            if role.leader == NO_LEADER:
                return role  # the local log may be the only remaining copy
            try:
                self.log.truncate_to(self.damage_offset)
            except KafkaError:
                return role  # the disk has also failed; the log has reported it
            self._limit_high_watermark()
        # The replica is out of the ISR, or no other one has the data and this one leads with the remaining records.
        self.damage_offset = UNDAMAGED
        self.log.accept_data_loss()
        if self.on_damage is not None:
            notify_safely(self.on_damage, self)
        return role

    def _check_disk_full(self) -> None:
        """Check for a full disk after a failed append: other replicas may have space, and continue without this one."""
        if self.log.is_disk_full and not self.is_disk_full and self.node_id in self.isr and len(self.isr) > 1:
            self.is_disk_full = True
            if self.on_disk_full_change is not None:
                notify_safely(self.on_disk_full_change, self)

    def mark_disk_available(self) -> None:
        """Resume after a full disk: the disk has space again."""
        if self.is_disk_full:
            self.is_disk_full = False
            if self.on_disk_full_change is not None:
                notify_safely(self.on_disk_full_change, self)

    def _flush_if_due(self) -> None:
        if self.log.unflushed_messages >= self.log.settings.flush_messages and not self.is_flushing:
            self._start_flush()
        if self.log.has_rolled and self.flush_rolled is not None:
            self.flush_rolled(self)

    def _start_flush(self) -> None:
        if self.flush is not None:
            self.is_flushing = True
            self.flush(self)

    def on_flushed(self) -> None:
        """Process the end of a flush. If flush.messages is exceeded again, the next one starts at once."""
        self.is_flushing = False
        if self.log.unflushed_messages >= self.log.settings.flush_messages:
            self._start_flush()
        if self.leader_id == self.node_id:
            self._maybe_increment_high_watermark(0)
        if not self.is_flushing:
            self._complete_flush_waiters()

    # ---- waiting requests

    def wait_for_records(self, waiting: WaitingFetch) -> None:
        if self._fetch_waiters is None:
            self._fetch_waiters = {}
        self._fetch_waiters[waiting] = None

    def wait_for_appends(self, waiting: WaitingFetch) -> None:
        """Wait for records like wait_for_records(), for a follower, which gets unreplicated records."""
        if self._follower_fetch_waiters is None:
            self._follower_fetch_waiters = {}
        self._follower_fetch_waiters[waiting] = None

    def wait_for_replication(self, last_offset: int, waiting: WaitingProduce) -> None:
        if self._produce_waiters is None:
            self._produce_waiters = []
        self._produce_waiters.append((last_offset, waiting))

    def wait_for_deletion(self, offset: int, waiting: WaitingProduce) -> None:
        """Wait until the low watermark has reached this offset."""
        if self._delete_records_waiters is None:
            self._delete_records_waiters = []
        self._delete_records_waiters.append((offset, waiting))

    def wait_for_flush(self, waiting: WaitingProduce) -> None:
        """Wait until everything appended so far is on disk."""
        if self._flush_waiters is None:
            self._flush_waiters = []
        self._flush_waiters.append(waiting)

    def remove_waiter(self, waiting: WaitingFetch) -> None:
        fetches = self._fetch_waiters
        if fetches is not None:
            fetches.pop(waiting, None)
            if not fetches:
                self._fetch_waiters = None
        if self._follower_fetch_waiters is not None:
            self._follower_fetch_waiters.pop(waiting, None)

    def is_replicated(self, last_offset: int) -> bool:
        return self.high_watermark > last_offset

    def _complete_produces(self, produces: list[tuple[int, WaitingProduce]]) -> None:
        left = [entry for entry in produces if entry[0] >= self.high_watermark]
        done = [entry for entry in produces if entry[0] < self.high_watermark]
        self._produce_waiters = left or None
        for _, waiting in done:
            waiting.complete_partition()

    def _complete_flush_waiters(self) -> None:
        flushes, self._flush_waiters = self._flush_waiters, None
        for waiting in flushes or ():
            waiting.complete_partition()

    def wake_all(self) -> None:
        """Wake every waiting request, because the partition has another leader or was deleted."""
        fetches, self._fetch_waiters = self._fetch_waiters, None
        for waiting_fetch in fetches or ():
            waiting_fetch.complete()
        self._wake_followers()
        produces, self._produce_waiters = self._produce_waiters, None
        deletions, self._delete_records_waiters = self._delete_records_waiters, None
        for _, waiting_produce in produces or ():
            waiting_produce.complete_partition()
        for _, waiting_deletion in deletions or ():
            waiting_deletion.complete_partition()
        self._complete_flush_waiters()

    def _wake_followers(self) -> None:
        fetches, self._follower_fetch_waiters = self._follower_fetch_waiters, None
        for waiting_fetch in fetches or ():
            waiting_fetch.complete()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return (
            f"<Partition {self.name} {role} epoch {self.leader_epoch}, "
            f"{self.log.log_start_offset}..{self.high_watermark}..{self.log.end_offset}>"
        )


def first_offset(records: memoryview) -> int:
    """Return the offset of the first batch in fetched records."""
    return int.from_bytes(records[:8], "big", signed=True)
