"""Files of a replica that are gone or foreign: nobody is led over the hole, and the others give it back."""

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.topic_settings import TopicSettings
from ottla.replication.role import Role
from unit.replication.stand import Stand, batch

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
    """As a log would be opened after somebody has removed one of its files."""
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


def test_a_hole_is_mended_by_the_others(stand):
    leader = stand.at[1]
    leader.note_damage(lose_segment(leader, 1))
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
def test_a_log_that_ends_with_an_epoch_that_nobody_has_had_is_cut_there(stand, has_older):
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
    role = replica.role
    replica.take_role(Role(-1, role.leader_epoch, (1, 2), role.replicas, role.partition_epoch + 1), stand.now_ms)
    assert replica.log.end_offset == 8, "without a leader it may be the last one that has anything"
    stand.partition_epoch += 1
    stand.elect(1, isr=(1, 2))
    assert (replica.log.log_start_offset, replica.log.end_offset) == (0, 0)
    stand.catch_up(3, 1)
    assert stand.contents(3) == stand.contents(1)
