"""A partition leader's state about its followers. Compiled with mypyc where possible.

Rule 1: all decisions about the ISR and the high watermark are in this file. It has no clock, no socket and no disk:
times and offsets are arguments. Times are monotonic.
Rule 2: the high watermark is the smallest log end of the *maximal* ISR: the confirmed replicas and those that the
controller was asked to add. Any replica that may be elected has everything below it.
Rule 3: a replica joins only when its log reaches both the high watermark and the start of this leader's epoch: before
that it may still have to truncate records of an earlier leader.
Rule 4: a replica that is removed stays in the maximal ISR until the controller has confirmed the removal. One proposal
at a time.
Rule 5: fetches of an earlier broker epoch are rejected.
Rule 6: invariants are asserted where a violation would have an effect: requests for this partition then fail with
UNKNOWN_SERVER_ERROR, and other partitions continue.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError

NO_LEADER: Final = -1


class PartitionState(NamedTuple):
    """Leader, ISR and replicas of a partition. Each broker finds its own role in it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0  # counts every change; the leader epoch counts only leader changes
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[
        int, ...
    ] = ()  # eligible leader replicas: out of sync, but with all committed records (KIP-966)
    is_recovering: bool = False  # elected although it was not in sync (unclean): records may be lost


UNKNOWN: Final = -1
NEVER_MS: Final = -(2**62)
REJECTED_PAUSE_MS: Final = 1_000
REPEATS_MAX: Final = 3
# The controller has not made the change, and will not: return to the confirmed ISR.
REJECTED_ERRORS: Final = (Error.OPERATION_NOT_ATTEMPTED, Error.INELIGIBLE_REPLICA)


class AlterPartitionProposal(NamedTuple):
    """A leader's request to the controller (AlterPartition)."""

    topic_id: UUID
    topic: str
    partition: int
    leader_epoch: int
    isr: tuple[tuple[int, int], ...]  # broker ids with their epochs, -1 if unknown (KIP-903)
    partition_epoch: int  # of the replaced state
    replaced: tuple[int, ...] = ()  # the ISR of that state
    is_recovering: bool = False

    @property
    def isr_ids(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.isr)


class FollowerState:
    """The replication state of one follower."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_time_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_time_ms",
        "last_served_offset",
        "log_end_offset",
        "log_start_offset",
        "rejected_until_ms",
        "repeat_count",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.log_end_offset = UNKNOWN  # the follower's log has everything below it
        self.log_start_offset = UNKNOWN
        self.last_fetch_time_ms = NEVER_MS
        self.last_fetch_leader_log_end_offset = UNKNOWN  # of the leader's log, at the follower's last fetch
        self.last_caught_up_time_ms = caught_up_ms  # the last time at which it had all records
        self.rejected_until_ms = NEVER_MS  # the controller rejected it: it is not proposed again before then

        self.last_served_offset = UNKNOWN  # offset of the records that were sent to it last
        self.repeat_count = 0  # how often it has fetched the same offset again

    def __repr__(self) -> str:
        return f"<FollowerState {self.broker_id} at {self.log_end_offset}>"


class LeaderState:
    """One epoch of this broker as the leader of a partition with other replicas."""

    def __init__(self, node_id: int, role: PartitionState, end_offset: int, lag_ms_max: int, now_ms: int) -> None:
        self.node_id = node_id
        self.leader_epoch = role.leader_epoch
        self.epoch_start_offset = end_offset
        self.lag_ms_max = lag_ms_max
        self.now_ms = now_ms  # the latest time of any call
        self.committed_isr: tuple[int, ...] = role.isr  # confirmed
        self.replicas: tuple[int, ...] = role.replicas
        self.partition_epoch = role.partition_epoch
        self.is_recovering = role.is_recovering
        self.pending_proposal: AlterPartitionProposal | None = None
        self.maximal_isr = frozenset(role.isr)
        self.followers: dict[int, FollowerState] = {}
        self._rebuild_followers(role, now_ms)

    # ---- the controller's decisions

    def update_partition_state(self, role: PartitionState, now_ms: int) -> None:
        """Apply a state of the same leader epoch. A newer partition epoch resolves the pending proposal."""
        self.now_ms = max(self.now_ms, now_ms)
        self.replicas = role.replicas
        if role.partition_epoch > self.partition_epoch:
            self.is_recovering = role.is_recovering
            self._commit_isr(role.isr, role.partition_epoch)
        self._rebuild_followers(role, now_ms)

    def _rebuild_followers(self, role: PartitionState, now_ms: int) -> None:
        self.followers = {
            broker_id: self.followers.get(broker_id)
            or FollowerState(broker_id, now_ms if broker_id in role.isr else NEVER_MS)
            for broker_id in role.replicas
            if broker_id != self.node_id
        }

    def _commit_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        assert partition_epoch >= self.partition_epoch, f"{self} goes back to partition epoch {partition_epoch}"
        for broker_id in self.committed_isr:
            follower = self.followers.get(broker_id)
            if follower is not None and broker_id not in isr:
                follower.last_caught_up_time_ms = (
                    NEVER_MS  # the watermark does not wait for it until it has caught up again
                )
                follower.log_end_offset = UNKNOWN  # it cannot join before its next fetch, because it may be down
        self.committed_isr = isr
        self.partition_epoch = partition_epoch
        self.maximal_isr = frozenset(isr)
        self.pending_proposal = None

    # ---- followers' fetches

    def follower(self, broker_id: int, has_leader_epoch: bool) -> FollowerState:
        """Return the state of an assigned follower; other brokers get Kafka's errors (CVE-2018-1288)."""
        follower = self.followers.get(broker_id)
        if follower is None:
            # It may have received its assignment before this broker did: it retries.
            error = Error.UNKNOWN_LEADER_EPOCH if has_leader_epoch else Error.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(error, f"Broker {broker_id} holds no replica")
        return follower

    def check_broker_epoch(self, follower: FollowerState, broker_epoch: int) -> None:
        if UNKNOWN < broker_epoch < follower.broker_epoch:
            raise KafkaError(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"Broker {follower.broker_id} has epoch {follower.broker_epoch}, this fetch is of {broker_epoch}",
            )

    def update_fetch_state(
        self,
        follower: FollowerState,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
    ) -> None:
        """Record that a follower fetches from this offset on, so it has all records before it.

        `end_offset` is the leader's.
        """
        assert 0 <= offset <= end_offset, f"{follower} has {offset} of {end_offset}"
        assert self.followers.get(follower.broker_id) is follower, f"{follower} is none of {self}"
        self.now_ms = max(self.now_ms, now_ms)
        if broker_epoch > follower.broker_epoch:
            follower.broker_epoch = broker_epoch
            follower.rejected_until_ms = NEVER_MS  # the follower has restarted
        if now_ms < follower.rejected_until_ms:
            pass  # it may be shutting down: if it were caught up, the watermark would wait for it after its end
        elif offset >= end_offset:
            follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, now_ms)
        elif offset >= follower.last_fetch_leader_log_end_offset:
            follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, follower.last_fetch_time_ms)
        follower.log_end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_time_ms = now_ms
        follower.last_fetch_leader_log_end_offset = end_offset

    def count_repeated_fetch(self, follower: FollowerState, offset: int) -> bool:
        """Record that records from this offset on are sent; true if the follower fetches them repeatedly:

        they may be corrupt.
        """
        if offset != follower.last_served_offset:
            follower.last_served_offset = offset
            follower.repeat_count = 0
            return False
        follower.repeat_count += 1
        return follower.repeat_count == REPEATS_MAX

    # ---- the high watermark

    @property
    def is_sole_replica(self) -> bool:
        """Whether no other replica is in the maximal ISR."""
        return len(self.maximal_isr) <= 1

    def replicated_offset(self, own_offset: int) -> int:
        """Return the offset below which all required replicas have every record; `own_offset` is that of the leader
        itself. This includes replicas that are about to join: otherwise, under load, they would never reach the
        watermark.
        """
        assert self.maximal_isr.issuperset(self.committed_isr), f"{self} waits for {sorted(self.maximal_isr)} alone"
        lowest = own_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < lowest and (broker_id in self.maximal_isr or self._is_caught_up(follower)):
                lowest = follower.log_end_offset
        return lowest

    def reset_follower(self, broker_id: int) -> None:
        """Reset a failed or restarted follower:

        until its next fetch the watermark does not wait for it, and it cannot join.
        """
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.last_caught_up_time_ms = NEVER_MS
            if broker_id not in self.maximal_isr:
                follower.log_end_offset = UNKNOWN

    def low_watermark(self, own_start_offset: int) -> int:
        """Return the lowest log start offset of all in-sync replicas."""
        lowest = own_start_offset
        for broker_id, follower in self.followers.items():
            if broker_id in self.committed_isr and follower.log_start_offset < lowest:
                lowest = follower.log_start_offset
        return lowest

    def _is_caught_up(self, follower: FollowerState) -> bool:
        return self.now_ms - follower.last_caught_up_time_ms <= self.lag_ms_max

    # ---- the in-sync replicas

    def can_join_isr(self, follower: FollowerState, high_watermark: int) -> bool:
        if follower.broker_id in self.maximal_isr or self.now_ms < follower.rejected_until_ms:
            return False
        return follower.log_end_offset >= max(high_watermark, self.epoch_start_offset)

    def is_out_of_sync(self, follower: FollowerState, end_offset: int) -> bool:
        return follower.log_end_offset != end_offset and not self._is_caught_up(follower)

    def has_isr_change(self, offsets: LogOffsets, now_ms: int) -> bool:
        """Return whether there is a change to propose."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.pending_proposal is not None:
            return False
        for follower in self.followers.values():
            is_in = follower.broker_id in self.committed_isr
            if is_in and self.is_out_of_sync(follower, offsets.end):
                return True
            if not is_in and self.can_join_isr(follower, offsets.high_watermark):
                return True
        return self.is_recovering

    def propose_isr(
        self, topic_id: UUID, topic: str, partition: int, own_epoch: int, offsets: LogOffsets, now_ms: int
    ) -> AlterPartitionProposal | None:
        """Return the proposal for the controller; None if no change is needed, or if one is pending."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.pending_proposal is not None:
            return None
        isr: list[tuple[int, int]] = []
        for broker_id in self.replicas:
            if broker_id == self.node_id:
                isr.append((broker_id, own_epoch))
                continue
            follower = self.followers[broker_id]
            is_in = broker_id in self.committed_isr
            if (is_in and not self.is_out_of_sync(follower, offsets.end)) or self.can_join_isr(
                follower, offsets.high_watermark
            ):
                isr.append((broker_id, follower.broker_epoch))
        ids = frozenset(broker_id for broker_id, _ in isr)
        if ids == frozenset(self.committed_isr) and not self.is_recovering:
            return None
        assert self.node_id in ids, f"{self} leaves itself out"
        self.pending_proposal = AlterPartitionProposal(
            topic_id, topic, partition, self.leader_epoch, tuple(isr), self.partition_epoch, self.committed_isr
        )
        self.maximal_isr = frozenset(self.committed_isr) | ids
        return self.pending_proposal

    def apply_response(
        self,
        proposal: AlterPartitionProposal,
        error: Error,
        leader_epoch: int,
        isr: tuple[int, ...],
        partition_epoch: int,
    ) -> bool:
        """Apply the controller's response, or its decision known from another source; returns whether the ISR has
        changed.

        After an error that does not rule out the change, the maximal ISR stays until a new role arrives.
        """
        if proposal is not self.pending_proposal:
            return False
        if error in REJECTED_ERRORS:
            for broker_id in self.maximal_isr.difference(self.committed_isr):
                follower = self.followers.get(broker_id)
                if follower is not None:
                    # The watermark does not wait for a replica that the controller rejects.
                    follower.last_caught_up_time_ms = NEVER_MS
                    follower.rejected_until_ms = self.now_ms + REJECTED_PAUSE_MS
            self._commit_isr(self.committed_isr, self.partition_epoch)
            return True
        if error is not Error.NONE or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.is_recovering = False
        self._commit_isr(isr, partition_epoch)
        return True

    def __repr__(self) -> str:
        return f"<LeaderState epoch {self.leader_epoch}, isr {self.committed_isr}, {list(self.followers.values())}>"


class LogOffsets(NamedTuple):
    """Two offsets of the leader's log."""

    end: int
    high_watermark: int
