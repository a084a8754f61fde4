"""A partition of a single broker on a real log in a temporary folder."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.replication.stand import TOPIC_ID, Stand, batch

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.replication.leader_state import LeaderState, LogOffsets, PartitionState
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingFetch, WaitingProduce
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000
ME = 1


@pytest.fixture
def make(tmp_path):
    made = []

    def make_partition(in_sync=(ME,), **settings):
        name = TopicPartition("t", len(made))
        folder = tmp_path / str(name)
        log = create_log(name, str(folder), TopicSettings(**settings), DescriptorPool(64), None, NOW_MS, 86_400_000)
        partition = Partition(name, UUID(int=7), log, ME)
        partition.apply_state(PartitionState(ME, 0, in_sync, in_sync), 0)
        made.append(partition)
        return partition

    yield make_partition
    for partition in made:
        partition.log.close_files()


def waiting(missing=1):
    woken = []
    return WaitingFetch(missing, lambda: woken.append(True)), woken


def test_alone_in_the_isr_the_high_watermark_is_the_end_of_the_log(make):
    partition = make()
    appended = partition.append(batch(b"a", b"b"), True, NOW_MS)
    assert (appended.base_offset, appended.last_offset) == (0, 1)
    assert partition.high_watermark == partition.log.end_offset == 2


def test_with_followers_records_stay_invisible_until_they_have_them(make):
    partition = make(in_sync=(ME, 2))
    partition.append(batch(b"a"), True, NOW_MS)
    assert partition.high_watermark == 0
    assert partition.read(0, 1000, True, False) is None


def test_acks_all_is_refused_when_too_few_replicas_are_in_sync(make):
    partition = make(min_insync_replicas=2)
    partition.apply_state(PartitionState(ME, 0, (ME,), (ME, 2, 3), 1), 0)
    with pytest.raises(KafkaError) as caught:
        partition.append(batch(b"a"), True, NOW_MS)
    assert caught.value.error is Error.NOT_ENOUGH_REPLICAS
    assert partition.append(batch(b"a"), False, NOW_MS).base_offset == 0


def test_no_more_replicas_must_be_in_sync_than_there_are(make):
    partition = make(min_insync_replicas=2)
    partition.apply_state(PartitionState(ME, 0, (ME,), (ME,), 1), 0)
    assert partition.append(batch(b"a"), True, NOW_MS).base_offset == 0


def test_only_the_leader_appends(make):
    partition = make()
    partition.apply_state(PartitionState(2, 1, (2,), (2,)), 0)
    with pytest.raises(KafkaError) as caught:
        partition.append(batch(b"a"), False, NOW_MS)
    assert caught.value.error is Error.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("known", "error"), [(4, Error.FENCED_LEADER_EPOCH), (6, Error.UNKNOWN_LEADER_EPOCH), (5, None), (-1, None)]
)
def test_a_client_with_another_leader_epoch_gets_an_error(make, known, error):
    partition = make()
    partition.apply_state(PartitionState(ME, 5, (ME,), (ME,)), 0)
    if error is None:
        partition.require_leader(known)
        return
    with pytest.raises(KafkaError) as caught:
        partition.require_leader(known)
    assert caught.value.error is error


def test_an_older_decision_of_a_controller_is_ignored(make):
    partition = make()
    partition.apply_state(PartitionState(ME, 5, (ME,), (ME,)), 0)
    partition.apply_state(PartitionState(2, 4, (2,), (2,)), 0)
    assert partition.is_leader


def test_an_append_wakes_the_fetches_that_wait(make):
    partition = make()
    fetch, woken = waiting()
    partition.wait_for_records(fetch)
    partition.append(batch(b"a"), False, NOW_MS)
    assert woken == [True]


def test_a_fetch_waits_until_enough_bytes_came(make):
    partition = make()
    fetch, woken = waiting(missing=100)
    partition.wait_for_records(fetch)
    partition.append(batch(b"a"), False, NOW_MS)
    assert woken == []
    partition.append(batch(b"b"), False, NOW_MS)
    assert woken == [True]


def test_a_forgotten_fetch_is_not_woken(make):
    partition = make()
    fetch, woken = waiting()
    partition.wait_for_records(fetch)
    partition.remove_waiter(fetch)
    partition.append(batch(b"a"), False, NOW_MS)
    assert woken == []


def test_waiting_requests_complete_when_the_partition_closes(make):
    partition = make()
    fetch, woken = waiting()
    partition.wait_for_records(fetch)
    partition.close()
    assert woken == [True]
    with pytest.raises(KafkaError):
        partition.require_leader(-1)


def test_flush_messages_holds_records_back_until_they_are_on_disk(make):
    partition = make(flush_messages=1)
    flushes = []
    partition.flush = flushes.append
    partition.append(batch(b"a"), True, NOW_MS)
    assert flushes == [partition]
    assert not partition.is_replicated(0)
    answered = []
    partition.wait_for_replication(0, WaitingProduce(1, lambda: answered.append(True)))
    partition.log.flush()
    partition.on_flushed()
    assert answered == [True]
    assert partition.high_watermark == 1
    assert not partition.is_flushing


def test_records_that_came_during_a_flush_wait_for_the_next_one(make):
    partition = make(flush_messages=1)
    flushes = []
    partition.flush = flushes.append
    partition.append(batch(b"a"), True, NOW_MS)
    job = partition.log.begin_flush()
    partition.append(batch(b"b"), True, NOW_MS)
    job.run()
    partition.log.end_flush(job)
    partition.on_flushed()
    assert partition.high_watermark == 1
    assert len(flushes) == 2
    partition.log.flush()
    partition.on_flushed()
    assert partition.high_watermark == 2


MAX_BYTES = 1 << 20
SMALL = 150  # two batches of the tests below fit into such a segment


@pytest.fixture
def stand(tmp_path):
    stand = Stand(tmp_path, segment_bytes=SMALL)
    stand.elect(1)
    for number in range(8):
        stand.append(1, b"%d" % number)
    for _ in range(2):
        for follower in (2, 3):
            stand.catch_up(follower, 1)
    yield stand
    stand.close()


def lose_segment(partition, place):
    """The log after one of its files was removed, opened again."""
    segments = partition.log.segments
    assert len(segments) > 2
    lost = segments.pop(place)
    if place:
        segments[place - 1].next_base_offset = segments[place].base_offset
    return lost.base_offset


def error_of(call, *arguments):
    with pytest.raises(KafkaError) as refusal:
        call(*arguments)
    return refusal.value.error


def test_a_reader_is_not_led_over_a_hole(stand):
    leader = stand.at[1]
    offset = lose_segment(leader, 1)
    assert error_of(leader.read, offset, MAX_BYTES, True, False) is Error.CORRUPT_MESSAGE
    before = leader.read(0, MAX_BYTES, True, False)
    assert before is not None
    before.release()


def test_a_follower_is_not_led_over_a_hole(stand):
    offset = lose_segment(stand.at[1], 1)
    stand.at[3].log.truncate_to(offset)
    assert error_of(stand.ask, 3, 1) is Error.CORRUPT_MESSAGE


def test_a_hole_is_repaired_from_other_replicas(stand):
    leader = stand.at[1]
    leader.mark_damaged(lose_segment(leader, 1))
    stand.elect(2, isr=(2, 3))
    stand.catch_up(1, 2)
    assert stand.contents(1) == stand.contents(2)


def test_what_only_one_has_is_read_as_it_is(stand):
    leader = stand.at[1]
    offset = lose_segment(leader, 1)
    stand.change_isr(1, (1,))
    found = leader.read(offset, MAX_BYTES, True, False)
    assert found is not None
    found.release()


def test_gaps_of_a_compacted_log_are_no_holes(stand):
    leader = stand.at[1]
    leader.log.settings = TopicSettings(cleanup_policy=frozenset({"compact"}))
    found = leader.read(lose_segment(leader, 1), MAX_BYTES, True, False)
    assert found is not None
    found.release()


def test_a_log_that_ends_within_a_batch_of_its_leader_gives_way(stand):
    """Only damage makes such a log. Who counts as in sync says so first."""
    stand.append(1, b"x", b"y", b"z")
    follower = stand.at[3]
    follower.append_fetched(follower.fetch_position(), at_offset(batch(b"wrong"), 8), 0, 0)
    told = []
    follower.on_damage = lambda partition: told.append(partition.damage_offset)
    position, read, records = stand.ask(3, 1)
    assert error_of(follower.append_fetched, position, records, read.high_watermark, 0) is Error.CORRUPT_MESSAGE
    assert told == [8]
    stand.change_isr(1, (1, 2))
    stand.catch_up(3, 1)
    assert stand.contents(3) == stand.contents(1)


def test_outside_of_the_isr_it_gives_way_at_once(stand):
    stand.append(1, b"x", b"y", b"z")
    stand.change_isr(1, (1, 2))
    follower = stand.at[3]
    follower.append_fetched(follower.fetch_position(), at_offset(batch(b"wrong"), 8), 0, 0)
    stand.catch_up(3, 1)
    assert stand.contents(3) == stand.contents(1)


@pytest.mark.parametrize("has_older", [True, False])
def test_a_log_that_ends_with_an_unknown_epoch_is_truncated_there(stand, has_older):
    """The checksum does not cover the epoch: recovery may end with a batch that lies about it."""
    stand.append(1, b"x")
    stand.change_isr(1, (1, 2))
    follower = stand.at[3]
    _, _, records = stand.ask(3, 1)
    damaged = bytearray(records)
    damaged[12:16] = (1 << 20).to_bytes(4, "big")
    if not has_older:
        follower.log.truncate_fully_and_start_at(8)
    follower.append_fetched(follower.fetch_position(), memoryview(damaged), 0, 0)
    assert follower.log.latest_epoch == 1 << 20
    _, read, _ = stand.ask(3, 1)
    assert read.diverging not in (None, (-1, -1)), "on the wire that would be nothing"
    stand.fetch(3, 1)
    assert follower.log.end_offset == 8
    stand.catch_up(3, 1)
    assert stand.contents(1).endswith(stand.contents(3)[-20:])
    assert follower.log.end_offset == 9


def at_offset(records, offset):
    records[:8] = offset.to_bytes(8, "big")
    return records


def test_a_log_without_its_beginning_is_copied_anew(stand):
    replica = stand.at[3]
    lose_segment(replica, 0)
    replica.log.log_start_offset = replica.log.segments[0].base_offset
    replica.damage_offset = 0
    role = replica.state
    replica.apply_state(
        PartitionState(-1, role.leader_epoch, (1, 2), role.replicas, role.partition_epoch + 1), stand.now_ms
    )
    assert replica.log.end_offset == 8, "without a leader it may be the last one that has anything"
    stand.partition_epoch += 1
    stand.elect(1, isr=(1, 2))
    assert (replica.log.log_start_offset, replica.log.end_offset) == (0, 0)
    stand.catch_up(3, 1)
    assert stand.contents(3) == stand.contents(1)


ROLE = PartitionState(1, 5, (1, 2), (1, 2, 3), partition_epoch=7)


def leading() -> LeaderState:
    return LeaderState(1, ROLE, 0, 10_000, 0)


def test_no_follower_has_more_than_its_leader() -> None:
    led = leading()
    with pytest.raises(AssertionError, match="has 11 of 10"):
        led.update_fetch_state(led.followers[2], -1, 11, 0, 10, 0)


def test_a_replica_that_is_none_is_not_noted() -> None:
    led = leading()
    stranger = leading().followers[2]
    with pytest.raises(AssertionError, match="is none of"):
        led.update_fetch_state(stranger, -1, 5, 0, 10, 0)


def test_a_leader_never_proposes_to_do_without_itself() -> None:
    led = LeaderState(9, ROLE, 0, 10_000, 0)
    with pytest.raises(AssertionError, match="leaves itself out"):
        led.propose_isr(TOPIC_ID, "t", 0, -1, LogOffsets(10, 0), 20_000)
    assert led.pending_proposal is None


def test_an_older_state_of_the_partition_is_not_taken() -> None:
    led = leading()
    led.update_fetch_state(led.followers[3], -1, 10, 0, 10, 0)
    proposal = led.propose_isr(TOPIC_ID, "t", 0, -1, LogOffsets(10, 0), 0)
    assert proposal is not None
    assert not led.apply_response(proposal, Error.NONE, 5, (1, 2, 3), 6)
    assert led.committed_isr == (1, 2)
    assert led.maximal_isr == {1, 2, 3}


def test_nothing_is_committed_that_is_not_there(tmp_path: Path) -> None:
    stand = Stand(tmp_path, 2)
    partition = stand.elect(1)
    stand.append(1, b"a")
    with pytest.raises(AssertionError, match="cannot have committed 2, it ends at 1"):
        partition._set_high_watermark(2)
    assert partition.high_watermark == 0
    partition.high_watermark = 2
    with pytest.raises(AssertionError, match="has committed more than it has"):
        partition.read(0, 1000, True, False)
    stand.close()
