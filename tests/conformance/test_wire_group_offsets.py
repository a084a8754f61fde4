"""Committed offsets on the wire: every version of OffsetCommit, OffsetFetch and OffsetDelete, and refused requests."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetFetchRequest
from tests.conformance.conftest import NewTopic
from tests.conformance.group_calls import GroupCalls, subscription
from tests.conformance.peer import Peer

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

UNKNOWN_PARTITION, METADATA_TOO_LARGE, ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER = 3, 12, 22, 24, 25
REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP, GROUP_NOT_FOUND, SUBSCRIBED, UNKNOWN_TOPIC_ID = 27, 68, 69, 86, 100
BY_NAME, BY_ID = range(2, 10), 10
NOWHERE = "conformance-nowhere"
DELETED_SECONDS_MAX = 10


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


Rows = dict[int, tuple[int, str, int]]


def offsets_of(answer: Any) -> dict[str, Rows]:
    """Topic -> partition -> offset, metadata, error."""

    def rows(topic: Any) -> Rows:
        return {row.partition_index: (row.committed_offset, row.metadata, row.error_code) for row in topic.partitions}

    return {topic.name: rows(topic) for topic in answer.topics}


# ---- committing


@pytest.mark.parametrize("version", BY_NAME)
def test_any_client_commits_to_a_group_without_members(group: GroupCalls, new_topic: NewTopic, version: int) -> None:
    topic = new_topic(partitions=3)
    assert group.commit({topic: {0: 5, 1: 6}}, version) == {topic: {0: 0, 1: 0}}
    assert group.commit({topic: {2: 7}}, version, metadata=None) == {topic: {2: 0}}
    assert group.commit({NOWHERE: {0: 1}}, version) == {NOWHERE: {0: UNKNOWN_PARTITION}}
    mixed = group.commit({NOWHERE: {0: 1}, topic: {0: 9, 3: 1, -1: 1}}, version)
    assert mixed == {NOWHERE: {0: UNKNOWN_PARTITION}, topic: {3: UNKNOWN_PARTITION, -1: UNKNOWN_PARTITION, 0: 0}}
    assert offsets_of(group.fetch_offsets(None)) == {topic: {0: (9, "", 0), 1: (6, "", 0), 2: (7, "", 0)}}


def test_commits_by_topic_id(peer: Peer, group: GroupCalls, topic_name: str) -> None:
    topic_id, stranger = peer.create_topic(topic_name, 2), uuid.uuid4()
    assert group.commit({topic_id: {0: 5, 9: 1}}, BY_ID) == {topic_id: {9: UNKNOWN_PARTITION, 0: 0}}
    assert group.commit({stranger: {0: 5}}, BY_ID) == {stranger: {0: UNKNOWN_TOPIC_ID}}
    assert group.commit({uuid.UUID(int=0): {0: 5}}, BY_ID) == {None: {0: UNKNOWN_TOPIC_ID}}
    assert group.committed(topic_name) == 5


def test_a_commit_of_nothing_is_fine(group: GroupCalls, topic: str) -> None:
    assert group.commit({}) == {}
    assert group.commit({topic: {}}) == {}
    assert group.listed() is None


def test_offsets_below_zero_are_kept_as_they_are(group: GroupCalls, topic: str) -> None:
    for offset in (-5, -1):
        assert group.commit({topic: {0: offset}}) == {topic: {0: 0}}
        assert group.committed(topic) == offset


@pytest.mark.parametrize("letter", ["m", "ä"])
def test_metadata_is_limited_by_its_letters(group: GroupCalls, topic: str, letter: str) -> None:
    assert group.commit({topic: {0: 1}}, metadata=letter * 4_096) == {topic: {0: 0}}
    assert group.commit({topic: {0: 2}}, metadata=letter * 4_097) == {topic: {0: METADATA_TOO_LARGE}}
    if letter == "m":
        assert group.commit({topic: {0: 3}}, metadata=letter * 32_000) == {topic: {0: METADATA_TOO_LARGE}}
    assert group.committed(topic) == 1


def test_a_group_that_does_not_exist_has_no_generations(group: GroupCalls, topic: str) -> None:
    for member in ("", "ghost"):
        assert group.commit({topic: {0: 1}}, 8, member_id=member, generation=5) == {topic: {0: ILLEGAL_GENERATION}}
        assert group.commit({topic: {0: 1}}, 9, member_id=member, generation=5) == {topic: {0: GROUP_NOT_FOUND}}
    assert group.listed() is None


def test_only_members_of_this_generation_commit(group: GroupCalls, topic: str) -> None:
    member, generation = group.stable_member()

    def commit(member_id: str, of: int, **options: Any) -> int:
        return group.commit({topic: {0: of}}, member_id=member_id, generation=of, **options)[topic][0]

    assert commit(member, generation) == 0
    assert commit(member, generation - 1) == ILLEGAL_GENERATION
    assert commit(member, generation + 1) == ILLEGAL_GENERATION
    assert commit(member, -1) == ILLEGAL_GENERATION
    assert commit("ghost", generation) == UNKNOWN_MEMBER
    assert commit("", -1) == UNKNOWN_MEMBER
    assert commit("", generation) == UNKNOWN_MEMBER
    assert commit(member, generation, instance_id="nobody") == UNKNOWN_MEMBER
    assert group.committed(topic) == generation
    group.join(member)
    assert commit(member, generation) == ILLEGAL_GENERATION
    assert commit(member, generation + 1) == REBALANCE_IN_PROGRESS
    group.leave((member, None))
    assert commit("", -1) == 0
    assert commit(member, generation) == UNKNOWN_MEMBER


# ---- fetching


@pytest.mark.parametrize("version", range(1, 10))
def test_some_all_and_no_topics_in_every_version(group: GroupCalls, new_topic: NewTopic, version: int) -> None:
    topic, silent = new_topic(partitions=2), new_topic()
    group.commit({topic: {0: 5}}, metadata="note")
    wanted = {topic: [0, 1, 9, -1], silent: [0], NOWHERE: [0]}
    nothing = (-1, "", 0)
    assert offsets_of(group.fetch_offsets(wanted, version)) == {
        topic: {0: (5, "note", 0), 1: nothing, 9: nothing, -1: nothing},
        silent: {0: nothing},
        NOWHERE: {0: nothing},
    }
    assert offsets_of(group.fetch_offsets({}, version)) == {}
    stranger = GroupCalls(group.peer, f"{group.group}-not")
    assert offsets_of(stranger.fetch_offsets({topic: [0]}, version)) == {topic: {0: nothing}}
    if version >= 2:
        assert offsets_of(group.fetch_offsets(None, version)) == {topic: {0: (5, "note", 0)}}
        assert offsets_of(stranger.fetch_offsets(None, version)) == {}


def test_offsets_by_topic_id(peer: Peer, group: GroupCalls, topic_name: str) -> None:
    topic_id, stranger = peer.create_topic(topic_name), uuid.uuid4()
    group.commit({topic_id: {0: 5}}, BY_ID)
    topics = group.fetch_offsets({stranger: [0], topic_id: [0, 7]}, BY_ID).topics
    rows = {topic.topic_id: [(row.committed_offset, row.error_code) for row in topic.partitions] for topic in topics}
    assert rows == {topic_id: [(5, 0), (-1, 0)], stranger: [(-1, UNKNOWN_TOPIC_ID)]}
    assert [topic.topic_id for topic in group.fetch_offsets(None, BY_ID).topics] == [topic_id]


def test_several_groups_at_once(group: GroupCalls, topic: str) -> None:
    group.commit({topic: {0: 5}})
    shape = OffsetFetchRequest.OffsetFetchRequestGroup
    names = [group.group, f"{group.group}-not", group.group]
    groups = [shape(group_id=name, member_id=None, member_epoch=-1, topics=None) for name in names]
    answer = group.peer.ask(OffsetFetchRequest(groups=groups, require_stable=False), 9)
    assert [(row.group_id, len(row.topics)) for row in answer.groups] == list(zip(names, (1, 0, 1), strict=True))
    assert group.peer.ask(OffsetFetchRequest(groups=[], require_stable=False), 9).groups == []


# ---- deleting


def test_offsets_of_topics_without_subscribers_are_deleted(group: GroupCalls, new_topic: NewTopic) -> None:
    read, other = new_topic(), new_topic()
    assert group.delete_offsets({other: [0]}) == (GROUP_NOT_FOUND, {})
    member, generation = group.stable_member(protocols={"range": subscription(read)})
    group.commit({read: {0: 1}, other: {0: 2}}, member_id=member, generation=generation)
    error, rows = group.delete_offsets({read: [0], other: [0, 9], NOWHERE: [0]})
    assert error == 0
    assert rows == {read: {0: SUBSCRIBED}, other: {0: 0, 9: UNKNOWN_PARTITION}, NOWHERE: {0: UNKNOWN_PARTITION}}
    assert set(offsets_of(group.fetch_offsets(None))) == {read}
    group.leave((member, None))
    assert group.delete_offsets({read: [0]}) == (0, {read: {0: 0}})
    assert offsets_of(group.fetch_offsets(None)) == {}


def test_a_recreated_topic_has_no_offsets_of_the_old_one(peer: Peer, group: GroupCalls, topic_name: str) -> None:
    """250 of them are forgotten in several steps; what is committed for the new topic is not."""
    count = 250
    peer.create_topic(topic_name, count)
    for first in range(0, count, 50):
        group.commit({topic_name: dict.fromkeys(range(first, first + 50), 7)})
    assert peer.delete_topics([topic_name]) == {topic_name: 0}
    peer.create_topic(topic_name, count)
    group.commit({topic_name: {3: 1}})
    assert offsets_of(group.fetch_offsets(None)) == {topic_name: {3: (1, "", 0)}}


def test_members_without_readable_metadata_count_as_subscribed_to_everything(group: GroupCalls, topic: str) -> None:
    group.stable_member(protocols={"range": b"?"})
    assert group.delete_offsets({topic: [0]}) == (0, {topic: {0: SUBSCRIBED}})


def test_groups_that_are_not_of_consumers_must_be_empty(group: GroupCalls, topic: str) -> None:
    group.stable_member(protocol_type="connect")
    assert group.delete_offsets({topic: [0]}) == (NON_EMPTY_GROUP, {})


def test_a_group_needs_a_name_to_delete_but_not_to_commit(peer: Peer, topic: str) -> None:
    nameless = GroupCalls(peer, "")
    assert nameless.delete_offsets({topic: [0]}) == (INVALID_GROUP_ID, {})
    assert nameless.commit({topic: {0: 1}}) == {topic: {0: 0}}
    assert nameless.committed(topic) == 1
    assert nameless.delete() == 0


def test_offsets_go_with_their_topic(group: GroupCalls, new_topic: NewTopic) -> None:
    topic, stays = new_topic(partitions=2), new_topic()
    group.commit({topic: {0: 5, 1: 6}, stays: {0: 7}})
    group.peer.delete_topics([topic])
    deadline = time.monotonic() + DELETED_SECONDS_MAX
    while set(offsets_of(group.fetch_offsets(None))) != {stays}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    group.peer.create_topic(topic, 2)
    assert group.committed(topic) == -1
