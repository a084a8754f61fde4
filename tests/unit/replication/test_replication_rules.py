"""The rules of the high watermark, the ISR and following: one test for each rule, on the pure decisions."""

from __future__ import annotations

import pytest
from tests.unit.replication.stand import TOPIC_ID

from ottla.base.errors import Error, KafkaError
from ottla.replication.follower_rules import NO_EPOCH, NO_OFFSET, follower_high_watermark, truncation_offset
from ottla.replication.leader_state import (
    REJECTED_PAUSE_MS,
    AlterPartitionProposal,
    LeaderState,
    LogOffsets,
    PartitionState,
)

LAG_MS = 10_000
ISR = (1, 2)
EPOCH_START = 5


class Leader:
    """Broker 1 leads; broker 2 is in sync, broker 3 is not. Both must fetch to count as caught up."""

    def __init__(self, isr: tuple[int, ...] = ISR, *, high_watermark: int = 10, end: int = 20) -> None:
        role = PartitionState(1, 4, isr, (1, 2, 3), partition_epoch=7)
        self.state = LeaderState(1, role, EPOCH_START, LAG_MS, 0)
        self.offsets = LogOffsets(end, high_watermark)
        self.now_ms = 100_000

    def fetch(self, broker_id: int, offset: int, *, end: int | None = None, broker_epoch: int = 1) -> None:
        follower = self.state.followers[broker_id]
        self.state.check_broker_epoch(follower, broker_epoch)
        end_offset = self.offsets.end if end is None else end
        self.state.update_fetch_state(follower, broker_epoch, offset, 0, end_offset, self.now_ms)

    def propose(self) -> AlterPartitionProposal | None:
        return self.state.propose_isr(TOPIC_ID, "t", 0, 1, self.offsets, self.now_ms)

    def can_join(self, broker_id: int) -> bool:
        return self.state.can_join_isr(self.state.followers[broker_id], self.offsets.high_watermark)

    def answer(self, proposal: AlterPartitionProposal | None, error: Error) -> bool:
        assert proposal is not None
        return self.state.apply_response(proposal, error, 4, proposal.isr_ids, 8)

    def replicated(self) -> int:
        return self.state.replicated_offset(self.offsets.end)


# ---- the high watermark


@pytest.mark.parametrize(("of_2", "of_3"), [(20, 12), (12, 20)])
def test_high_watermark_waits_for_every_replica_in_sync(of_2: int, of_3: int) -> None:
    leader = Leader((1, 2, 3))
    leader.fetch(2, of_2)
    leader.fetch(3, of_3)
    assert leader.replicated() == 12


def test_high_watermark_does_not_wait_for_a_replica_out_of_sync() -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 6)
    assert leader.replicated() == 20


def test_high_watermark_waits_for_a_replica_that_is_proposed() -> None:
    """The controller may have added it already, and may elect it."""
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 10)
    assert leader.replicated() == 20
    proposal = leader.propose()
    assert proposal is not None
    assert proposal.isr_ids == (1, 2, 3)
    assert leader.replicated() == 10


def test_high_watermark_waits_for_a_removed_replica_until_the_controller_has_confirmed_it() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.now_ms += LAG_MS + 1
    proposal = leader.propose()
    assert proposal is not None
    assert proposal.isr_ids == (1,)
    assert leader.replicated() == 10
    assert leader.answer(proposal, Error.NONE)
    assert leader.replicated() == 20


def test_high_watermark_waits_for_a_replica_that_is_about_to_join() -> None:
    """Otherwise a busy leader would always be ahead of it."""
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 15, end=15)
    assert leader.replicated() == 15


def test_high_watermark_does_not_wait_for_a_dead_replica_that_was_about_to_join() -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 15, end=15)
    leader.state.reset_follower(3)
    assert leader.replicated() == 20
    assert not leader.can_join(3), "it may be dead"


def test_high_watermark_waits_for_a_dead_replica_in_sync() -> None:
    leader = Leader()
    leader.fetch(2, 12)
    leader.state.reset_follower(2)
    assert leader.replicated() == 12


# ---- joining the ISR


@pytest.mark.parametrize(("offset", "can_join"), [(9, False), (10, True)])
def test_a_replica_joins_when_it_has_reached_the_high_watermark(offset: int, can_join: bool) -> None:
    leader = Leader()
    leader.fetch(3, offset)
    assert leader.can_join(3) is can_join


@pytest.mark.parametrize(("offset", "can_join"), [(EPOCH_START - 1, False), (EPOCH_START, True)])
def test_a_replica_joins_when_it_has_reached_the_start_of_the_epoch(offset: int, can_join: bool) -> None:
    """Before that it may have to truncate records of an earlier leader."""
    leader = Leader(high_watermark=0)
    leader.fetch(3, offset)
    assert leader.can_join(3) is can_join


def test_a_replica_that_the_controller_removed_joins_only_after_its_next_fetch() -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.state.update_partition_state(PartitionState(1, 4, (1,), (1, 2, 3), partition_epoch=8), leader.now_ms)
    assert not leader.can_join(2)
    leader.fetch(2, 20)
    assert leader.can_join(2)


def test_a_rejected_replica_is_not_proposed_for_a_while_unless_it_restarts() -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 10)
    assert leader.answer(leader.propose(), Error.INELIGIBLE_REPLICA)
    leader.now_ms += REJECTED_PAUSE_MS - 1
    leader.fetch(3, 10)
    assert leader.propose() is None
    leader.fetch(3, 10, broker_epoch=2)
    assert leader.propose() is not None


def test_high_watermark_does_not_wait_for_a_rejected_replica() -> None:
    """It may be shutting down, and fetches to the end of the log until then."""
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 20)
    assert leader.answer(leader.propose(), Error.INELIGIBLE_REPLICA)
    leader.fetch(3, 20)
    leader.offsets = LogOffsets(30, 20)
    leader.fetch(2, 30)
    assert leader.replicated() == 30


# ---- leaving the ISR


@pytest.mark.parametrize(
    ("offset", "later_ms", "is_out_of_sync"),
    [(19, LAG_MS, False), (19, LAG_MS + 1, True), (20, LAG_MS + 1, False)],
)
def test_a_replica_is_out_of_sync_when_it_lacks_records_for_too_long(
    offset: int, later_ms: int, is_out_of_sync: bool
) -> None:
    leader = Leader()
    leader.fetch(2, offset, end=offset)
    leader.now_ms += later_ms
    assert leader.state.has_isr_change(leader.offsets, leader.now_ms) is is_out_of_sync
    assert (leader.propose() is not None) is is_out_of_sync


def test_a_replica_that_has_what_there_was_at_its_last_fetch_was_caught_up_then() -> None:
    """Under load a replica never has everything."""
    leader = Leader()
    start_ms = leader.now_ms
    leader.fetch(2, 15)
    leader.now_ms += LAG_MS
    leader.fetch(2, 20, end=30)
    assert leader.state.followers[2].last_caught_up_time_ms == start_ms
    leader.offsets = LogOffsets(30, 10)
    assert leader.propose() is None
    leader.now_ms += 1
    assert leader.propose() is not None


# ---- proposals


def test_there_is_one_proposal_at_a_time() -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 10)
    first = leader.propose()
    assert first is not None
    leader.now_ms += 2 * LAG_MS
    leader.offsets = LogOffsets(30, 10)  # broker 2 lags now
    assert not leader.state.has_isr_change(leader.offsets, leader.now_ms)
    assert leader.propose() is None
    assert leader.state.pending_proposal is first


@pytest.mark.parametrize("error", [Error.REQUEST_TIMED_OUT, Error.UNKNOWN_SERVER_ERROR, Error.FENCED_LEADER_EPOCH])
def test_after_an_unknown_result_the_proposed_replicas_still_count(error: Error) -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 10)
    proposal = leader.propose()
    assert not leader.answer(proposal, error)
    assert leader.replicated() == 10
    assert leader.state.pending_proposal is proposal


@pytest.mark.parametrize(("partition_epoch", "is_resolved"), [(7, False), (8, True)])
def test_only_a_newer_state_resolves_a_proposal(partition_epoch: int, is_resolved: bool) -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 10)
    leader.propose()
    leader.state.update_partition_state(
        PartitionState(1, 4, ISR, (1, 2, 3), partition_epoch=partition_epoch), leader.now_ms
    )
    assert (leader.state.pending_proposal is None) is is_resolved
    assert (leader.state.maximal_isr == frozenset(ISR)) is is_resolved


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(5, 8), (4, 6)])
def test_an_answer_for_another_state_changes_nothing(leader_epoch: int, partition_epoch: int) -> None:
    leader = Leader()
    leader.fetch(2, 20)
    leader.fetch(3, 10)
    proposal = leader.propose()
    assert proposal is not None
    assert not leader.state.apply_response(proposal, Error.NONE, leader_epoch, (1, 3), partition_epoch)
    assert leader.state.committed_isr == ISR


@pytest.mark.parametrize("broker_epoch", [-1, 6, 7])
def test_fetches_of_the_current_broker_epoch_count(broker_epoch: int) -> None:
    leader = Leader()
    leader.fetch(2, 10, broker_epoch=6)
    leader.fetch(2, 12, broker_epoch=broker_epoch)
    assert leader.replicated() == 12


def test_a_fetch_of_an_earlier_broker_epoch_is_refused() -> None:
    """The broker has restarted since, and may have lost what this fetch reports."""
    leader = Leader()
    leader.fetch(2, 10, broker_epoch=6)
    with pytest.raises(KafkaError, match="this fetch is of 5"):
        leader.fetch(2, 12, broker_epoch=5)
    assert leader.replicated() == 10


def test_low_watermark_is_the_lowest_start_of_the_replicas_in_sync() -> None:
    leader = Leader()
    starts = {2: 4, 3: 1}
    for broker_id, log_start_offset in starts.items():
        follower = leader.state.followers[broker_id]
        leader.state.update_fetch_state(follower, 1, 10, log_start_offset, 20, leader.now_ms)
    assert leader.state.low_watermark(6) == 4


# ---- following


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "own_epoch", "own_epoch_end", "own_end", "expected"),
    [
        (NO_EPOCH, 8, 3, 6, 20, 8),  # the leader knows no epoch at or below ours: its end alone counts
        (3, 8, NO_EPOCH, NO_OFFSET, 20, 8),  # we have no epoch at or below the leader's
        (3, 30, NO_EPOCH, NO_OFFSET, 20, 20),  # … and never more than we have
        (3, 8, 2, 6, 20, 6),  # we lack the leader's epoch: everything after it goes, the leader is asked again
        (3, 4, 2, 6, 20, 6),
        (3, 8, 3, 12, 20, 8),  # both have the epoch: the shorter end is common
        (3, 12, 3, 8, 20, 8),
        (3, 30, 3, 30, 20, 20),
    ],
)
def test_a_log_is_truncated_where_the_epochs_part(
    leader_epoch: int, leader_end: int, own_epoch: int, own_epoch_end: int, own_end: int, expected: int
) -> None:
    assert truncation_offset(leader_epoch, leader_end, own_epoch, own_epoch_end, own_end) == expected


@pytest.mark.parametrize(("known", "leaders", "end", "expected"), [(5, 8, 20, 8), (5, 3, 20, 5), (5, 30, 20, 20)])
def test_a_followers_high_watermark_rises_with_the_leaders_up_to_its_own_end(
    known: int, leaders: int, end: int, expected: int
) -> None:
    assert follower_high_watermark(known, leaders, end) == expected
