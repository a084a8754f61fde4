"""Groups on their way from the classic protocol to the new one and back, while they have members (KIP-848)."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.group_calls import GroupCalls, assignment, subscription
from tests.conformance.peer import Peer
from tests.conformance.transaction_calls import TransactionCalls

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, GROUP_NOT_FOUND = 22, 23, 25, 27, 69
MEMBER_ID_REQUIRED, FENCED_INSTANCE, INVALID_SESSION_TIMEOUT, UNKNOWN_SERVER_ERROR = 79, 82, 26, -1
CLASSIC, NEW = 0, 1
INTERVAL_SECONDS = 1.1


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


@pytest.fixture
def new(bootstrap: str, group: GroupCalls) -> Iterator[GroupCalls]:
    """The connection of the members of the new protocol."""
    with Peer(bootstrap) as connected:
        yield GroupCalls(connected, group.group)


@pytest.fixture
def four(peer: Peer, topic_name: str, broker: object) -> tuple[str, uuid.UUID]:
    """A topic with four partitions: its name and id."""
    topic_id = peer.create_topic(topic_name, 4)
    if broker is None:
        time.sleep(0.3)  # Apache Kafka's coordinator hears of a topic a little later than its clients
    return topic_name, topic_id


def protocols(topic: str, owned: list[int] | None = None, generation: int = -1) -> dict[str, bytes]:
    held = {topic: owned} if owned else {}
    return {"range": subscription(topic, version=3, owned=held, generation=generation)}


def members(group: GroupCalls) -> dict[int, tuple[int, list[int], list[int]]]:
    """Member type -> epoch, partitions now, partitions to be (of the one topic)."""
    return {
        each.member_type: (each.epoch, *(next(iter(topics.values()), []) for topics in (each.assigned, each.target)))
        for each in group.consumer_describe().members
    }


def start_classic(group: GroupCalls, topic: str) -> str:
    """The only member of a classic group, with all partitions; its generation is 1."""
    member = str(group.enter(protocols=protocols(topic)).member_id)
    synced = group.sync(member, 1, {member: assignment({topic: [0, 1, 2, 3]}, 3)})
    assert synced.error_code == 0
    return member


def test_a_classic_group_continues_when_the_first_new_member_joins(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = four
    member = start_classic(group, topic)
    joined = new.consumer_join("A", [topic])
    assert (joined.error, joined.epoch, joined.assigned) == (0, 2, {})
    assert members(new) == {CLASSIC: (1, [0, 1, 2, 3], [0, 1]), NEW: (2, [], [2, 3])}
    assert new.listed().group_type == "consumer"
    # The classic member is asked to join again, and meanwhile commits as ever.
    assert group.heartbeat(member, 1) == REBALANCE_IN_PROGRESS
    assert group.heartbeat(member, 2) == ILLEGAL_GENERATION
    assert group.sync(member, 1).error_code == REBALANCE_IN_PROGRESS
    for version in (8, 9):
        assert group.commit({topic: {3: 7}}, version, member_id=member, generation=1) == {topic: {3: 0}}
        stale = group.commit({topic: {3: 8}}, version, member_id=member, generation=0)
        assert stale == {topic: {3: ILLEGAL_GENERATION}}
    # It joins with what it has, and learns what it may keep.
    again = group.join(member, protocols=protocols(topic, [0, 1, 2, 3], 1))
    assert (again.generation_id, again.protocol_name, again.leader, again.members) == (1, "range", "", [])
    kept = assignment({topic: [0, 1]}, 3)
    assert bytes(group.sync(member, 1).assignment) == kept
    assert new.consumer_heartbeat("A", 2, owned={}).assigned is None
    assert group.heartbeat(member, 1) == REBALANCE_IN_PROGRESS
    # It joins without the others, and now they go to the new member.
    assert group.join(member, protocols=protocols(topic, [0, 1], 1)).generation_id == 2
    assert bytes(group.sync(member, 2).assignment) == kept
    assert group.heartbeat(member, 2) == 0
    assert new.consumer_heartbeat("A", 2, owned={}).assigned == {topic_id: [2, 3]}
    assert members(new) == {CLASSIC: (2, [0, 1], [0, 1]), NEW: (2, [2, 3], [2, 3])}
    assert group.committed(topic, 3) == 7


def test_a_group_becomes_classic_again_when_the_last_new_member_leaves(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    member = start_classic(group, topic)
    new.consumer_join("A", [topic])
    group.join(member, protocols=protocols(topic, [0, 1, 2, 3], 1))
    group.join(member, protocols=protocols(topic, [0, 1], 1))
    assert new.consumer_heartbeat("A", -1).error == 0
    assert new.consumer_describe().message == f"Group {group.group} is not a consumer group."
    row = group.describe()
    assert (row.group_state, bytes(row.members[0].member_assignment)) == (
        "PreparingRebalance",
        assignment({topic: [0, 1]}, 3),
    )
    assert group.heartbeat(member, 2) == REBALANCE_IN_PROGRESS
    joined = group.join(member, protocols=protocols(topic, [0, 1], 2))
    assert (joined.generation_id, joined.leader, len(joined.members)) == (3, member, 1)


def test_a_classic_member_joins_a_group_of_the_new_protocol(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = four
    new.consumer_join("A", [topic])
    time.sleep(INTERVAL_SECONDS)
    announced = group.join(protocols=protocols(topic))
    assert announced.error_code == MEMBER_ID_REQUIRED
    member = announced.member_id
    joined = group.join(member, protocols=protocols(topic))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 3, "")
    assert bytes(group.sync(member, 3).assignment) == assignment({}, 3)
    assert group.heartbeat(member, 3) == 0
    new.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2, 3]})
    assert group.heartbeat(member, 3) == 0
    assert new.consumer_heartbeat("A", 2, owned={topic_id: [0, 1]}).epoch == 3
    assert group.heartbeat(member, 3) == REBALANCE_IN_PROGRESS
    assert group.join(member, protocols=protocols(topic, [], 3)).generation_id == 3
    assert bytes(group.sync(member, 3).assignment) == assignment({topic: [2, 3]}, 3)
    assert members(new) == {CLASSIC: (3, [2, 3], [2, 3]), NEW: (3, [0, 1], [0, 1])}
    assert group.leave((member, None)).members[0].error_code == 0
    assert NEW in members(new)
    assert CLASSIC not in members(new)


def test_a_static_classic_member_is_succeeded_and_fenced(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    former = group.join(protocols=protocols(topic), instance_id="one")
    assert former.error_code == 0
    back = group.join(protocols=protocols(topic), instance_id="one")
    assert (back.error_code, back.generation_id) == (0, former.generation_id)
    assert back.member_id != former.member_id
    assert group.heartbeat(former.member_id, former.generation_id, instance_id="one") == FENCED_INSTANCE
    refused = group.join(former.member_id, protocols=protocols(topic), instance_id="one")
    assert refused.error_code == FENCED_INSTANCE


def test_a_refused_join_names_no_member(group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    bad = {"range": b"?"}
    for instance_id in (None, "one"):
        for member_id in ("", "x"):
            for options in ({"protocol_type": "connect"}, {"protocols": {}}):
                refused = group.join(member_id, instance_id=instance_id, **options)
                assert (refused.error_code, refused.member_id) == (INCONSISTENT_PROTOCOL, "")
            short = group.join(member_id, instance_id=instance_id, session_ms=1)
            assert (short.error_code, short.member_id) == (INVALID_SESSION_TIMEOUT, member_id)
    assert group.join(protocols=bad).error_code == MEMBER_ID_REQUIRED
    refused = [group.join("x", protocols=bad), group.join(protocols=bad, instance_id="one")]
    refused.append(group.join("x", protocols=protocols(topic), instance_id="one"))
    told = [(UNKNOWN_SERVER_ERROR, ""), (UNKNOWN_SERVER_ERROR, ""), (UNKNOWN_MEMBER, "")]
    assert [(each.error_code, each.member_id) for each in refused] == told


def test_each_classic_member_has_the_first_of_its_own_protocols(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    time.sleep(INTERVAL_SECONDS)
    data = subscription(topic, version=3)
    assert group.enter(protocols={"range": data}).protocol_name == "range"
    other = new.enter(protocols={"sticky": data, "range": data})
    assert other.protocol_name == "sticky"
    assert new.sync(other.member_id, other.generation_id, protocol_name="sticky").protocol_name == "sticky"
    mistaken = new.sync(other.member_id, other.generation_id, protocol_name="range")
    assert mistaken.error_code == INCONSISTENT_PROTOCOL


def test_a_member_is_not_asked_to_join_again_before_there_is_a_new_assignment(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    joined = group.enter(protocols=protocols(topic))  # too early for the next assignment
    assert joined.generation_id == 2
    assert group.sync(joined.member_id, 2).error_code == 0
    assert group.heartbeat(joined.member_id, 2) == 0
    time.sleep(INTERVAL_SECONDS)
    assert group.heartbeat(joined.member_id, 2) == 0
    new.consumer_heartbeat("A", 2)
    assert group.heartbeat(joined.member_id, 2) == REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_sync_in_time_is_out(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    time.sleep(INTERVAL_SECONDS)
    synced = group.enter(protocols=protocols(topic), rebalance_ms=500)
    group.sync(synced.member_id, synced.generation_id)
    silent = group.enter(protocols=protocols(topic), rebalance_ms=500)
    deadline = time.monotonic() + 10
    while group.heartbeat(silent.member_id, silent.generation_id) != UNKNOWN_MEMBER:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert group.heartbeat(synced.member_id, synced.generation_id) == 0


def test_a_late_commit_of_a_classic_member_counts_for_partitions_that_it_has_kept(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    member = start_classic(group, topic)
    new.consumer_join("A", [topic])
    group.join(member, protocols=protocols(topic, [0, 1, 2, 3], 1))
    assert group.join(member, protocols=protocols(topic, [0, 1], 1)).generation_id == 2
    assert group.commit({topic: {1: 7}}, member_id=member, generation=1) == {topic: {1: 0}}
    mixed = group.commit({topic: {1: 8, 3: 8}}, member_id=member, generation=1)
    assert mixed == {topic: {1: ILLEGAL_GENERATION, 3: ILLEGAL_GENERATION}}
    for generation in (0, 1, 3):
        answer = group.fetch_offsets({topic: [1]}, member_id=member, member_epoch=generation)
        assert answer.error_code == ILLEGAL_GENERATION
    assert group.fetch_offsets({topic: [1]}, member_id=member, member_epoch=2).error_code == 0


def test_a_transaction_of_another_epoch_gets_illegal_generation(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    time.sleep(INTERVAL_SECONDS)
    classic = group.enter(protocols=protocols(topic))
    transaction = TransactionCalls(group.peer, group.group)
    who = transaction.start()

    def commit(member_id: str, epoch: int) -> int:
        return transaction.commit_offsets(who, group.group, {topic: {0: 1}}, 5, member_id=member_id, generation=epoch)[
            topic
        ][0]

    assert [commit("A", epoch) for epoch in (2, 1, 3, -1)] == [0, *[ILLEGAL_GENERATION] * 3]
    assert [commit(classic.member_id, epoch) for epoch in (3, 2, 4)] == [0, *[ILLEGAL_GENERATION] * 2]
    assert commit("x", 2) == UNKNOWN_MEMBER
    assert commit("", -1) == 0


def test_incompatible_members_are_refused(group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]) -> None:
    topic, _ = four
    new.consumer_join("A", [topic])
    assert group.join(protocol_type="connect").error_code == INCONSISTENT_PROTOCOL
    assert group.join(protocols={}).error_code == INCONSISTENT_PROTOCOL
    member = group.enter(protocols=protocols(topic)).member_id
    assert group.join(protocols={"sticky": subscription(topic)}).error_code == INCONSISTENT_PROTOCOL
    assert group.heartbeat("A", 2) == UNKNOWN_MEMBER
    assert group.sync("ghost", 2).error_code == UNKNOWN_MEMBER
    assert members(new).keys() == {CLASSIC, NEW}
    assert member


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "reason"),
    [
        ("connect", b"", "the group does not use the consumer embedded protocol"),
        ("consumer", b"?", "the embedded consumer protocol is malformed"),
    ],
)
def test_groups_that_cannot_change(
    group: GroupCalls, new: GroupCalls, protocol_type: str, metadata: bytes, reason: str
) -> None:
    member, generation = group.stable_member(protocol_type=protocol_type, protocols={"range": metadata})
    refused = new.consumer_join("A", ["t"])
    sentence = f"Cannot upgrade classic group {group.group} to consumer group because {reason}."
    assert (refused.error, refused.message) == (GROUP_NOT_FOUND, sentence)
    assert group.heartbeat(member, generation) == 0


def test_a_group_with_a_custom_assignor_cannot_change_its_protocol(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = four
    member = str(group.enter(protocols=protocols(topic)).member_id)
    given = assignment({topic: [0, 1, 2, 3]}, 3)[:-4] + b"\0\0\0\4more"
    assert group.sync(member, 1, {member: given}).error_code == 0
    refused = new.consumer_join("A", [topic])
    assert refused.error == GROUP_NOT_FOUND
    assert "because an unsupported custom assignor is in use" in str(refused.message)
    assert group.heartbeat(member, 1) == 0
    group.leave((member, None))
    assert new.consumer_join("A", [topic]).assigned == {topic_id: [0, 1, 2, 3]}


# ---- a static member takes the group with it


def test_the_group_is_classic_when_its_last_new_member_joins_again_the_classic_way(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    new.consumer_join("A", [topic], instance_id="one")
    time.sleep(INTERVAL_SECONDS)
    assert new.consumer_heartbeat("A", -2, instance_id="one").error == 0
    joined = group.join(protocols=protocols(topic), instance_id="one")
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, "")
    row = group.listed()
    assert row is not None
    assert (row.group_type, row.group_state) == ("classic", "Stable")
    synced = group.sync(joined.member_id, 2, instance_id="one")
    assert (synced.error_code, bytes(synced.assignment)) == (0, assignment({topic: [0, 1, 2, 3]}, 3))
    assert group.heartbeat(joined.member_id, 2, instance_id="one") == 0
    assert new.consumer_heartbeat("A", 2).message == f"Group {group.group} is not a consumer group."


def test_members_of_a_group_without_a_current_assignment_are_assigned_again(
    group: GroupCalls, new: GroupCalls, four: tuple[str, uuid.UUID]
) -> None:
    topic, _ = four
    cooperative = {"cooperative-sticky": subscription(topic, version=3)}
    new.consumer_join("A", [topic], instance_id="one")
    new.consumer_join("B", [topic], instance_id="two")  # too early for the next assignment
    one = group.join(protocols=cooperative, instance_id="one")
    two = new.join(protocols=cooperative, instance_id="two")
    assert (two.error_code, two.generation_id) == (0, 0)
    row = group.listed()
    assert row is not None
    assert (row.group_type, row.group_state) == ("classic", "PreparingRebalance")
    assert group.heartbeat(one.member_id, one.generation_id, instance_id="one") == ILLEGAL_GENERATION
    group.peer.send(again := group.join_request(one.member_id, protocols=cooperative, instance_id="one"), 9)
    back = new.join(two.member_id, protocols=cooperative, instance_id="two")
    assert (back.error_code, group.peer.receive(again).error_code, back.generation_id) == (0, 0, 4)
