"""The requests of a follower, and the preferred read replica of a consumer."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.broker.replica_manager.fetch_plan import FOREVER_MS, FetchPlan
from ottla.broker.replica_manager.replica_selection import preferred_replica
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.replication.follower_rules import FetchPosition

TOPIC_ID = UUID(int=1)


def partition(index, offset=0, topic_id=TOPIC_ID):
    """A fake Partition with a fetch position and a leader epoch."""
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
    """Skip the first request, which opens a session."""
    ask = plan.next_request(0)
    plan.update_session(ask, 77)
    return ask


def asked(ask):
    return sorted(index for _, index in ask.wanted)


def test_the_first_request_names_all_partitions_and_opens_a_session(plan):
    ask = begin(plan)
    assert (ask.session_id, ask.session_epoch) == (0, 0)
    assert asked(ask) == [0, 1, 2]


def test_later_requests_name_only_changed_partitions(plan):
    begin(plan)
    ask = plan.next_request(0)
    assert (ask.session_id, ask.session_epoch, ask.wanted) == (77, 1, {})
    followed = plan.followed[TOPIC_ID, 1]
    followed.partition.offset = 10
    plan.request_again(followed)
    ask = plan.next_request(0)
    assert ask.session_epoch == 2
    assert ask.wanted == {(TOPIC_ID, 1): FetchPosition(10, -1, 0)}


def test_without_a_session_every_request_names_all_partitions(plan):
    plan.update_session(plan.next_request(0), 0)
    assert asked(plan.next_request(0)) == [0, 1, 2]


def test_after_a_lost_session_all_partitions_are_named_again(plan):
    begin(plan)
    plan.next_request(0)
    plan.reset_session()
    ask = plan.next_request(0)
    assert (ask.session_id, ask.session_epoch, asked(ask)) == (0, 0, [0, 1, 2])


def test_a_failed_partition_leaves_the_session_and_returns(plan):
    begin(plan)
    delay_ms = plan.delay_after_failure(plan.followed[TOPIC_ID, 1], 1000, 0)
    ask = plan.next_request(0)
    assert (asked(ask), ask.forgotten) == ([], [(TOPIC_ID, 1)])
    assert plan.wakeup_ms() == delay_ms
    assert plan.next_request(delay_ms - 1).wanted == {}
    assert not plan.has_changes(delay_ms - 1)
    assert plan.has_changes(delay_ms)
    ask = plan.next_request(delay_ms)
    assert (asked(ask), ask.forgotten) == ([1], [])


def test_each_failure_extends_the_delay_up_to_a_limit(plan):
    followed = plan.followed[TOPIC_ID, 0]
    delays = [plan.delay_after_failure(followed, 1000, 0) for _ in range(10)]
    assert delays[:3] == [20, 40, 80]
    assert delays[-1] == 1000


def test_a_new_role_ends_the_delay(plan):
    begin(plan)
    followed = plan.followed[TOPIC_ID, 1]
    plan.delay_after_failure(followed, 60_000, 0)
    plan.next_request(0)
    followed.partition.leader_epoch = 1
    plan.add(followed.partition)
    assert plan.next_request(0).wanted == {(TOPIC_ID, 1): FetchPosition(0, -1, 1)}
    assert followed.failures == 0


def test_when_all_partitions_are_delayed_there_is_no_request(plan):
    begin(plan)
    for followed in plan.followed.values():
        plan.delay(followed)
    assert plan.next_request(10**9) is None
    assert plan.wakeup_ms() == FOREVER_MS
    plan.release((TOPIC_ID, 2))
    assert asked(plan.next_request(0)) == [2]


def test_a_removed_partition_is_forgotten_once(plan):
    begin(plan)
    plan.remove((TOPIC_ID, 0))
    assert plan.has_changes(0)
    assert plan.next_request(0).forgotten == [(TOPIC_ID, 0)]
    assert plan.next_request(0).forgotten == []
    assert not plan.has_changes(0)


def test_a_partition_that_was_removed_before_it_was_named_is_not_forgotten(plan):
    plan.remove((TOPIC_ID, 0))
    ask = begin(plan)
    assert (asked(ask), ask.forgotten) == ([1, 2], [])


def test_a_partition_that_comes_back_at_once_is_named_and_not_forgotten(plan):
    begin(plan)
    old = plan.followed[TOPIC_ID, 0].partition
    plan.remove((TOPIC_ID, 0))
    plan.add(old)
    ask = plan.next_request(0)
    assert (asked(ask), ask.forgotten) == ([0], [])


def test_progress_of_a_delayed_partition_does_not_end_the_delay(plan):
    begin(plan)
    followed = plan.followed[TOPIC_ID, 0]
    plan.delay(followed)
    plan.request_again(followed)
    assert plan.next_request(0).wanted == {}


def test_records_in_flight_are_not_requested_again_by_a_second_request(plan):
    begin(plan)
    behind, keeping_up, other = (plan.followed[TOPIC_ID, index] for index in range(3))
    behind.lag = 100
    plan.request_again(behind)
    plan.request_again(keeping_up)
    first = plan.next_request(0)
    plan.request_again(other)
    second = plan.next_request(0, first)
    assert asked(second) == [2]
    assert second.forgotten == [behind.key]
    plan.restore_in_flight(first)
    third = plan.next_request(0)
    assert asked(third) == [0]
    assert third.forgotten == []


def test_a_throttled_partition_stays_delayed(plan):
    begin(plan)
    behind = plan.followed[TOPIC_ID, 0]
    behind.lag = 100
    plan.request_again(behind)
    first = plan.next_request(0)
    plan.next_request(0, first)
    plan.delay(behind, 50)
    plan.restore_in_flight(first)
    assert asked(plan.next_request(0)) == []
    assert asked(plan.next_request(50)) == [0]


# ---- preferred read replica (KIP-392)

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def image(racks=RACKS, listeners=("PLAINTEXT",)):
    endpoints = {name: Endpoint("host", 9092) for name in listeners}
    return MetadataImage(brokers={id_: BrokerImage(id_, endpoints, rack, 1) for id_, rack in racks.items()})


def replica_partition(ends=None, in_sync=(1, 2, 3, 4), start=0):
    """Broker 1 leads; `ends` are the log end offsets of the others."""
    followers = [
        SimpleNamespace(broker_id=id_, log_end_offset=end, log_start_offset=start)
        for id_, end in (ends or {2: 10, 3: 10, 4: 10}).items()
    ]
    return SimpleNamespace(node_id=1, followers=followers, isr=in_sync)


@pytest.mark.parametrize(
    ("made", "offset", "rack", "expected"),
    [
        (replica_partition(), 5, "b", 2),
        (replica_partition({2: 5, 3: 9, 4: 10}), 5, "b", 3),  # the one with more records
        (replica_partition({2: 4, 3: 4, 4: 10}), 5, "b", -1),  # they do not have the offset yet
        (replica_partition(start=6), 5, "b", -1),  # they no longer have the offset
        (replica_partition(in_sync=(1, 4)), 5, "b", -1),
        (replica_partition(), 5, "a", -1),  # the leader is in that rack
        (replica_partition(), 5, "elsewhere", -1),
        (replica_partition(), 5, "c", 4),
    ],
)
def test_a_consumer_is_sent_to_a_replica_in_its_rack(made, offset, rack, expected):
    assert preferred_replica(made, offset, rack, image(), "PLAINTEXT") == expected


def test_a_dead_replica_or_one_without_the_listener_is_not_chosen():
    alive = {id_: rack for id_, rack in RACKS.items() if id_ != 4}
    assert preferred_replica(replica_partition(), 5, "c", image(alive), "PLAINTEXT") == -1
    assert preferred_replica(replica_partition(), 5, "c", image(), "SSL") == -1
