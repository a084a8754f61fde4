"""What a follower asks for, request by request."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.broker.replicas.fetch_plan import FOREVER_MS, FetchPlan
from ottla.replication.following import FetchPosition

TOPIC_ID = UUID(int=1)


def partition(index, offset=0, topic_id=TOPIC_ID):
    """Stands for a Partition: a place in the log, and who leads."""
    made = SimpleNamespace(
        topic_id=topic_id,
        name=TopicPartition("t", index),
        offset=offset,
        leader_epoch=0,
        log=SimpleNamespace(log_start_offset=0),
    )
    made.fetch_position = lambda: FetchPosition(made.offset, -1, made.leader_epoch)
    return made


@pytest.fixture
def plan():
    made = FetchPlan()
    for index in range(3):
        made.add(partition(index))
    return made


def begin(plan):
    """Past the first request, which opens a session."""
    ask = plan.next(0)
    plan.note_session(ask, 77)
    return ask


def asked(ask):
    return sorted(index for _, index in ask.wanted)


def test_the_first_request_names_all_partitions_and_asks_for_a_session(plan):
    ask = begin(plan)
    assert (ask.session_id, ask.session_epoch) == (0, 0)
    assert asked(ask) == [0, 1, 2]


def test_later_requests_name_only_what_has_changed(plan):
    begin(plan)
    ask = plan.next(0)
    assert (ask.session_id, ask.session_epoch, ask.wanted) == (77, 1, {})
    followed = plan.followed[TOPIC_ID, 1]
    followed.partition.offset = 10
    plan.note_progress(followed)
    ask = plan.next(0)
    assert ask.session_epoch == 2
    assert ask.wanted == {(TOPIC_ID, 1): FetchPosition(10, -1, 0)}


def test_without_a_session_every_request_names_all(plan):
    plan.note_session(plan.next(0), 0)
    assert asked(plan.next(0)) == [0, 1, 2]


def test_after_a_lost_session_all_are_named_again(plan):
    begin(plan)
    plan.next(0)
    plan.start_anew()
    ask = plan.next(0)
    assert (ask.session_id, ask.session_epoch, asked(ask)) == (0, 0, [0, 1, 2])


def test_a_partition_that_failed_leaves_the_session_and_comes_back(plan):
    begin(plan)
    delay_ms = plan.leave_out_after_failure(plan.followed[TOPIC_ID, 1], 1000, 0)
    ask = plan.next(0)
    assert (asked(ask), ask.forgotten) == ([], [(TOPIC_ID, 1)])
    assert plan.wakeup_ms() == delay_ms
    assert plan.next(delay_ms - 1).wanted == {}
    assert not plan.has_news(delay_ms - 1)
    assert plan.has_news(delay_ms)
    ask = plan.next(delay_ms)
    assert (asked(ask), ask.forgotten) == ([1], [])


def test_each_failure_makes_the_wait_longer_up_to_a_limit(plan):
    followed = plan.followed[TOPIC_ID, 0]
    delays = [plan.leave_out_after_failure(followed, 1000, 0) for _ in range(10)]
    assert delays[:3] == [20, 40, 80]
    assert delays[-1] == 1000


def test_a_new_role_ends_the_wait(plan):
    begin(plan)
    followed = plan.followed[TOPIC_ID, 1]
    plan.leave_out_after_failure(followed, 60_000, 0)
    plan.next(0)
    followed.partition.leader_epoch = 1
    plan.add(followed.partition)
    assert plan.next(0).wanted == {(TOPIC_ID, 1): FetchPosition(0, -1, 1)}
    assert followed.failures == 0


def test_when_all_wait_there_is_no_request(plan):
    begin(plan)
    for followed in plan.followed.values():
        plan.leave_out(followed)
    assert plan.next(10**9) is None
    assert plan.wakeup_ms() == FOREVER_MS
    plan.release((TOPIC_ID, 2))
    assert asked(plan.next(0)) == [2]


def test_a_removed_partition_is_forgotten_once(plan):
    begin(plan)
    plan.remove((TOPIC_ID, 0))
    assert plan.has_news(0)
    assert plan.next(0).forgotten == [(TOPIC_ID, 0)]
    assert plan.next(0).forgotten == []
    assert not plan.has_news(0)


def test_a_partition_that_was_removed_before_it_was_named_is_not_forgotten(plan):
    plan.remove((TOPIC_ID, 0))
    ask = begin(plan)
    assert (asked(ask), ask.forgotten) == ([1, 2], [])


def test_a_partition_that_comes_back_at_once_is_named_and_not_forgotten(plan):
    begin(plan)
    old = plan.followed[TOPIC_ID, 0].partition
    plan.remove((TOPIC_ID, 0))
    plan.add(old)
    ask = plan.next(0)
    assert (asked(ask), ask.forgotten) == ([0], [])


def test_progress_of_a_partition_that_waits_does_not_bring_it_back(plan):
    begin(plan)
    followed = plan.followed[TOPIC_ID, 0]
    plan.leave_out(followed)
    plan.note_progress(followed)
    assert plan.next(0).wanted == {}


def test_whose_records_are_on_their_way_is_not_sent_them_again_for_a_second_request(plan):
    begin(plan)
    behind, keeping_up, other = (plan.followed[TOPIC_ID, index] for index in range(3))
    behind.lag = 100
    plan.note_progress(behind)
    plan.note_progress(keeping_up)
    first = plan.next(0)
    plan.note_progress(other)
    second = plan.next(0, first)
    assert asked(second) == [2]
    assert second.forgotten == [behind.key]
    plan.take_back(first)
    third = plan.next(0)
    assert asked(third) == [0]
    assert third.forgotten == []


def test_who_waits_for_the_throttle_is_not_taken_back(plan):
    begin(plan)
    behind = plan.followed[TOPIC_ID, 0]
    behind.lag = 100
    plan.note_progress(behind)
    first = plan.next(0)
    plan.next(0, first)
    plan.leave_out(behind, 50)
    plan.take_back(first)
    assert asked(plan.next(0)) == []
    assert asked(plan.next(50)) == [0]
