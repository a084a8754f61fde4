"""One partition as this broker sees it: its log, who leads it, how far it is replicated, who waits for it.

Rules:
1. Only the leader appends for producers; followers append what the leader gives them, with the leader's offsets.
2. Consumers never see records at or beyond the high watermark, wherever they read.
3. On the leader the high watermark never goes back. What decides about it and about the in-sync replicas is leading.py;
   where a follower's log parts from its leader's is following.py. Here and in following_replica.py they are brought
   together with the log.
4. A partition with a single replica knows nothing of all this: what it appends is replicated.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.base.tasks import tell
from ottla.metrics.traffic import TopicTraffic
from ottla.replication.following_replica import UNDAMAGED, FollowingReplica, Told
from ottla.replication.leading import Follower, IsrProposal, Leading, Offsets
from ottla.replication.replica import NO_EPOCH, ReplicaRead
from ottla.replication.role import NO_LEADER, Role
from ottla.replication.waiting import WaitingProduce
from ottla.storage.log import Appended, Log

UNKNOWN: Final = -1
TO_HIGH_WATERMARK: Final = -1
LAG_MS_MAX: Final = 30_000
NO_ROLE: Final = Role(NO_LEADER, NO_EPOCH, (), (), -1)


class Partition(FollowingReplica):
    """A replica on this broker and what is known about its leader."""

    def __init__(
        self, name: TopicPartition, topic_id: UUID, log: Log, node_id: int, traffic: TopicTraffic | None = None
    ) -> None:
        super().__init__(name, topic_id, log, node_id)
        self.traffic = traffic if traffic is not None else TopicTraffic()  # one for all partitions of the topic
        self.role: Role = NO_ROLE
        self.replica_count = 1
        self.leading_since = NO_EPOCH  # we lead without a break since this epoch: nobody else has written to the log
        self.lag_ms_max = LAG_MS_MAX
        self.on_role: Told | None = None  # told of each new role, and of the end
        self.on_isr: Told | None = None  # told when there is something to propose
        self._leading: Leading | None = None  # only with other replicas

    # ---- who leads

    def take_role(self, role: Role, now_ms: int) -> None:
        """Take over what the controller decided. `now_ms` is of the clock that never goes back."""
        known = self.role
        if role == known or role.leader_epoch < known.leader_epoch:
            return
        if role.leader_epoch == known.leader_epoch and role.partition_epoch < self.partition_epoch:
            return
        self.role = role
        self.replica_count = len(role.replicas)
        if self.is_full and (role.leader == NO_LEADER or role.isr == (self.node_id,)):
            self.note_room()  # there is nobody else: better a leader that can be read from than none
        if self.damage_offset != UNDAMAGED:
            role = self._role_with_damage(role)
        if role.leader != self.leader_id or role.leader_epoch != self.leader_epoch:
            self._change_hands(role, now_ms)
        elif role.leader == self.node_id:
            self._take_newer_state(role, now_ms)
        else:
            self.in_sync = role.isr
        if self.on_role is not None:
            tell(self.on_role, self)

    def _change_hands(self, role: Role, now_ms: int) -> None:
        self._flush_if_due()  # a crash may have left records that are not on the disk: they count only when they are
        if self.leader_id != self.node_id or role.leader != self.node_id:
            self.leading_since = role.leader_epoch if role.leader == self.node_id else NO_EPOCH
        assert role.leader_epoch >= self.leader_epoch, f"{self} goes back to leader epoch {role.leader_epoch}"
        self.leader_id = role.leader
        self.leader_epoch = role.leader_epoch
        self.in_sync = role.isr
        self._leading = None
        if role.leader == self.node_id:
            self._wake_replicas()
            self._lead(role, self.log.end_offset, now_ms)  # the log notes the epoch with its first record
            return
        self.wake_all()

    def _lead(self, role: Role, epoch_start_offset: int, now_ms: int) -> None:
        if role.replicas != (self.node_id,) and len(role.replicas) + len(role.isr) > 1:
            self._leading = Leading(self.node_id, role, epoch_start_offset, self.lag_ms_max, now_ms)
            self._ask_for_isr()
        self._advance(0)

    def _take_newer_state(self, role: Role, now_ms: int) -> None:
        leading = self._leading
        if leading is None:
            self.in_sync = role.isr
            # Its first followers. What we have written in this epoch we have written alone, so all of it counts.
            self._lead(role, self.log.end_offset, now_ms)
            return
        leading.take_role(role, now_ms)
        self._on_isr_changed(leading)

    @property
    def partition_epoch(self) -> int:
        leading = self._leading
        return self.role.partition_epoch if leading is None else leading.partition_epoch

    @property
    def min_in_sync(self) -> int:
        """How many replicas must be in sync for acks=all: never more than there are, as with Kafka 4.

        The controller counts alike: while fewer are in sync the high watermark stands still, and whoever left stays
        eligible (KIP-966). That is why replicas that are just being added count, too.
        """
        return min(self.log.settings.min_insync_replicas, self.replica_count)

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def has_too_few_in_sync(self) -> bool:
        return len(self.in_sync) < self.min_in_sync

    @property
    def followers(self) -> list[Follower]:
        """The other replicas, as their leader sees them."""
        return list(self._leading.followers.values()) if self._leading is not None else []

    def require_known_end(self) -> None:
        """A new leader may not know yet how far the one before him had come (KIP-207)."""
        leading = self._leading
        if leading is not None and self.high_watermark < leading.epoch_start_offset:
            raise KafkaError(Error.OFFSET_NOT_AVAILABLE)

    # ---- reading

    def read(self, offset: int, max_bytes: int, minimum_one: bool, is_read_committed: bool) -> FileRange | None:
        file_range = super().read(offset, max_bytes, minimum_one, is_read_committed)
        return None if file_range is None else self._without_hole(file_range, offset)

    def _without_hole(self, file_range: FileRange, offset: int) -> FileRange:
        """Nobody is led over records that are missing here while others may have them."""
        if not self.log.is_past_hole(offset, file_range) or self.in_sync == (self.node_id,):
            return file_range
        file_range.release()
        raise KafkaError(Error.CORRUPT_MESSAGE, f"The file of {self.name} that held offset {offset} is gone")

    # ---- producing

    def append(self, records: memoryview, is_acks_all: bool, now_ms: int) -> Appended:
        """Append one producer's batch; the caller waits for the high watermark itself if it must."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        if is_acks_all:
            self._require_replicas()
        try:
            appended = self.log.append(records, self.leader_epoch, now_ms)
        except KafkaError:
            self._note_refusal()
            raise
        self._on_appended(len(records))
        return appended

    def append_own(self, batch: bytearray, now_ms: int) -> int:
        """Append what the broker itself has to say (a coordinator's records, a marker); the last offset of it."""
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
        self._require_replicas()
        try:
            last_offset = self.log.append_own(memoryview(batch), self.leader_epoch, now_ms)
        except KafkaError:
            self._note_refusal()
            raise
        self._on_appended(len(batch))
        self.log.forget_ended(self.high_watermark)
        return last_offset

    def _require_replicas(self) -> None:
        if len(self.in_sync) < self.min_in_sync:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.in_sync)} is insufficient to satisfy the min.isr requirement "
                f"of {self.min_in_sync} for partition {self.name}",
            )

    def _on_appended(self, new_bytes: int) -> None:
        self._flush_if_due()
        self._advance(new_bytes)

    def on_flushed(self) -> None:
        """A flush has ended. If more came meanwhile than may stay unflushed, the next one starts at once."""
        self.is_flushing = False
        if self.log.unflushed_messages >= self.log.settings.flush_messages:
            self._start_flush()
        if self.leader_id == self.node_id:
            self._advance(0)
        if not self.is_flushing:
            self._tell_flushed()

    # ---- deleting

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
        self._wake_replicas()  # so that they follow at once
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """Where the logs of all in-sync replicas start, or later."""
        leading = self._leading
        start_offset = self.log.log_start_offset
        return start_offset if leading is None else leading.low_watermark(start_offset)

    # ---- as a leader of others

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
        """Records for a follower, up to the end of the log; what it asks for tells how far it is.

        When the same fetch reads again, after a wait, it tells nothing new: `is_first` is false then.
        """
        self.require_leader(leader_epoch)
        leading = self._leading
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
            file_range = self._without_hole(file_range, offset)
        if is_first:
            if file_range is not None and leading.note_repeated(follower, offset):
                log.distrust(file_range)
            leading.note_fetch(follower, broker_epoch, offset, log_start_offset, log.end_offset, now_ms)
            self._on_progress(leading, follower)
        return ReplicaRead(file_range, self.high_watermark, log.log_start_offset, None)

    def _divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        if last_fetched_epoch < 0:
            end_offset = self.log.end_offset
            return (NO_EPOCH, end_offset) if offset > end_offset else None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH and last_fetched_epoch > self.leader_epoch:  # nobody has had it: damage has made it up
            epoch, end_offset = self.log.latest_epoch, self.log.end_offset
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    def _on_progress(self, leading: Leading, follower: Follower) -> None:
        self._move_high_watermark(leading)
        if self._deletions is not None:
            self._answer_deletions(self._deletions)
        if leading.pending is None and leading.may_join(follower, self.high_watermark):
            self._ask_for_isr()

    def _ask_for_isr(self) -> None:
        if self.on_isr is not None:
            tell(self.on_isr, self)

    def wants_isr_change(self, now_ms: int) -> bool:
        """Whether somebody lags, or could join; cheap."""
        leading = self._leading
        return leading is not None and leading.wants_change(Offsets(self.log.end_offset, self.high_watermark), now_ms)

    def awaits(self, proposal: IsrProposal) -> bool:
        """Whether the answer to this proposal still tells something."""
        return self._leading is not None and self._leading.pending is proposal

    def isr_proposal(self, now_ms: int, own_broker_epoch: int = UNKNOWN) -> IsrProposal | None:
        """What to ask the controller for. Until on_isr_answer() there is no other."""
        leading = self._leading
        if leading is None:
            return None
        topic, index = self.name
        offsets = Offsets(self.log.end_offset, self.high_watermark)
        return leading.propose(self.topic_id, topic, index, own_broker_epoch, offsets, now_ms)

    def on_isr_answer(
        self,
        proposal: IsrProposal,
        error: Error,
        leader_epoch: int = UNKNOWN,
        isr: tuple[int, ...] = (),
        partition_epoch: int = UNKNOWN,
        is_recovering: bool = False,
    ) -> bool:
        """What became of a proposal; true if the in-sync replicas are as the controller says now."""
        leading = self._leading
        if leading is None or not leading.take_answer(proposal, error, leader_epoch, isr, partition_epoch):
            return False
        leading.is_recovering = is_recovering and error is Error.NONE
        self._on_isr_changed(leading)
        return True

    def forget_follower(self, broker_id: int) -> None:
        """A broker has died, or begun a new life: it holds nobody up."""
        leading = self._leading
        if leading is not None:
            leading.forget(broker_id)
            self._move_high_watermark(leading)

    def _on_isr_changed(self, leading: Leading) -> None:
        self.in_sync = leading.isr
        self._move_high_watermark(leading)
        if self._produces is not None and self.has_too_few_in_sync:
            produces, self._produces = self._produces, None
            self._produces = [entry for entry in produces if not entry[1].minds_isr] or None
            for _, waiting in produces:
                if waiting.minds_isr:
                    waiting.note()
        if any(leading.may_join(follower, self.high_watermark) for follower in leading.followers.values()):
            self._ask_for_isr()

    # ---- the high watermark

    def _advance(self, new_bytes: int) -> None:
        """Our own log has grown, or may count further than before."""
        if self._leading is not None:
            self._advance_with_followers(self._leading, new_bytes)
            return
        end_offset = self.log.recovery_point if self.is_flushing else self.log.end_offset
        assert end_offset <= self.log.end_offset, f"{self} has flushed up to {end_offset}"
        if end_offset > self.high_watermark and len(self.in_sync) <= 1:
            self.high_watermark = end_offset
            if self._fetches is not None:
                for waiting in list(self._fetches):
                    waiting.note(new_bytes)
            if self._produces is not None:
                self._answer_produces(self._produces)

    def _advance_with_followers(self, leading: Leading, new_bytes: int) -> None:
        if new_bytes:
            self._hidden_bytes += new_bytes
            if self._replica_fetches is not None:
                for waiting in list(self._replica_fetches):
                    waiting.note(new_bytes)
            if not leading.is_alone:
                return  # nobody has it yet
        self._move_high_watermark(leading)

    def _move_high_watermark(self, leading: Leading) -> None:
        assert self.is_leader, f"{self} has followers"
        if len(self.in_sync) < self.min_in_sync:
            return  # as with KIP-966: what too few have is not committed
        own_offset = self.log.recovery_point if self.is_flushing else self.log.end_offset
        self._set_high_watermark(leading.replicated_offset(own_offset))

    def _answer_deletions(self, deletions: list[tuple[int, WaitingProduce]]) -> None:
        low_watermark = self.low_watermark
        self._deletions = [entry for entry in deletions if entry[0] > low_watermark] or None
        for offset, waiting in deletions:
            if offset <= low_watermark:
                waiting.note()

    def retire(self) -> None:
        """The topic was deleted, or its folder failed: nobody may append or read any more."""
        self.is_deleted = True
        self.leader_id = NO_LEADER
        self._leading = None
        self.leading_since = NO_EPOCH
        self.wake_all()
        if self.on_role is not None:
            tell(self.on_role, self)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return (
            f"<Partition {self.name} {role} epoch {self.leader_epoch}, "
            f"{self.log.log_start_offset}..{self.high_watermark}..{self.log.end_offset}>"
        )
