"""What the leader of a partition knows about its followers. Compiled with mypyc where possible.

Rule 1: everything that decides about the in-sync replicas and the high watermark lives in this file; no clock, no
socket, no disk: times and offsets are arguments. Times are those of a clock that never goes back.
Rule 2: the high watermark is the smallest end of the logs of the *maximal* ISR: what the controller has confirmed and
who we have asked it to add. Whoever may be elected has everything below it.
Rule 3: a replica joins only when its log reaches both the high watermark and the start of this leader's epoch: before
that it may still have to cut records off which it got from an earlier leader.
Rule 4: who is left out stays in until the controller has confirmed it. One proposal at a time.
Rule 5: fetches of an earlier life of a broker (by its epoch) count for nothing.
Rule 6: what can only be a mistake of ours is asserted where it would begin to count; whoever asks about this partition
is told UNKNOWN_SERVER_ERROR then, and the others go on.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.replication.role import Role

UNKNOWN: Final = -1
NEVER_MS: Final = -(2**62)
REFUSED_MS: Final = 1_000
REPEATS_MAX: Final = 3
# The controller has not done it, and never will: back to what is confirmed.
NOT_DONE: Final = (Error.OPERATION_NOT_ATTEMPTED, Error.INELIGIBLE_REPLICA)


class IsrProposal(NamedTuple):
    """What a leader asks the controller for (AlterPartition)."""

    topic_id: UUID
    topic: str
    partition: int
    leader_epoch: int
    isr: tuple[tuple[int, int], ...]  # broker ids with their epochs, -1 if unknown (KIP-903)
    partition_epoch: int  # of the state that it is to replace …
    replaced: tuple[int, ...] = ()  # … and who was in sync in it
    is_recovering: bool = False

    @property
    def isr_ids(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.isr)


class Follower:
    """How far one other replica has come."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
        "refused_until_ms",
        "repeats",
        "served_offset",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.end_offset = UNKNOWN  # everything below it is in the follower's log
        self.log_start_offset = UNKNOWN
        self.fetched_ms = NEVER_MS
        self.leader_end_offset = UNKNOWN  # of our log, when it last fetched
        self.caught_up_ms = caught_up_ms  # it had all that we had at that moment
        self.refused_until_ms = NEVER_MS  # the controller did not want it: it is not proposed again before then

        self.served_offset = UNKNOWN  # where the records stand that it was given last …
        self.repeats = 0  # … and how often it has asked for the same ones again

    def __repr__(self) -> str:
        return f"<Follower {self.broker_id} at {self.end_offset}>"


class Leading:
    """One epoch of this broker as the leader of a partition with other replicas."""

    def __init__(self, node_id: int, role: Role, end_offset: int, lag_ms_max: int, now_ms: int) -> None:
        self.node_id = node_id
        self.leader_epoch = role.leader_epoch
        self.epoch_start_offset = end_offset
        self.lag_ms_max = lag_ms_max
        self.now_ms = now_ms  # the latest time that anybody has told
        self.isr: tuple[int, ...] = role.isr  # confirmed
        self.replicas: tuple[int, ...] = role.replicas
        self.partition_epoch = role.partition_epoch
        self.is_recovering = role.is_recovering
        self.pending: IsrProposal | None = None
        self.maximal_isr = frozenset(role.isr)
        self.followers: dict[int, Follower] = {}
        self._meet(role, now_ms)

    # ---- what the controller says

    def take_role(self, role: Role, now_ms: int) -> None:
        """A state of the same leader epoch. With a newer one all that we have asked for is decided."""
        self.now_ms = max(self.now_ms, now_ms)
        self.replicas = role.replicas
        if role.partition_epoch > self.partition_epoch:
            self.is_recovering = role.is_recovering
            self._commit(role.isr, role.partition_epoch)
        self._meet(role, now_ms)

    def _meet(self, role: Role, now_ms: int) -> None:
        self.followers = {
            broker_id: self.followers.get(broker_id)
            or Follower(broker_id, now_ms if broker_id in role.isr else NEVER_MS)
            for broker_id in role.replicas
            if broker_id != self.node_id
        }

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        assert partition_epoch >= self.partition_epoch, f"{self} goes back to partition epoch {partition_epoch}"
        for broker_id in self.isr:
            follower = self.followers.get(broker_id)
            if follower is not None and broker_id not in isr:
                follower.caught_up_ms = NEVER_MS  # nobody waits for it before it has caught up anew …
                follower.end_offset = UNKNOWN  # … and it does not join before it has fetched again: it may be dead
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.maximal_isr = frozenset(isr)
        self.pending = None

    # ---- what followers say

    def follower(self, broker_id: int, has_leader_epoch: bool) -> Follower:
        """Only replicas of the assignment count; Kafka's errors for everybody else (CVE-2018-1288)."""
        follower = self.followers.get(broker_id)
        if follower is None:
            # It may have learned of its assignment before us: then it tries again.
            error = Error.UNKNOWN_LEADER_EPOCH if has_leader_epoch else Error.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(error, f"Broker {broker_id} holds no replica")
        return follower

    def check_broker_epoch(self, follower: Follower, broker_epoch: int) -> None:
        if UNKNOWN < broker_epoch < follower.broker_epoch:
            raise KafkaError(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"Broker {follower.broker_id} has epoch {follower.broker_epoch}, this fetch is of {broker_epoch}",
            )

    def note_fetch(
        self,
        follower: Follower,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
    ) -> None:
        """A follower asks for records from this offset on: so it has everything before. `end_offset` is ours."""
        assert 0 <= offset <= end_offset, f"{follower} has {offset} of {end_offset}"
        assert self.followers.get(follower.broker_id) is follower, f"{follower} is none of {self}"
        self.now_ms = max(self.now_ms, now_ms)
        if broker_epoch > follower.broker_epoch:
            follower.broker_epoch = broker_epoch
            follower.refused_until_ms = NEVER_MS  # a new life
        if now_ms < follower.refused_until_ms:
            pass  # it may be about to stop: were it fresh again, the watermark would wait for it when it is gone
        elif offset >= end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.fetched_ms = now_ms
        follower.leader_end_offset = end_offset

    def note_repeated(self, follower: Follower, offset: int) -> bool:
        """It is given records from this offset on. Whether it cannot make use of them: they may be damaged here."""
        if offset != follower.served_offset:
            follower.served_offset = offset
            follower.repeats = 0
            return False
        follower.repeats += 1
        return follower.repeats == REPEATS_MAX

    # ---- the high watermark

    @property
    def is_alone(self) -> bool:
        """Nobody else has to have a record before it counts."""
        return len(self.maximal_isr) <= 1

    def replicated_offset(self, own_offset: int) -> int:
        """Below this offset all have everything that must; `own_offset` says how far that is true of ourselves.

        Replicas that are about to join are waited for too: else, under load, they would never reach the watermark.
        """
        assert self.maximal_isr.issuperset(self.isr), f"{self} waits for {sorted(self.maximal_isr)} alone"
        lowest = own_offset
        for broker_id, follower in self.followers.items():
            if follower.end_offset < lowest and (broker_id in self.maximal_isr or self._is_fresh(follower)):
                lowest = follower.end_offset
        return lowest

    def forget(self, broker_id: int) -> None:
        """A broker has died, or begun a new life: nobody waits for it, or proposes it, before it has fetched again."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.caught_up_ms = NEVER_MS
            if broker_id not in self.maximal_isr:
                follower.end_offset = UNKNOWN

    def low_watermark(self, own_start_offset: int) -> int:
        """Where the logs of all in-sync replicas start, or later."""
        lowest = own_start_offset
        for broker_id, follower in self.followers.items():
            if broker_id in self.isr and follower.log_start_offset < lowest:
                lowest = follower.log_start_offset
        return lowest

    def _is_fresh(self, follower: Follower) -> bool:
        return self.now_ms - follower.caught_up_ms <= self.lag_ms_max

    # ---- the in-sync replicas

    def may_join(self, follower: Follower, high_watermark: int) -> bool:
        if follower.broker_id in self.maximal_isr or self.now_ms < follower.refused_until_ms:
            return False
        return follower.end_offset >= max(high_watermark, self.epoch_start_offset)

    def lags(self, follower: Follower, end_offset: int) -> bool:
        return follower.end_offset != end_offset and not self._is_fresh(follower)

    def wants_change(self, offsets: Offsets, now_ms: int) -> bool:
        """Whether there is something to propose."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.pending is not None:
            return False
        for follower in self.followers.values():
            is_in = follower.broker_id in self.isr
            if is_in and self.lags(follower, offsets.end):
                return True
            if not is_in and self.may_join(follower, offsets.high_watermark):
                return True
        return self.is_recovering

    def propose(
        self, topic_id: UUID, topic: str, partition: int, own_epoch: int, offsets: Offsets, now_ms: int
    ) -> IsrProposal | None:
        """What to ask the controller for; None if all is well, or if it has not answered yet."""
        self.now_ms = max(self.now_ms, now_ms)
        if self.pending is not None:
            return None
        isr: list[tuple[int, int]] = []
        for broker_id in self.replicas:
            if broker_id == self.node_id:
                isr.append((broker_id, own_epoch))
                continue
            follower = self.followers[broker_id]
            is_in = broker_id in self.isr
            if (is_in and not self.lags(follower, offsets.end)) or self.may_join(follower, offsets.high_watermark):
                isr.append((broker_id, follower.broker_epoch))
        ids = frozenset(broker_id for broker_id, _ in isr)
        if ids == frozenset(self.isr) and not self.is_recovering:
            return None
        assert self.node_id in ids, f"{self} leaves itself out"
        self.pending = IsrProposal(
            topic_id, topic, partition, self.leader_epoch, tuple(isr), self.partition_epoch, self.isr
        )
        self.maximal_isr = frozenset(self.isr) | ids
        return self.pending

    def take_answer(
        self, proposal: IsrProposal, error: Error, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> bool:
        """The controller has answered, or somebody knows what it has decided; whether the ISR is another one now.

        After an error which does not say that nothing was done, the maximal ISR stays until a new role tells more.
        """
        if proposal is not self.pending:
            return False
        if error in NOT_DONE:
            for broker_id in self.maximal_isr.difference(self.isr):
                follower = self.followers.get(broker_id)
                if follower is not None:
                    follower.caught_up_ms = NEVER_MS  # the watermark does not wait for whom the controller refuses
                    follower.refused_until_ms = self.now_ms + REFUSED_MS
            self._commit(self.isr, self.partition_epoch)
            return True
        if error is not Error.NONE or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.is_recovering = False
        self._commit(isr, partition_epoch)
        return True

    def __repr__(self) -> str:
        return f"<Leading epoch {self.leader_epoch}, isr {self.isr}, {list(self.followers.values())}>"


class Offsets(NamedTuple):
    """Two places in the leader's log."""

    end: int
    high_watermark: int
