"""Classic groups on the wire: every version of every request, and what bad input is answered with."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.group_calls import GroupCalls, find_coordinator, subscription
from tests.conformance.peer import Peer

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER = 22, 23, 24, 25
INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, INVALID_REQUEST = 26, 27, 42
MEMBER_ID_REQUIRED, FENCED_INSTANCE = 79, 82
JOIN_VERSIONS, SYNC_VERSIONS, HEARTBEAT_VERSIONS, LEAVE_VERSIONS = range(10), range(6), range(5), range(6)
MALFORMED = "This most likely occurs because of a request being malformed by the client library"


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


@pytest.fixture
def other(bootstrap: str, group: GroupCalls) -> Any:
    """A second connection for another member of the same group."""
    with Peer(bootstrap) as connected:
        yield GroupCalls(connected, group.group)


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1], ids=["group", "transaction"])
def test_every_version_finds_the_coordinator(peer: Peer, bootstrap: str, version: int, key_type: int) -> None:
    found = find_coordinator(peer, "some-key", 0 if version == 0 else key_type, version)
    assert (found.error_code, f"{found.host}:{found.port}") == (0, bootstrap)
    if version >= 1:
        assert found.error_message == ("NONE" if version < 4 else "")


@pytest.mark.parametrize("key", ["", "x" * 30_000], ids=["empty", "30 kB"])
def test_any_name_has_a_coordinator(peer: Peer, key: str) -> None:
    found = find_coordinator(peer, key)
    assert (found.error_code, found.key) == (0, key)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("key_type", [3, -1, 100])
def test_an_unknown_kind_of_key_is_refused(peer: Peer, version: int, key_type: int) -> None:
    found = find_coordinator(peer, "some-key", key_type, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (INVALID_REQUEST, -1, "", -1)
    assert found.error_message.startswith(MALFORMED)


# ---- JoinGroup


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_a_member_joins_syncs_and_leaves_in_every_version(group: GroupCalls, version: int) -> None:
    joined = group.enter(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("peer-")
    assert [(each.member_id, bytes(each.metadata)) for each in joined.members] == [(joined.member_id, b"r")]
    member = joined.member_id
    synced = group.sync(member, 1, {member: b"all"}, min(version, SYNC_VERSIONS[-1]))
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")
    assert synced.protocol_name == ("range" if version >= 5 else None)
    again = group.sync(member, 1, None, min(version, SYNC_VERSIONS[-1]))
    assert (again.error_code, bytes(again.assignment)) == (0, b"all")
    assert group.heartbeat(member, 1, min(version, HEARTBEAT_VERSIONS[-1])) == 0
    left = group.leave((member, None), version=min(version, LEAVE_VERSIONS[-1]))
    assert left.error_code == 0
    assert group.heartbeat(member, 1, min(version, HEARTBEAT_VERSIONS[-1])) == UNKNOWN_MEMBER


@pytest.mark.parametrize("session_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1])
@pytest.mark.parametrize("version", [0, 4, 7, 9])
def test_a_session_out_of_bounds_is_refused_and_nothing_is_kept(
    group: GroupCalls, session_ms: int, version: int
) -> None:
    refused = group.join(version=version, session_ms=session_ms)
    assert (refused.error_code, refused.generation_id, refused.member_id) == (INVALID_SESSION_TIMEOUT, -1, "")
    assert refused.protocol_name == (None if version >= 7 else "")
    assert group.listed() is None


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_the_bounds_themselves_are_fine(group: GroupCalls, session_ms: int) -> None:
    assert group.join(session_ms=session_ms).error_code == MEMBER_ID_REQUIRED


REFUSED_JOINS = {
    "no protocols": ({"protocols": {}}, INCONSISTENT_PROTOCOL),
    "no protocol type": ({"protocol_type": ""}, INCONSISTENT_PROTOCOL),
    "unknown member": ({"member_id": "ghost"}, UNKNOWN_MEMBER),
    "unknown static member": ({"member_id": "ghost", "instance_id": "one"}, UNKNOWN_MEMBER),
}


@pytest.mark.parametrize("version", [0, 4, 5, 9])
@pytest.mark.parametrize("what", REFUSED_JOINS)
def test_a_join_that_makes_no_sense_is_refused(group: GroupCalls, what: str, version: int) -> None:
    options, error = REFUSED_JOINS[what]
    assert group.join(version=version, **options).error_code == error


def test_a_group_needs_a_name(peer: Peer) -> None:
    nameless = GroupCalls(peer, "")
    assert nameless.join().error_code == INVALID_GROUP_ID
    assert nameless.sync("m", 1).error_code == INVALID_GROUP_ID
    assert nameless.heartbeat("m", 1) == INVALID_GROUP_ID
    assert nameless.leave(("m", None)).error_code == INVALID_GROUP_ID
    assert nameless.leave(("m", None), version=1).error_code == INVALID_GROUP_ID


def test_a_name_may_have_30_thousand_letters(peer: Peer, topic_name: str) -> None:
    long = GroupCalls(peer, topic_name + "g" * 30_000)
    member, generation = long.stable_member()
    assert long.heartbeat(member, generation) == 0
    assert long.leave((member, None)).error_code == 0
    assert long.delete() == 0


def test_the_id_of_a_member_begins_with_its_client_or_its_own_name(group: GroupCalls) -> None:
    assert group.join().member_id.startswith("peer-")
    assert group.enter(instance_id="one").member_id.startswith("one-")


def test_a_member_must_fit_to_the_others(group: GroupCalls, other: GroupCalls) -> None:
    group.stable_member()
    assert other.join(protocols={"sticky": b""}).error_code == INCONSISTENT_PROTOCOL
    assert other.join(protocol_type="connect").error_code == INCONSISTENT_PROTOCOL
    assert other.join("ghost").error_code == UNKNOWN_MEMBER


# ---- SyncGroup, Heartbeat


def test_an_unknown_member_and_an_older_generation_are_refused(group: GroupCalls) -> None:
    member, generation = group.stable_member()
    assert group.sync(member, generation - 1).error_code == ILLEGAL_GENERATION
    assert group.sync("ghost", generation).error_code == UNKNOWN_MEMBER
    assert group.sync(member, generation, instance_id="nobody").error_code == UNKNOWN_MEMBER
    for version in HEARTBEAT_VERSIONS:
        assert group.heartbeat(member, generation - 1, version) == ILLEGAL_GENERATION
        assert group.heartbeat("ghost", generation, version) == UNKNOWN_MEMBER
    assert group.heartbeat(member, generation, instance_id="nobody") == UNKNOWN_MEMBER


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"),
    [("consumer", "other"), ("other", "range"), (None, "range"), ("consumer", None), (None, None), ("", "range")],
)
def test_a_sync_must_name_the_protocol_that_was_chosen(
    group: GroupCalls, protocol_type: str | None, protocol_name: str | None
) -> None:
    member, generation = group.stable_member()
    refused = group.sync(member, generation, protocol_type=protocol_type, protocol_name=protocol_name)
    assert refused.error_code == INCONSISTENT_PROTOCOL


def test_a_group_that_does_not_exist_has_no_members(group: GroupCalls) -> None:
    assert group.heartbeat("m", 1) == UNKNOWN_MEMBER
    assert group.sync("m", 1).error_code == UNKNOWN_MEMBER
    assert group.leave(("m", None), version=2).error_code == UNKNOWN_MEMBER
    left = group.leave(("m", None), version=3)
    assert (left.error_code, [each.error_code for each in left.members]) == (0, [UNKNOWN_MEMBER])
    assert group.leave().error_code == 0


def test_a_second_member_makes_the_first_one_join_again(group: GroupCalls, other: GroupCalls) -> None:
    first, generation = group.stable_member()
    second = other.join().member_id
    waiting = other.join_request(second)
    other.peer.send(waiting, 9)
    while group.heartbeat(first, generation) != REBALANCE_IN_PROGRESS:
        pass
    assert group.sync(first, generation).error_code == REBALANCE_IN_PROGRESS
    assert group.describe().group_state == "PreparingRebalance"
    leader = group.join(first)
    follower = other.peer.receive(waiting)
    assert (leader.generation_id, leader.leader, len(leader.members)) == (generation + 1, first, 2)
    assert (follower.generation_id, follower.leader, follower.members) == (generation + 1, first, [])
    assert group.describe().group_state == "CompletingRebalance"
    given = group.sync(first, generation + 1, {first: b"1", second: b"2", "ghost": b"3"})
    assert bytes(given.assignment) == b"1"
    assert bytes(other.sync(second, generation + 1).assignment) == b"2"
    left = group.leave((first, None), ("ghost", None), (second, None))
    assert [each.error_code for each in left.members] == [0, UNKNOWN_MEMBER, 0]


# ---- static members


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_former_self(
    group: GroupCalls, other: GroupCalls, topic: str
) -> None:
    former, generation = group.stable_member(instance_id="one")
    back = other.join(instance_id="one")
    assert (back.error_code, back.generation_id, back.skip_assignment) == (0, generation, True)
    assert back.member_id != former
    assert len(back.members) == 1
    assert group.heartbeat(former, generation, instance_id="one") == FENCED_INSTANCE
    assert group.heartbeat(former, generation) == UNKNOWN_MEMBER
    assert group.sync(former, generation, instance_id="one").error_code == FENCED_INSTANCE
    assert group.join(former, instance_id="one").error_code == FENCED_INSTANCE
    commit = group.commit({topic: {0: 1}}, member_id=former, generation=generation, instance_id="one")
    assert commit == {topic: {0: FENCED_INSTANCE}}
    assert group.leave((former, "one")).members[0].error_code == FENCED_INSTANCE
    assert bytes(other.sync(back.member_id, generation, instance_id="one").assignment) == b"all"


def test_older_clients_get_another_leader_instead(group: GroupCalls, other: GroupCalls) -> None:
    """So that they do not assign again."""
    former, generation = group.stable_member(instance_id="one")
    back = other.join(version=8, instance_id="one")
    assert (back.generation_id, back.leader, back.members) == (generation, former, [])


def test_other_metadata_of_a_static_member_makes_no_new_generation_but_another_protocol_is_refused(
    group: GroupCalls, other: GroupCalls
) -> None:
    _, generation = group.stable_member(instance_id="one")
    assert other.join(instance_id="one", protocols={"range": b"z"}).generation_id == generation
    assert other.join(instance_id="one", protocols={"sticky": b"z"}).error_code == INCONSISTENT_PROTOCOL


def test_an_administrator_removes_a_static_member_by_its_name(group: GroupCalls) -> None:
    group.stable_member(instance_id="one")
    assert group.leave(("", "one")).members[0].error_code == 0
    assert group.leave(("", "one")).members[0].error_code == UNKNOWN_MEMBER
    assert group.describe().group_state == "Empty"


# ---- looking at groups


@pytest.mark.parametrize("version", range(7))
def test_a_description_in_every_version(group: GroupCalls, version: int) -> None:
    member, _ = group.stable_member(protocols={"range": subscription("a")})
    row = group.describe(version, operations=True)
    assert (row.error_code, row.group_state, row.protocol_type, row.protocol_data) == (0, "Stable", "consumer", "range")
    (described,) = row.members
    assert (described.member_id, described.client_id, described.client_host) == (member, "peer", "/127.0.0.1")
    assert bytes(described.member_metadata) == subscription("a")
    assert bytes(described.member_assignment) == b"all"
    if version >= 3:
        assert row.authorized_operations == {3, 6, 8, 10, 11}


def test_a_group_that_does_not_exist_is_dead_or_not_found(group: GroupCalls) -> None:
    for version in range(6):
        row = group.describe(version)
        assert (row.error_code, row.group_state, row.members) == (0, "Dead", [])
    row = group.describe(6)
    assert (row.error_code, row.group_state) == (69, "Dead")
    assert row.error_message == f"Group {group.group} not found."


@pytest.mark.parametrize("version", range(6))
def test_a_group_is_listed_in_every_version(group: GroupCalls, version: int) -> None:
    group.stable_member()
    row = group.listed(version)
    assert (row.group_id, row.protocol_type) == (group.group, "consumer")
    assert row.group_state == ("Stable" if version >= 4 else "")
    assert row.group_type == ("classic" if version >= 5 else "")


def test_groups_are_listed_by_state_and_type_in_any_case(group: GroupCalls) -> None:
    group.stable_member()
    for states in (["Stable"], ["stable"], ["Nonsense", "STABLE"]):
        assert group.listed(states=states) is not None
    for types in (["classic"], ["CLASSIC"], ["nonsense", "Classic"]):
        assert group.listed(types=types) is not None
    for filters in ({"states": ["Empty"]}, {"states": ["Nonsense"]}, {"states": [""]}, {"types": ["consumer"]}):
        assert group.listed(**filters) is None


@pytest.mark.parametrize("version", range(3))
def test_only_a_group_without_members_is_deleted(group: GroupCalls, version: int) -> None:
    assert group.delete(version) == 69
    member, _ = group.stable_member()
    assert group.delete(version) == 68
    group.leave((member, None))
    assert group.delete(version) == 0
    assert group.delete(version) == 69
    assert group.listed() is None
