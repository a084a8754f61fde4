"""Groups whose record is larger than a batch of `__consumer_offsets` may be: errors and recovery."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.group_calls import GroupCalls, assignment, subscription
from tests.conformance.peer import Peer

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

UNKNOWN_SERVER_ERROR, REBALANCE_IN_PROGRESS = -1, 27
INTERVAL_SECONDS = 1.1
HALF, WHOLE = 600_000, 1_200_000  # max.message.bytes is 1,048,588


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


@pytest.fixture
def other(bootstrap: str, group: GroupCalls) -> Iterator[GroupCalls]:
    """A connection of another member."""
    with Peer(bootstrap) as connected:
        yield GroupCalls(connected, group.group)


def protocols(size: int, topic: str = "t") -> dict[str, bytes]:
    return {"range": subscription(topic, version=3) + b"x" * size}


def state_of(group: GroupCalls) -> str:
    row = group.listed()
    assert row is not None
    return str(row.group_state)


@pytest.mark.parametrize("size", [WHOLE, 10 * WHOLE])
def test_a_group_with_too_large_a_record_fails_to_assign_and_continues_with_less(group: GroupCalls, size: int) -> None:
    joined = group.enter(protocols=protocols(size))
    member = joined.member_id
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert group.sync(member, 1, {member: b"all"}).error_code == UNKNOWN_SERVER_ERROR
    assert state_of(group) == "PreparingRebalance"
    assert group.heartbeat(member, 1) == REBALANCE_IN_PROGRESS
    assert group.join(member, protocols=protocols(10)).generation_id == 2
    assert group.sync(member, 2, {member: b"all"}).error_code == 0
    assert group.heartbeat(member, 2) == 0


def test_too_large_an_assignment_fails_all_waiting_members(group: GroupCalls, other: GroupCalls) -> None:
    first = group.enter(protocols=protocols(1)).member_id
    assert group.sync(first, 1, {first: b"all"}).error_code == 0
    second = other.join(protocols=protocols(1)).member_id
    other.peer.send(waiting := other.join_request(second, protocols=protocols(1)), 9)
    while group.heartbeat(first, 1) != REBALANCE_IN_PROGRESS:
        time.sleep(0.01)
    generation = group.join(first, protocols=protocols(1)).generation_id
    assert other.peer.receive(waiting).generation_id == generation
    given = {first: b"a" * WHOLE, second: b"b"}
    assert group.sync(first, generation, given).error_code == UNKNOWN_SERVER_ERROR
    assert other.sync(second, generation).error_code == REBALANCE_IN_PROGRESS
    assert group.heartbeat(first, generation) == REBALANCE_IN_PROGRESS


def test_members_that_are_too_large_together_are_refused_and_either_alone_is_not(
    group: GroupCalls, other: GroupCalls
) -> None:
    first = group.enter(protocols=protocols(HALF)).member_id
    assert group.sync(first, 1, {first: b"all"}).error_code == 0
    second = other.join(protocols=protocols(HALF)).member_id
    other.peer.send(waiting := other.join_request(second, protocols=protocols(HALF)), 9)
    while group.heartbeat(first, 1) != REBALANCE_IN_PROGRESS:
        time.sleep(0.01)
    leader = group.join(first, protocols=protocols(HALF))
    assert (leader.generation_id, leader.leader, other.peer.receive(waiting).error_code) == (2, first, 0)
    assert group.sync(first, 2, {first: b"a", second: b"b"}).error_code == UNKNOWN_SERVER_ERROR
    other.leave((second, None))
    assert group.join(first, protocols=protocols(HALF)).generation_id == 3
    assert group.sync(first, 3, {first: b"a"}).error_code == 0
    assert state_of(group) == "Stable"


def test_a_subscription_that_is_too_large_changes_nothing(group: GroupCalls, topic: str) -> None:
    names = [f"n{number:06}" + "x" * 190 for number in range(6_000)]
    refused = group.consumer_join("A", names)
    assert (refused.error, refused.member_id, refused.epoch, refused.interval_ms) == (UNKNOWN_SERVER_ERROR, None, 0, 0)
    assert refused.assigned is None
    assert group.listed() is None
    joined = group.consumer_join("A", [topic])
    assert (joined.error, joined.epoch) == (0, 2)
    time.sleep(INTERVAL_SECONDS)
    refused = group.consumer_heartbeat("A", 2, topics=names)
    assert (refused.error, refused.epoch, refused.assigned) == (UNKNOWN_SERVER_ERROR, 0, None)
    assert group.consumer_heartbeat("A", 2).error == 0
    assert state_of(group) == "Stable"
    # A classic member that is too large neither joins nor replaces what it is.
    refused = group.enter(protocols=protocols(WHOLE, topic))
    assert (refused.error_code, refused.member_id, refused.generation_id) == (UNKNOWN_SERVER_ERROR, "", -1)
    small = group.enter(protocols=protocols(HALF, topic))
    assert small.error_code == 0
    refused = group.join(small.member_id, protocols=protocols(WHOLE, topic))
    assert (refused.error_code, refused.member_id) == (UNKNOWN_SERVER_ERROR, "")
    assert group.heartbeat(small.member_id, small.generation_id) == 0


def test_a_change_of_protocol_that_is_too_large_leaves_the_group_as_it_is(
    group: GroupCalls, other: GroupCalls, topic: str
) -> None:
    many = protocols(HALF // 2, topic) | {f"p{number}": protocols(HALF // 2)["range"] for number in range(4)}
    member = group.enter(protocols=many).member_id
    assert group.sync(member, 1, {member: assignment({topic: [0]}, 3)}).error_code == 0
    refused = other.consumer_join(str(uuid.uuid4()), [topic])
    assert (refused.error, refused.epoch, refused.assigned) == (UNKNOWN_SERVER_ERROR, 0, None)
    assert state_of(group) == "Stable"
    assert group.heartbeat(member, 1) == 0
