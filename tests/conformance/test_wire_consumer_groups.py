"""The new group protocol (KIP-848) on the wire: refusals, epochs, hand-over of partitions, static members."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.conftest import NewTopic
from tests.conformance.group_calls import Beat, GroupCalls
from tests.conformance.peer import Peer

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

INVALID_GROUP_ID, UNKNOWN_MEMBER, UNSUPPORTED_VERSION, INVALID_REQUEST = 24, 25, 35, 42
NON_EMPTY_GROUP, GROUP_NOT_FOUND, FENCED_INSTANCE, SUBSCRIBED = 68, 69, 82, 86
FENCED_EPOCH, UNRELEASED_INSTANCE, UNSUPPORTED_ASSIGNOR, STALE_EPOCH, INVALID_REGEX = 110, 111, 112, 113, 128
FIRST = 2  # the epoch of a group's first assignment
INTERVAL_SECONDS = 1.1  # a little more than group.consumer.assignment.interval.ms
CHANGES_SECONDS_MAX = 20


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


@pytest.fixture
def three(peer: Peer, topic_name: str, broker: object) -> tuple[str, uuid.UUID]:
    """A topic with three partitions: its name and id."""
    topic_id = peer.create_topic(topic_name, 3)
    if broker is None:
        time.sleep(0.3)  # Apache Kafka's coordinator hears of a topic a little later than its clients
    return topic_name, topic_id


def refusal(beat: Beat) -> tuple[int, str | None]:
    assert (beat.member_id, beat.epoch, beat.interval_ms, beat.assigned) == (None, 0, 0, None)
    return beat.error, beat.message


# ---- bad input

JOIN: dict[str, Any] = {"rebalance_ms": 30_000, "topics": ["t"], "owned": {}}
MALFORMED = {
    "epoch below -2": ("m", -3, {}, "MemberEpoch is invalid."),
    "no member id": ("", 1, {}, "MemberId can't be empty."),
    "empty instance": ("m", 0, {**JOIN, "instance_id": ""}, "InstanceId can't be empty."),
    "empty rack": ("m", 0, {**JOIN, "rack_id": ""}, "RackId can't be empty."),
    "away without a name": ("m", -2, {}, "InstanceId can't be null."),
    "no rebalance time-out": (
        "m",
        0,
        {**JOIN, "rebalance_ms": -1},
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "owned unsaid": ("m", 0, {**JOIN, "owned": None}, "TopicPartitions must be empty when (re-)joining."),
    "owned something": (
        "m",
        0,
        {**JOIN, "owned": {uuid.UUID(int=7): [0]}},
        "TopicPartitions must be empty when (re-)joining.",
    ),
}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_heartbeat_is_refused_and_changes_nothing(group: GroupCalls, what: str, version: int) -> None:
    member, epoch, options, message = MALFORMED[what]
    assert refusal(group.consumer_heartbeat(member, epoch, version, **options)) == (INVALID_REQUEST, message)
    assert group.listed() is None


def test_a_joining_member_must_send_its_subscription(group: GroupCalls) -> None:
    beat = group.consumer_heartbeat("m", 0, rebalance_ms=1_000, owned={})
    assert refusal(beat)[0] == INVALID_REQUEST


@pytest.mark.parametrize("name", ["", "  "])
def test_a_group_needs_a_name(peer: Peer, name: str) -> None:
    beat = GroupCalls(peer, name).consumer_heartbeat("m", 0, **JOIN)
    assert refusal(beat) == (INVALID_REQUEST, "GroupId can't be empty.")


def test_since_version_1_clients_make_their_own_member_ids(group: GroupCalls) -> None:
    given = group.consumer_heartbeat("", 0, 0, **JOIN)
    assert given.error == 0
    assert given.member_id
    for name in ("", " "):
        assert refusal(group.consumer_heartbeat(name, 0, 1, **JOIN)) == (INVALID_REQUEST, "MemberId can't be empty.")


@pytest.mark.parametrize("name", ["nonsense", ""])
def test_an_unknown_assignor_is_refused(group: GroupCalls, name: str) -> None:
    error, message = refusal(group.consumer_heartbeat("m", 0, **JOIN, assignor=name))
    assert error == UNSUPPORTED_ASSIGNOR
    assert message == f"ServerAssignor {name} is not supported. Supported assignors: uniform, range."


REGEXES = {
    "(": "missing closing )",
    "[": "missing closing ]",
    "a**": "invalid nested repetition operator",
    "*a": "missing argument to repetition operator",
    "[z-a]": "invalid character class range",
    "\\": "trailing backslash at end of expression",
    "\\8": "invalid escape sequence",
    "a{2001}": "invalid repeat count",
    "(?=a)": "invalid or unsupported Perl syntax",
}


@pytest.mark.parametrize("pattern", REGEXES)
def test_an_invalid_regular_expression_is_refused(group: GroupCalls, pattern: str) -> None:
    beat = group.consumer_heartbeat("m", 0, rebalance_ms=1_000, regex=pattern, owned={})
    reason = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {REGEXES[pattern]}."
    assert refusal(beat) == (INVALID_REGEX, reason)
    assert group.listed() is None


def test_a_group_that_does_not_exist(group: GroupCalls) -> None:
    name = group.group
    assert refusal(group.consumer_heartbeat("m", 5)) == (GROUP_NOT_FOUND, f"Consumer group {name} not found.")
    assert refusal(group.consumer_heartbeat("m", -1)) == (GROUP_NOT_FOUND, f"Group {name} not found.")
    described = group.consumer_describe()
    assert (described.error, described.message) == (GROUP_NOT_FOUND, f"Group {name} not found.")
    assert GroupCalls(group.peer, "").consumer_describe().error == INVALID_GROUP_ID


def test_strange_topics_are_nothing_to_read(group: GroupCalls) -> None:
    joined = group.consumer_join("m", ["a/b", "", "conformance-nowhere"])
    assert (joined.error, joined.epoch, joined.assigned) == (0, FIRST, {})


# ---- one member


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_reports_and_leaves(group: GroupCalls, three: tuple[str, uuid.UUID], version: int) -> None:
    topic, topic_id = three
    everything = {topic_id: [0, 1, 2]}
    joined = group.consumer_heartbeat("A", 0, version, topics=[topic], owned={}, rebalance_ms=30_000)
    assert joined == Beat(0, None, "A", FIRST, 5_000, everything)
    silent = Beat(0, None, "A", FIRST, 5_000, None)
    assert group.consumer_heartbeat("A", FIRST, version) == silent
    assert group.consumer_heartbeat("A", FIRST, version, owned=everything) == silent
    whole = group.consumer_heartbeat("A", FIRST, version, topics=[topic], owned=everything, rebalance_ms=30_000)
    assert whole == joined
    row = group.listed()
    assert (row.group_state, row.group_type, row.protocol_type) == ("Stable", "consumer", "consumer")
    assert group.delete() == NON_EMPTY_GROUP
    assert group.consumer_heartbeat("A", -1, version) == Beat(0, None, "A", -1, 0, None)
    assert group.listed().group_state == "Empty"
    assert refusal(group.consumer_heartbeat("A", FIRST, version))[0] == UNKNOWN_MEMBER
    assert group.delete() == 0


def test_a_description(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, _ = three
    group.consumer_join("A", [topic], rack_id="here")
    row = group.consumer_describe()
    assert (row.error, row.state, row.epoch, row.assignment_epoch, row.assignor) == (0, "Stable", 2, 2, "uniform")
    (member,) = row.members
    assert (member.member_id, member.instance_id, member.rack_id, member.epoch) == ("A", None, "here", FIRST)
    assert (member.client_id, member.client_host, member.topics, member.regex) == ("raw", "/127.0.0.1", [topic], "")
    assert (member.assigned, member.target, member.member_type) == ({topic: [0, 1, 2]}, {topic: [0, 1, 2]}, 1)
    assert group.consumer_describe(0).members[0].member_type == -1
    classic = group.describe(6)
    assert (classic.error_code, classic.error_message) == (69, f"Group {group.group} is not a classic group.")
    assert group.describe(5).group_state == "Dead"


def test_only_the_current_member_epoch_is_accepted(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    group.consumer_join("A", [three[0]])
    must = "The member must abandon all its partitions and rejoin."
    known = f"than the one known by the group coordinator ({FIRST}). {must}"
    greater = f"The consumer group member has a greater member epoch (7) {known}"
    smaller = f"The consumer group member has a smaller member epoch (1) {known}"
    assert refusal(group.consumer_heartbeat("A", 7)) == (FENCED_EPOCH, greater)
    assert refusal(group.consumer_heartbeat("A", 1)) == (FENCED_EPOCH, smaller)
    stranger = (UNKNOWN_MEMBER, f"Member ghost is not a member of group {group.group}.")
    assert refusal(group.consumer_heartbeat("ghost", FIRST)) == stranger
    assert refusal(group.consumer_heartbeat("ghost", -1)) == stranger
    assert group.consumer_heartbeat("A", 0, **{**JOIN, "topics": [three[0]]}).epoch == FIRST
    assert group.heartbeat("ghost", FIRST) == UNKNOWN_MEMBER
    assert group.sync("ghost", FIRST).error_code == UNKNOWN_MEMBER


def test_a_regular_expression_finds_topics(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    """Topics are looked for in the background: the first answer is of the epoch before, and has none."""
    topic, topic_id = three
    beat = group.consumer_join("A", None, regex=f"{topic[:-1]}.*{topic[-1]}")
    assert (beat.error, beat.epoch, beat.assigned) == (0, FIRST - 1, {})
    beat = until_assigned(group, "A", beat)
    assert (beat.epoch, beat.assigned and beat.assigned[topic_id]) == (FIRST, [0, 1, 2])
    described = group.consumer_describe()
    assert (described.epoch, described.assignment_epoch) == (FIRST, FIRST)


def until_assigned(group: GroupCalls, member: str, beat: Beat) -> Beat:
    deadline = time.monotonic() + CHANGES_SECONDS_MAX
    while not beat.assigned:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        beat = group.consumer_heartbeat(member, beat.epoch, owned={})
    return beat


def test_a_regular_expression_that_matches_nothing_changes_no_epoch(group: GroupCalls) -> None:
    beat = group.consumer_join("A", None, regex="nothing-.*")
    assert (beat.error, beat.epoch, beat.assigned) == (0, FIRST - 1, {})
    time.sleep(INTERVAL_SECONDS)
    assert group.consumer_heartbeat("A", FIRST - 1) == Beat(0, None, "A", FIRST - 1, 5_000, None)
    assert group.consumer_describe().state == "Stable"


def test_names_are_assigned_at_once_beside_a_regular_expression(
    group: GroupCalls, three: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = three
    beat = group.consumer_join("A", [topic], regex="nothing-.*")
    assert (beat.epoch, beat.assigned) == (FIRST, {topic_id: [0, 1, 2]})


def test_a_known_regular_expression_raises_the_epoch_at_once(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, _ = three
    until_assigned(group, "A", group.consumer_join("A", None, regex=topic))
    time.sleep(INTERVAL_SECONDS)
    joined = group.consumer_join("B", None, regex=topic)
    assert (joined.epoch, joined.assigned) == (FIRST + 1, {})  # A has yet to give some up
    other = group.consumer_join("C", None, regex=f"{topic}|other")
    assert (other.epoch, other.assigned) == (FIRST + 1, {})  # ten seconds lie between two searches
    assert group.consumer_describe().epoch == FIRST + 1


def test_a_member_that_gives_its_regular_expression_up(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, topic_id = three
    beat = until_assigned(group, "A", group.consumer_join("A", None, regex=topic))
    time.sleep(INTERVAL_SECONDS)
    held = {topic_id: [0, 1, 2]}
    revoking = group.consumer_heartbeat("A", beat.epoch, rebalance_ms=30_000, regex=f"{topic}-other", owned=held)
    assert (revoking.epoch, revoking.assigned) == (FIRST, {})
    assert group.consumer_describe().epoch == FIRST
    group.consumer_heartbeat("A", FIRST, owned={})
    time.sleep(INTERVAL_SECONDS)
    left = group.consumer_heartbeat("A", FIRST, rebalance_ms=30_000, regex="", owned={})
    assert (left.error, left.assigned) == (0, {})
    assert group.consumer_describe().epoch >= FIRST + 1


# ---- offsets


def test_only_members_with_a_current_epoch_commit_and_fetch_offsets(
    group: GroupCalls, three: tuple[str, uuid.UUID], topic: str
) -> None:
    read, _ = three
    group.consumer_join("A", [read])

    def commit(member_id: str, epoch: int, version: int = 9) -> int:
        return group.commit({read: {0: 5}}, version, member_id=member_id, generation=epoch)[read][0]

    def ask(member_id: str | None, epoch: int) -> int:
        return int(group.fetch_offsets({read: [0]}, 9, member_id=member_id, member_epoch=epoch).error_code)

    assert commit("A", FIRST) == 0
    assert commit("A", FIRST, 8) == UNSUPPORTED_VERSION
    assert [commit("A", epoch) for epoch in (1, 9, -1)] == [STALE_EPOCH] * 3
    assert [commit("ghost", FIRST), commit("", -1)] == [UNKNOWN_MEMBER] * 2
    assert ask("A", FIRST) == ask(None, -1) == 0
    assert [ask("A", epoch) for epoch in (1, 8, -1)] == [STALE_EPOCH] * 3
    assert [ask("ghost", FIRST), ask("ghost", -1), ask("", FIRST)] == [UNKNOWN_MEMBER] * 3
    assert group.delete_offsets({read: [0], topic: [0]}) == (0, {read: {0: SUBSCRIBED}, topic: {0: 0}})
    group.consumer_heartbeat("A", -1)
    assert [commit("", -1), commit("ghost", -1), commit("ghost", 1)] == [0, 0, UNKNOWN_MEMBER]


# ---- two members


def test_a_partition_changes_hands_only_when_its_owner_has_given_it_up(
    group: GroupCalls, three: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = three
    group.consumer_join("A", [topic])
    time.sleep(INTERVAL_SECONDS)
    newcomer = group.consumer_join("B", [topic])
    assert (newcomer.epoch, newcomer.assigned) == (3, {})
    assert group.consumer_describe().state == "Reconciling"
    asked = group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2]})
    assert (asked.epoch, asked.assigned) == (2, {topic_id: [0, 1]})
    assert group.consumer_describe().members[0].assigned == {topic: [0, 1, 2]}
    for owned in (None, {topic_id: [0, 1, 2]}):
        assert group.consumer_heartbeat("A", 2, owned=owned) == Beat(0, None, "A", 2, 5_000, None)
    assert group.consumer_heartbeat("B", 3, owned={}).assigned is None
    assert group.commit({topic: {2: 9}}, member_id="A", generation=2) == {topic: {2: 0}}
    assert group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1]}) == Beat(0, None, "A", 3, 5_000, None)
    assert group.consumer_heartbeat("B", 3, owned={}).assigned == {topic_id: [2]}
    assert group.consumer_describe().state == "Stable"


def test_an_epoch_of_the_past_counts_for_what_was_kept_since(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    """An answer may get lost, and a commit may be overtaken by a heartbeat (KIP-1251)."""
    topic, topic_id = three
    group.consumer_join("A", [topic])
    time.sleep(INTERVAL_SECONDS)
    group.consumer_join("B", [topic])
    group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2]})
    assert group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1]}).epoch == 3
    assert group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1]}).epoch == 3
    for owned in (None, {topic_id: [0, 1, 2]}):
        assert refusal(group.consumer_heartbeat("A", 2, owned=owned))[0] == FENCED_EPOCH

    def commit(epoch: int, *partitions: int, version: int = 9) -> set[int]:
        place: Any = topic_id if version >= 10 else topic
        rows = group.commit({place: dict.fromkeys(partitions, 5)}, version, member_id="A", generation=epoch)
        return set(rows[place].values())

    assert commit(2, 0, 1) == commit(2, 0, version=10) == {0}
    assert commit(2, 0, 2) == commit(2, 2) == commit(1, 0) == commit(4, 0) == {STALE_EPOCH}
    assert commit(3, 0, 2) == {0}
    assert group.fetch_offsets({topic: [0]}, 9, member_id="A", member_epoch=2).error_code == STALE_EPOCH


def test_a_group_gets_a_new_assignment_once_in_an_interval(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, topic_id = three
    group.consumer_join("A", [topic])
    at_once = group.consumer_join("B", [topic])
    assert (at_once.epoch, at_once.assigned) == (2, {})
    assert (group.consumer_describe().epoch, group.consumer_describe().assignment_epoch) == (3, 2)
    assert group.consumer_describe().state == "Assigning"
    time.sleep(INTERVAL_SECONDS)
    assert group.consumer_heartbeat("B", 2, owned={}).epoch == 3
    assert group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2]}).assigned == {topic_id: [0, 1]}


def test_unsubscribed_partitions_are_revoked_at_once(
    group: GroupCalls, three: tuple[str, uuid.UUID], new_topic: NewTopic
) -> None:
    topic, topic_id = three
    group.consumer_join("A", [topic])
    changed = group.consumer_heartbeat("A", 2, topics=[new_topic()], owned={topic_id: [0, 1, 2]})
    assert (changed.epoch, changed.assigned) == (2, {})
    time.sleep(INTERVAL_SECONDS)
    assert group.consumer_heartbeat("A", 2, owned={topic_id: [0]}).epoch == 2
    assert group.consumer_heartbeat("A", 2, owned={}).epoch == 3


# ---- static members


def test_a_static_member_is_away_for_a_while_and_keeps_its_place(
    group: GroupCalls, three: tuple[str, uuid.UUID]
) -> None:
    topic, topic_id = three
    name = {"instance_id": "one"}
    group.consumer_join("S1", [topic], **name)
    taken = "cannot join the group because the instance id is owned by S1 member."
    for joining in ("S1", "S2"):
        problem = f"Static member {joining} with instance id one {taken}"
        assert refusal(group.consumer_join(joining, [topic], **name)) == (UNRELEASED_INSTANCE, problem)
    assert refusal(group.consumer_heartbeat("S1", 2, instance_id="two"))[0] == UNKNOWN_MEMBER
    assert group.consumer_heartbeat("S1", -2, **name) == Beat(0, None, "S1", -2, 0, None)
    assert group.consumer_describe().members[0].epoch == -2
    assert group.commit({topic: {0: 5}}, member_id="S1", generation=2, **name) == {topic: {0: STALE_EPOCH}}
    back = group.consumer_join("S2", [topic], **name)
    assert (back.epoch, back.assigned) == (2, {topic_id: [0, 1, 2]})
    fenced = (FENCED_INSTANCE, "Static member S1 with instance id one was fenced by member S2.")
    assert refusal(group.consumer_heartbeat("S1", 2, **name)) == fenced
    assert refusal(group.consumer_heartbeat("S1", -1, **name)) == fenced
    assert group.consumer_describe().epoch == 2


def test_an_administrator_removes_members(group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    group.consumer_join("S1", [three[0]], instance_id="one")
    group.consumer_join("B", [three[0]])
    assert group.leave(("S9", "one")).members[0].error_code == FENCED_INSTANCE
    left = group.leave(("", "one"), ("B", None), ("ghost", None))
    assert [each.error_code for each in left.members] == [0, 0, UNKNOWN_MEMBER]
    assert group.consumer_describe().members == []


# ---- from one protocol to the other


def test_a_group_without_members_changes_its_protocol_and_keeps_its_offsets(
    group: GroupCalls, three: tuple[str, uuid.UUID]
) -> None:
    topic, _ = three
    group.commit({topic: {0: 5}})
    not_new = (GROUP_NOT_FOUND, f"Group {group.group} is not a consumer group.")
    assert refusal(group.consumer_heartbeat("A", 1)) == refusal(group.consumer_heartbeat("A", -1)) == not_new
    assert group.consumer_join("A", [topic]).error == 0
    assert group.listed().group_type == "consumer"
    group.consumer_heartbeat("A", -1)
    member, _ = group.stable_member()
    assert group.listed().group_type == "classic"
    group.leave((member, None))
    assert group.consumer_join("A", [topic]).error == 0
    assert group.committed(topic) == 5
