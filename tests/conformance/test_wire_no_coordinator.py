"""Requests to coordinators whose internal topics do not exist yet: a new broker.

On a foreign broker this runs as long as nothing has asked for a coordinator there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import DescribeTransactionsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.producer import EndTxnRequest
from tests.conformance.group_calls import GroupCalls
from tests.conformance.peer import Peer
from tests.conformance.transaction_calls import Producer, TransactionCalls
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
INTERNAL = {"__consumer_offsets", "__transaction_state"}
TOPIC = "conformance-no-coordinator"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    if FOREIGN_BOOTSTRAP:
        yield FOREIGN_BOOTSTRAP
        return
    broker = Broker(tmp_path / "broker", {})
    try:
        yield broker.start().bootstrap
        broker.stop()
    finally:
        broker.discard()


@pytest.fixture
def peer(address: str) -> Iterator[Peer]:
    with Peer(address) as connected:
        names = connected.topic_names()
        if FOREIGN_BOOTSTRAP and INTERNAL & names:
            pytest.skip("this broker has its internal topics")
        if TOPIC not in names:
            connected.create_topic(TOPIC)
        yield connected
        assert not INTERNAL & connected.topic_names(), "a request that is refused creates nothing"
        connected.delete_topics([TOPIC])


def test_requests_about_groups_are_sent_to_another_coordinator(peer: Peer) -> None:
    group = GroupCalls(peer, "nobodys")
    for version in range(10):
        for member_id in ("", "x"):
            refused = group.join(member_id, version)
            assert (refused.error_code, refused.member_id) == (NOT_COORDINATOR, "")
    for version in range(6):
        assert group.sync("x", 1, version=version).error_code == NOT_COORDINATOR
        assert group.leave(("x", None), version=version).error_code == NOT_COORDINATOR
        assert group.describe(version).error_code == NOT_COORDINATOR
    for version in range(5):
        assert group.heartbeat("x", 1, version) == NOT_COORDINATOR
    for version in range(3):
        assert group.delete(version) == NOT_COORDINATOR
    for version in (2, 5, 8, 9):
        assert group.commit({TOPIC: {0: 1}}, version) == {TOPIC: {0: NOT_COORDINATOR}}
    assert group.delete_offsets({TOPIC: [0]}) == (NOT_COORDINATOR, {})
    joined = group.consumer_join("A", [TOPIC])
    assert (joined.error, joined.member_id, joined.epoch) == (NOT_COORDINATOR, None, 0)
    assert group.consumer_heartbeat("A", -1).error == NOT_COORDINATOR
    assert group.consumer_describe().error == NOT_COORDINATOR
    listed = peer.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5)
    assert (listed.error_code, listed.groups) == (0, [])


def test_offset_fetch_reports_it_for_each_partition_and_later_for_each_group(peer: Peer) -> None:
    group = GroupCalls(peer, "nobodys")
    oldest = group.fetch_offsets({TOPIC: [0, 1]}, 1)
    rows = [(row.partition_index, row.error_code) for topic in oldest.topics for row in topic.partitions]
    assert rows == [(0, NOT_COORDINATOR), (1, NOT_COORDINATOR)]
    for version in range(2, 8):
        for wanted in ({TOPIC: [0, 1]}, None):
            answer = group.fetch_offsets(wanted, version, require_stable=version == 7)
            assert (answer.error_code, answer.topics) == (NOT_COORDINATOR, [])
    shape = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = shape.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    asked = [
        shape(group_id="one", member_id=None, member_epoch=-1, topics=[topic]),
        shape(group_id="two", member_id=None, member_epoch=-1, topics=None),
    ]
    for version in (8, 9):
        answers = peer.ask(OffsetFetchRequest(groups=asked, require_stable=False), version).groups
        told = [(each.group_id, each.error_code, each.topics) for each in answers]
        assert told == [("one", NOT_COORDINATOR, []), ("two", NOT_COORDINATOR, [])]


def test_requests_about_transactions_are_sent_to_another_coordinator(peer: Peer) -> None:
    transaction = TransactionCalls(peer, "nobodys")
    who = Producer(1, 0)
    for version in (0, 3, 5):
        assert transaction.init(version).error_code == NOT_COORDINATOR
        assert transaction.add(who, {TOPIC: [0]}, version) == {TOPIC: {0: NOT_COORDINATOR}}
        ending = EndTxnRequest(transactional_id="nobodys", producer_id=1, producer_epoch=0, committed=True)
        assert peer.ask(ending, version).error_code == NOT_COORDINATOR
    for version in (0, 4):
        assert transaction.add_offsets(who, "nobodys", version) == NOT_COORDINATOR
    for version in (0, 3, 4, 5):
        answer = transaction.commit_offsets(who, "nobodys", {TOPIC: {0: 1}}, version)
        assert answer == {TOPIC: {0: COORDINATOR_NOT_AVAILABLE}}
    (state,) = peer.ask(DescribeTransactionsRequest(transactional_ids=["nobodys"]), 0).transaction_states
    assert state.error_code == NOT_COORDINATOR
