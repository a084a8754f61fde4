"""Leaders and followers on real logs, carried by hand."""

import errno
import os

import pytest
from tests.unit.replication.stand import LAG_MS, NOW_MS, Stand, batch

from ottla.base.errors import Error, KafkaError
from ottla.protocol.batches import Record, build_batch
from ottla.replication.leader_state import PartitionState
from ottla.replication.waiting_requests import WaitingFetch, WaitingProduce
from ottla.storage import files
from ottla.storage.range_checks import needs_check


@pytest.fixture
def make(tmp_path):
    made = []

    def make_stand(count=3, **settings):
        stand = Stand(tmp_path / str(len(made)), count, **settings)
        made.append(stand)
        return stand

    (tmp_path / "0").mkdir()
    yield make_stand
    for stand in made:
        stand.close()


@pytest.fixture
def stand(make):
    return make()


def refused(call, *arguments):
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.error


# ---- the high watermark


def test_the_high_watermark_moves_when_all_in_sync_replicas_have_the_record(stand):
    leader = stand.elect(1)
    stand.append(1, b"a", b"b")
    stand.fetch(2, 1)
    stand.fetch(3, 1)
    assert leader.high_watermark == 0  # the followers were sent the record, but have not confirmed it
    stand.fetch(2, 1)
    assert leader.high_watermark == 0
    stand.fetch(3, 1)
    assert leader.high_watermark == 2


def test_followers_learn_the_high_watermark_with_the_next_answer_and_never_past_their_own_log(stand):
    stand.elect(1)
    stand.append(1, b"a")
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    stand.append(1, b"b")
    position, read, _ = stand.ask(2, 1)
    stand.at[2].append_fetched(position, memoryview(b""), 9, 0)
    assert stand.at[2].high_watermark == 1
    assert read.high_watermark == 1


def test_replicas_hold_the_same_bytes(stand):
    stand.elect(1)
    for number in range(40):
        stand.append(1, b"value %d" % number, b"x" * number * 10)
    while stand.at[2].log.end_offset < 80:
        stand.fetch(2, 1, max_bytes=700)
    stand.catch_up(3, 1)
    assert stand.contents(1) == stand.contents(2) == stand.contents(3)


def test_an_acks_all_produce_is_answered_at_the_high_watermark(stand):
    leader = stand.elect(1)
    last_offset = stand.append(1, b"a")
    answered = []
    leader.wait_for_replication(last_offset, WaitingProduce(1, lambda: answered.append(True)))
    stand.catch_up(2, 1)
    assert not answered
    stand.catch_up(3, 1)
    assert answered


def test_who_waits_hears_at_once_that_the_leader_is_no_more(stand):
    leader = stand.elect(1)
    last_offset = stand.append(1, b"a")
    answered = []
    leader.wait_for_replication(last_offset, WaitingProduce(1, lambda: answered.append(leader.leader_since_epoch)))
    stand.elect(2, isr=(2, 3))
    assert answered == [-1]


def test_a_leader_that_is_elected_again_goes_on_waiting(stand):
    leader = stand.elect(1)
    last_offset = stand.append(1, b"a")
    answered = []
    leader.wait_for_replication(last_offset, WaitingProduce(1, lambda: answered.append(True)))
    since = leader.leader_since_epoch
    stand.elect(1, isr=(1, 2))
    assert not answered
    assert leader.leader_since_epoch == since
    stand.catch_up(2, 1)
    assert answered


def test_too_few_in_sync_after_the_append_ends_the_wait_of_producers_only(make):
    stand = make(min_insync_replicas=2)
    leader = stand.elect(1)
    last_offset = stand.append(1, b"a")
    produce, own = [], []
    leader.wait_for_replication(last_offset, WaitingProduce(1, lambda: produce.append(True), True))
    leader.wait_for_replication(last_offset, WaitingProduce(1, lambda: own.append(True)))
    stand.change_isr(1, (1,))
    assert produce
    assert not own
    assert leader.is_under_min_isr
    assert leader.high_watermark == 0  # what too few have is not committed (KIP-966)


def test_acks_all_is_refused_before_the_append_when_too_few_are_in_sync(make):
    stand = make(min_insync_replicas=2)
    leader = stand.elect(1, isr=(1,))
    assert refused(leader.append, batch(b"a"), True, NOW_MS) is Error.NOT_ENOUGH_REPLICAS


def test_appends_wake_followers_and_the_high_watermark_wakes_consumers(stand):
    leader = stand.elect(1)
    woken = []
    leader.wait_for_appends(WaitingFetch(1, lambda: woken.append("follower")))
    leader.wait_for_records(WaitingFetch(1, lambda: woken.append("consumer")))
    stand.append(1, b"a")
    assert woken == ["follower"]
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    assert woken == ["follower", "consumer"]


# ---- the in-sync replicas


def shrink(stand, leader, *laggards):
    """Let time pass in which the others fetch; the proposal that follows."""
    for _ in range(3):
        stand.now_ms += LAG_MS // 2
        for follower in stand.replicas:
            if follower not in (leader, *laggards):
                stand.catch_up(follower, leader)
    return stand.at[leader].propose_isr_change(stand.now_ms)


def confirm(stand, leader, proposal):
    stand.partition_epoch += 1
    stand.isr = proposal.isr_ids
    stand.at[leader].on_alter_partition_response(proposal, Error.NONE, stand.epoch, stand.isr, stand.partition_epoch)


def test_a_replica_that_lags_leaves_when_the_controller_has_confirmed_it(stand):
    leader = stand.elect(1)
    stand.append(1, b"a")
    proposal = shrink(stand, 1, 3)
    assert proposal.isr_ids == (1, 2)
    assert leader.high_watermark == 0
    assert leader.isr == (1, 2, 3)
    confirm(stand, 1, proposal)
    assert leader.high_watermark == 1
    assert leader.isr == (1, 2)


def test_a_replica_without_new_records_to_fetch_does_not_lag(stand):
    leader = stand.elect(1)
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    stand.now_ms += 10 * LAG_MS
    assert leader.propose_isr_change(stand.now_ms) is None


def test_there_is_one_proposal_at_a_time(stand):
    leader = stand.elect(1)
    stand.append(1, b"a")
    assert shrink(stand, 1, 2, 3).isr_ids == (1,)
    assert leader.propose_isr_change(stand.now_ms) is None


def test_a_replica_that_has_caught_up_joins_and_the_high_watermark_waits_for_it_from_the_proposal_on(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.append(1, b"a")
    stand.catch_up(2, 1)
    assert leader.high_watermark == 1
    stand.catch_up(3, 1)
    proposal = leader.propose_isr_change(stand.now_ms, 101)
    assert proposal.isr == ((1, 101), (2, 102), (3, 103))
    stand.append(1, b"b")
    stand.catch_up(2, 1)
    assert leader.high_watermark == 1  # 3 may be elected the moment the controller writes it down
    stand.catch_up(3, 1)
    assert leader.high_watermark == 2
    assert leader.isr == (1, 2)


def test_a_replica_below_the_high_watermark_does_not_join(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.append(1, b"a")
    stand.append(1, b"b")
    stand.catch_up(2, 1)
    stand.fetch(3, 1, max_bytes=1)
    stand.ask(3, 1, max_bytes=1)
    assert stand.at[3].log.end_offset == 1
    assert leader.propose_isr_change(stand.now_ms) is None


def test_a_replica_below_the_start_of_the_leaders_epoch_does_not_join_though_it_reaches_the_watermark(stand):
    stand.elect(1)
    stand.append(1, b"a")
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    stand.append(1, b"b")
    stand.fetch(2, 1)
    leader = stand.elect(2, isr=(2,), tell=(2, 3))
    assert leader.log.end_offset == 2
    leader.high_watermark = 1
    position = stand.at[3].fetch_position()
    leader.read_for_replica(3, 103, position.offset, position.last_epoch, 1, 0, False, stand.now_ms)
    assert leader.propose_isr_change(stand.now_ms) is None
    stand.catch_up(3, 2)
    assert leader.propose_isr_change(stand.now_ms).isr_ids == (2, 3)


def test_after_a_refusal_all_is_as_before(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.catch_up(3, 1)
    proposal = leader.propose_isr_change(stand.now_ms)
    leader.on_alter_partition_response(proposal, Error.INELIGIBLE_REPLICA)
    stand.append(1, b"a")
    stand.catch_up(2, 1)
    assert leader.high_watermark == 1


def test_the_watermark_does_not_wait_for_a_replica_that_was_refused_and_fetches_on(stand):
    """A broker that stops in an orderly way fetches to its end; once gone it would hold up the watermark for long."""
    leader = stand.elect(1, isr=(1, 2))
    stand.catch_up(3, 1)
    leader.on_alter_partition_response(leader.propose_isr_change(stand.now_ms), Error.INELIGIBLE_REPLICA)
    stand.now_ms += 100
    stand.catch_up(3, 1)
    stand.append(1, b"a")
    stand.now_ms += 2_000
    stand.catch_up(2, 1)
    assert leader.high_watermark == 1


def test_while_the_fate_of_a_proposal_is_unknown_it_counts(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.catch_up(3, 1)
    proposal = leader.propose_isr_change(stand.now_ms)
    leader.on_alter_partition_response(proposal, Error.INVALID_UPDATE_VERSION)
    stand.append(1, b"a")
    stand.catch_up(2, 1)
    assert leader.high_watermark == 0
    assert leader.is_pending_proposal(proposal)
    stand.now_ms += 2 * LAG_MS
    stand.catch_up(2, 1)
    stand.change_isr(1, (1, 2))
    assert leader.high_watermark == 1
    assert not leader.is_pending_proposal(proposal)


def test_the_same_role_again_does_not_end_a_proposal(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.catch_up(3, 1)
    proposal = leader.propose_isr_change(stand.now_ms)
    leader.apply_state(leader.state._replace(eligible_leader_replicas=(9,)), stand.now_ms)
    assert leader.is_pending_proposal(proposal)


def test_an_answer_of_an_earlier_reign_is_ignored(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.catch_up(3, 1)
    proposal = leader.propose_isr_change(stand.now_ms)
    stand.elect(1, isr=(1, 2))
    leader.on_alter_partition_response(proposal, Error.NONE, 0, (1, 2, 3), 99)
    assert leader.isr == (1, 2)


def test_the_watermark_does_not_wait_for_a_replica_that_the_controller_has_removed(stand):
    leader = stand.elect(1)
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    stand.change_isr(1, (1, 2))
    stand.append(1, b"a")
    stand.catch_up(2, 1)
    assert leader.high_watermark == 1


def test_the_watermark_does_not_wait_for_a_replica_that_fetched_on_and_then_died(stand):
    leader = stand.elect(1)
    stand.fetch(2, 1)
    stand.change_isr(1, (1, 2))
    stand.fetch(3, 1)  # it is about to stop, but not yet
    stand.fetch(3, 1)
    leader.reset_follower(3)
    stand.append(1, b"a")
    stand.fetch(2, 1)
    stand.fetch(2, 1)
    assert leader.high_watermark == 1
    assert leader.propose_isr_change(stand.now_ms, 101) is None


def test_a_leader_after_an_unclean_election_reports_its_recovery(stand):
    leader = stand.elect(1, isr=(1,))
    leader.apply_state(leader.state._replace(is_recovering=True, partition_epoch=50), stand.now_ms)
    proposal = leader.propose_isr_change(stand.now_ms)
    assert (proposal.isr_ids, proposal.is_recovering) == ((1,), False)
    leader.on_alter_partition_response(proposal, Error.NONE, stand.epoch, (1,), 51)
    assert leader.propose_isr_change(stand.now_ms) is None


# ---- who may fetch


def test_fetches_of_another_leader_epoch_are_refused(stand):
    leader = stand.elect(1)
    stand.elect(1, tell=(1,))
    assert refused(stand.ask, 2, 1) is Error.FENCED_LEADER_EPOCH
    arguments = (2, 102, 0, -1, 9, 100, True, stand.now_ms)
    assert refused(leader.read_for_replica, *arguments) is Error.UNKNOWN_LEADER_EPOCH
    assert refused(stand.at[3].read_for_replica, *arguments) is Error.NOT_LEADER_OR_FOLLOWER


def test_only_replicas_of_the_assignment_count(stand):
    leader = stand.elect(1)
    stand.append(1, b"a")
    arguments = (104, 1, -1, 0, 100, True, stand.now_ms)
    assert refused(leader.read_for_replica, 4, *arguments) is Error.UNKNOWN_LEADER_EPOCH
    arguments = (104, 1, -1, -1, 100, True, stand.now_ms)
    assert refused(leader.read_for_replica, 4, *arguments) is Error.NOT_LEADER_OR_FOLLOWER
    assert leader.high_watermark == 0


def test_a_partition_with_one_replica_has_no_followers(make):
    stand = make(1)
    leader = stand.elect(1)
    arguments = (2, 102, 0, -1, -1, 100, True, stand.now_ms)
    assert refused(leader.read_for_replica, *arguments) is Error.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_of_an_earlier_life_of_the_broker_moves_nothing(stand):
    leader = stand.elect(1)
    stand.append(1, b"a")
    stand.catch_up(3, 1)
    stand.broker_epochs[2] = 500
    stand.ask(2, 1)
    stand.append(1, b"b")
    arguments = (2, 102, 1, -1, 0, 100, True, stand.now_ms)
    assert refused(leader.read_for_replica, *arguments) is Error.NOT_LEADER_OR_FOLLOWER
    assert leader.high_watermark == 0


def test_a_fetch_that_reads_again_after_its_wait_does_not_count_twice(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.catch_up(2, 1)
    stand.append(1, b"a")
    stand.ask(2, 1)
    stand.now_ms += 2 * LAG_MS
    leader.read_for_replica(2, 102, 0, -1, 0, 100, True, stand.now_ms, -1, False)
    assert leader.propose_isr_change(stand.now_ms).isr_ids == (1,)


# ---- truncation


def test_a_follower_cuts_what_its_new_leader_never_had_and_keeps_what_is_committed(stand):
    stand.elect(1)
    stand.append(1, b"a", b"b")
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    stand.append(1, b"lost")
    leader = stand.elect(2, isr=(2, 3))
    stand.append(2, b"new")
    assert stand.fetch(1, 2).diverging == (0, 2)
    stand.catch_up(1, 2)
    assert stand.contents(1) == stand.contents(2)
    assert leader.log.end_offset == stand.at[1].log.end_offset == 3


def test_committed_records_past_a_followers_watermark_survive_a_restart_and_an_election(stand):
    """KIP-101: a follower that cuts to its own high watermark, and then leads, loses what was acknowledged."""
    stand.elect(1)
    stand.append(1, b"a")
    for follower in (2, 3):
        stand.catch_up(follower, 1)
        stand.catch_up(follower, 1)
    stand.append(1, b"b")
    for follower in (2, 3):
        stand.fetch(follower, 1)
        stand.ask(follower, 1)
    assert stand.at[1].high_watermark == 2
    assert stand.at[2].high_watermark == 1
    stand.elect(1, tell=(1, 2))
    stand.fetch(2, 1)
    stand.elect(2, isr=(2, 3))
    assert stand.at[2].log.end_offset == 2


def test_logs_that_parted_twice_find_their_way_back(stand):
    """KIP-279: two fast fail-overs, after which both have records of epochs that the other one does not know."""
    stand.elect(1)
    stand.append(1, b"common")
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    stand.append(1, b"only 1 of epoch 0")
    stand.elect(2, isr=(2, 3), tell=(2,))
    stand.append(2, b"only 2 of epoch 1", b"and more")
    stand.elect(1, isr=(1,), tell=(1,))
    stand.append(1, b"only 1 of epoch 2")
    stand.elect(2, isr=(2, 3))
    stand.append(2, b"only 2 of epoch 3")
    for follower in (1, 3):
        for _ in range(5):
            stand.fetch(follower, 2)
    assert stand.contents(1) == stand.contents(2) == stand.contents(3)


def test_a_new_leader_without_records_of_its_own_epoch_reports_the_divergence(stand):
    stand.elect(1)
    stand.append(1, b"a")
    stand.catch_up(2, 1)
    stand.elect(1, tell=(1,))
    stand.append(1, b"of an epoch that 2 does not know")
    stand.elect(2, isr=(2, 3))
    assert stand.fetch(1, 2).diverging == (0, 1)
    assert stand.at[1].log.end_offset == 1


def test_a_follower_of_an_empty_leader_drops_everything(stand):
    stand.elect(1)
    stand.append(1, b"a")
    stand.elect(2, isr=(2,))
    assert stand.fetch(1, 2).diverging == (0, 0)
    assert stand.at[1].log.end_offset == 0


def test_truncation_takes_producers_and_epochs_along(stand):
    stand.elect(1)
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    stand.at[1].append(batch(b"a", **options), False, NOW_MS)
    stand.catch_up(2, 1)
    stand.elect(1, tell=(1,))
    stand.at[1].append(batch(b"b", **(options | {"base_sequence": 1})), False, NOW_MS)
    leader = stand.elect(2, isr=(2, 3))
    stand.fetch(1, 2)
    stand.elect(1, isr=(1,))
    assert stand.at[1].log.epochs.entries == [(0, 0)]
    again = batch(b"b", **(options | {"base_sequence": 1}))
    assert not stand.at[1].append(again, False, NOW_MS).is_duplicate
    assert leader.log.end_offset == 1


def test_followers_know_the_producers_of_their_leader(stand):
    stand.elect(1)
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    stand.at[1].append(batch(b"a", **options), False, NOW_MS)
    stand.catch_up(2, 1)
    stand.elect(2, isr=(2, 3))
    assert stand.at[2].append(batch(b"a", **options), False, NOW_MS).is_duplicate


def test_a_late_answer_of_an_earlier_leader_is_not_taken(stand):
    stand.elect(1)
    stand.append(1, b"a")
    position, read, records = stand.ask(2, 1)
    stand.elect(3, isr=(2, 3))
    replica = stand.at[2]
    assert not replica.append_fetched(position, records, read.high_watermark, 0)
    assert not replica.truncate_on_divergence(position, 0, 0)
    assert not replica.restart_at(position, 10)
    assert replica.log.end_offset == 0


def test_an_answer_is_taken_once(stand):
    stand.elect(1)
    stand.append(1, b"a")
    position, read, records = stand.ask(2, 1)
    assert stand.at[2].append_fetched(position, records, read.high_watermark, 0)
    assert not stand.at[2].append_fetched(position, records, read.high_watermark, 0)


def test_a_damaged_batch_is_not_taken_but_those_before_it_are(stand):
    stand.elect(1)
    stand.append(1, b"a")
    stand.append(1, b"b")
    position, _, records = stand.ask(2, 1)
    damaged = bytearray(records)
    damaged[-1] ^= 1
    replica = stand.at[2]
    assert refused(replica.append_fetched, position, memoryview(damaged), 0, 0) is Error.CORRUPT_MESSAGE
    assert replica.log.end_offset == 1
    stand.catch_up(2, 1)
    assert stand.contents(1) == stand.contents(2)


# ---- the start of the log


def test_followers_move_the_start_of_their_log_with_the_leader_and_deletion_waits_for_those_in_sync(stand):
    leader = stand.elect(1, isr=(1, 2))
    for value in (b"a", b"b", b"c"):
        stand.append(1, value)
    stand.catch_up(2, 1)
    deleted = []
    assert leader.delete_records(2, NOW_MS) == 2
    leader.wait_for_deletion(2, WaitingProduce(1, lambda: deleted.append(True)))
    assert leader.low_watermark == 0
    stand.catch_up(2, 1)
    assert stand.at[2].log.log_start_offset == 2
    assert not deleted
    stand.fetch(2, 1)
    assert leader.low_watermark == 2
    assert deleted


def test_a_deletion_wakes_the_followers_that_wait(stand):
    leader = stand.elect(1)
    stand.append(1, b"a")
    for follower in (2, 3):
        stand.catch_up(follower, 1)
    woken = []
    leader.wait_for_appends(WaitingFetch(1, lambda: woken.append(True)))
    leader.delete_records(1, NOW_MS)
    assert woken


def test_a_follower_that_ends_before_the_leader_starts_begins_anew_there(stand):
    leader = stand.elect(1, isr=(1, 2))
    for value in (b"a", b"b", b"c"):
        stand.append(1, value)
    stand.catch_up(2, 1)
    leader.delete_records(2, NOW_MS)
    assert refused(stand.ask, 3, 1) is Error.OFFSET_OUT_OF_RANGE
    replica = stand.at[3]
    assert replica.restart_at(replica.fetch_position(), 2)
    stand.catch_up(3, 1)
    assert (replica.log.log_start_offset, replica.log.end_offset) == (2, 3)


def test_a_log_that_starts_inside_of_a_batch_is_copied_with_the_whole_batch(stand):
    leader = stand.elect(1, isr=(1, 2))
    stand.append(1, b"a", b"b", b"c", b"d")
    stand.catch_up(2, 1)
    leader.delete_records(2, NOW_MS)
    replica = stand.at[3]
    assert replica.restart_at(replica.fetch_position(), 2)
    stand.catch_up(3, 1)
    assert (replica.log.log_start_offset, replica.log.end_offset) == (2, 4)
    assert stand.contents(3) == stand.contents(1)


# ---- consumers


def test_a_follower_serves_consumers_up_to_its_own_high_watermark(stand):
    stand.elect(1)
    stand.append(1, b"a")
    stand.append(1, b"b")
    for max_bytes in (1, 1000):
        for follower in (2, 3):
            stand.fetch(follower, 1, max_bytes)
    stand.fetch(2, 1)
    replica = stand.at[2]
    assert (replica.high_watermark, replica.log.end_offset) == (1, 2)
    found = replica.read(0, 1000, True, False)
    assert found.length < replica.log.size_bytes
    found.release()
    assert replica.read(1, 1000, True, False) is None
    assert refused(replica.read, 2, 1000, True, False) is Error.OFFSET_NOT_AVAILABLE


def test_a_new_leader_does_not_report_the_end_before_it_knows_it(stand):
    stand.elect(1)
    stand.append(1, b"a")
    for follower in (2, 3):
        stand.fetch(follower, 1)
    leader = stand.elect(2, isr=(2, 3))
    assert refused(leader.require_known_high_watermark) is Error.OFFSET_NOT_AVAILABLE
    stand.catch_up(3, 2)
    leader.require_known_high_watermark()


def test_a_transaction_whose_marker_is_not_replicated_has_not_ended_for_readers(stand):
    leader = stand.elect(1, isr=(1, 2))
    options = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    leader.append(batch(b"a", base_sequence=0, **options), False, NOW_MS)
    stand.catch_up(2, 1)
    commit = Record(-1, NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")
    leader.append_as_coordinator(build_batch([commit], is_control=True, **options), NOW_MS)
    assert leader.high_watermark == 1
    assert leader.last_stable_offset == 0
    stand.catch_up(2, 1)
    assert leader.last_stable_offset == 2


def test_where_consumers_read_from_followers_these_hear_of_the_watermark_at_once(stand):
    leader = stand.elect(1)
    leader.notifies_followers_of_watermark = True
    stand.append(1, b"a")
    woken = []
    leader.wait_for_appends(WaitingFetch(1, lambda: woken.append(True)))
    stand.catch_up(2, 1)
    assert not woken
    stand.catch_up(3, 1)
    assert woken


# ---- damage


def flip(partition, offset, place=62):
    """One wrong bit in a stored batch, among its records or in its header."""
    segment = partition.log.segment_of(offset)
    position = segment.find(offset)[0] + place
    byte = os.pread(segment.open_descriptor(), 1, position)[0]
    os.pwrite(segment.open_descriptor(), bytes([byte ^ 1]), position)


def filled(stand):
    """Three replicas with the same four batches, all in sync."""
    leader = stand.elect(1)
    for value in (b"a", b"b", b"c", b"d"):
        stand.append(1, value, value)
    for _ in range(2):
        for follower in (2, 3):
            stand.catch_up(follower, 1)
    return leader


@pytest.mark.parametrize("place", [62, 7, 11, 16, 26])  # a record, offset, length, magic, number of offsets
def test_a_damaged_leader_reports_it_leads_until_others_do_and_is_repaired(stand, place):
    leader = filled(stand)
    told = []
    leader.on_damage = lambda partition: told.append(partition.damage_offset)
    flip(leader, 5, place)
    leader.mark_damaged(5)
    leader.mark_damaged(7)
    assert told == [4]  # where its batch begins
    assert leader.is_leader
    stand.elect(2, isr=(2, 3))
    assert told == [4, -1]
    assert leader.log.end_offset == 4
    stand.catch_up(1, 2)
    assert stand.contents(1) == stand.contents(2)


def test_a_replica_that_was_found_damaged_does_not_begin_to_lead_while_others_could(stand):
    stand.at[1].damage_offset = 0
    replica = stand.elect(1)
    assert (replica.leader_id, replica.is_leader) == (-1, False)
    assert refused(replica.append, batch(b"a"), False, NOW_MS) is Error.NOT_LEADER_OR_FOLLOWER
    stand.elect(2, isr=(2, 3))
    assert replica.damage_offset == -1
    stand.elect(1, isr=(1, 2, 3))
    assert replica.is_leader


def test_the_last_one_in_sync_leads_with_what_is_left(stand):
    stand.at[1].damage_offset = 0
    assert stand.elect(1, isr=(1,)).is_leader


def test_damage_that_cannot_be_repaired_is_not_reported(make):
    stand = make(1)
    leader = stand.elect(1)
    stand.append(1, b"a")
    leader.mark_damaged(0)
    assert leader.damage_offset == -1


def test_a_damaged_follower_is_repaired_when_it_is_out_of_sync(stand):
    filled(stand)
    replica = stand.at[3]
    flip(replica, 2)
    replica.mark_damaged(3)
    assert (replica.damage_offset, replica.log.end_offset) == (2, 8)
    stand.change_isr(1, (1, 2))
    assert replica.log.end_offset == 2
    stand.catch_up(3, 1)
    assert stand.contents(3) == stand.contents(1)


def test_records_that_a_follower_fetches_repeatedly_are_checked(stand):
    leader = filled(stand)
    flip(leader, 5)
    stand.at[3].log.truncate_to(4)
    for _ in range(4):
        _, read, _ = stand.ask(3, 1)
    found = leader.log.read(4, 1000, 8, True)
    assert needs_check(found)
    found.release()
    assert read.high_watermark == 8


# ---- a full disk


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders on which there is no room: writes to what lies in them fail."""
    folders: list[str] = []
    real = files.write_at

    def write_at(descriptor: int, data: memoryview, position: int) -> int:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if any(path.startswith(folder) for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, position)

    monkeypatch.setattr(files, "write_at", write_at)
    return folders


def test_a_leader_on_a_full_disk_requests_another_one_while_others_are_in_sync(stand, full_disk, tmp_path):
    leader = stand.elect(1)
    told = []
    leader.on_disk_full_change = lambda partition: told.append(partition.is_disk_full)
    full_disk.append(str(tmp_path / "0" / "1"))
    for _ in range(3):
        with pytest.raises(KafkaError) as refused:
            leader.append(batch(b"a"), True, NOW_MS)
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert told == [True], "once is enough"

    stand.elect(2, isr=(2, 3))
    assert leader.is_disk_full, "it stays out of the ISR until there is room"
    full_disk.clear()
    leader.mark_disk_available()
    assert told == [True, False]


def test_a_follower_on_a_full_disk_reports_it_before_the_high_watermark_waits(stand, full_disk, tmp_path):
    leader = stand.elect(1)
    told = []
    stand.at[2].on_disk_full_change = lambda partition: told.append(partition.is_disk_full)
    full_disk.append(str(tmp_path / "0" / "2"))
    leader.append(batch(b"a"), True, NOW_MS)
    assert refused(stand.fetch, 2, 1) is Error.KAFKA_STORAGE_ERROR
    assert told == [True]


def test_who_is_alone_in_sync_keeps_its_leadership_on_a_full_disk(stand, full_disk, tmp_path):
    leader = stand.elect(1, isr=(1,))
    told = []
    leader.on_disk_full_change = lambda partition: told.append(partition.is_disk_full)
    full_disk.append(str(tmp_path / "0" / "1"))
    with pytest.raises(KafkaError):
        leader.append(batch(b"a"), True, NOW_MS)
    assert told == []
    assert leader.is_leader
    full_disk.clear()
    leader.append(batch(b"a"), False, NOW_MS)


@pytest.mark.parametrize(("leader", "isr"), [(-1, (1, 2)), (1, (1,))], ids=["no leader", "the others are gone"])
def test_a_replica_on_a_full_disk_leads_when_there_is_no_other(stand, full_disk, tmp_path, leader, isr):
    partition = stand.elect(1)
    told = []
    partition.on_disk_full_change = lambda partition: told.append(partition.is_disk_full)
    full_disk.append(str(tmp_path / "0" / "1"))
    with pytest.raises(KafkaError):
        partition.append(batch(b"a"), True, NOW_MS)
    stand.elect(2, isr=(2, 3))

    stand.epoch += 1
    partition.apply_state(
        PartitionState(leader, stand.epoch, isr, stand.replicas, stand.partition_epoch + 1), stand.now_ms
    )

    assert told == [True, False]
