"""What transactions leave behind, on the wire: offsets of groups, markers, the last stable offset, aborted records."""

import struct
from collections.abc import Callable

import pytest
from tests.conformance.conftest import NewTopic
from tests.conformance.group_calls import GroupCalls
from tests.conformance.peer import EARLIEST, LATEST, Peer, list_offsets_request
from tests.conformance.raw_batches import batch
from tests.conformance.transaction_calls import Producer, TransactionCalls, fetch_committed, producers_of, write_marker

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

UNKNOWN_PARTITION, METADATA_TOO_LARGE, ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER = 3, 12, 22, 24, 25
INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, COORDINATOR_FENCED, UNSTABLE, ABORTABLE = 47, 48, 49, 52, 88, 120
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@pytest.fixture
def calls(peer: Peer, topic_names: Callable[[], str]) -> Callable[[], TransactionCalls]:
    return lambda: TransactionCalls(peer, topic_names())


@pytest.fixture
def transaction(calls: Callable[[], TransactionCalls]) -> TransactionCalls:
    return calls()


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


# ---- offsets in a transaction


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_offsets_count_when_the_transaction_is_committed(
    transaction: TransactionCalls, group: GroupCalls, new_topic: NewTopic, version: int, commit: bool
) -> None:
    topic = new_topic(partitions=3)
    group.commit({topic: {0: 1}})
    who = transaction.start()
    if version < 5:
        missing = ABORTABLE if version == 4 else INVALID_STATE
        assert transaction.commit_offsets(who, group.group, {topic: {0: 4}}, version) == {topic: {0: missing}}
        assert transaction.add_offsets(who, group.group, min(version, 4)) == 0
    offsets = {topic: {0: 5, 1: 6, 9: 7}, "conformance-nowhere": {0: 8}}
    assert transaction.commit_offsets(who, group.group, offsets, version, metadata="m") == {
        topic: {0: 0, 1: 0, 9: UNKNOWN_PARTITION},
        "conformance-nowhere": {0: UNKNOWN_PARTITION},
    }
    long = transaction.commit_offsets(who, group.group, {topic: {2: 9}}, version, metadata="m" * 4_097)
    assert long == {topic: {2: METADATA_TOO_LARGE}}
    assert group.committed(topic) == 1
    for fetch_version in (7, 9):
        stable = group.fetch_offsets({topic: [0, 2]}, fetch_version, require_stable=True)
        assert [row.error_code for row in stable.topics[0].partitions] == [UNSTABLE, 0]
    transaction.end(who, commit=commit, version=5 if version == 5 else 3)
    transaction.wait_for_state("CompleteCommit", "CompleteAbort")
    rows = group.fetch_offsets({topic: [0, 1]}, require_stable=True).topics[0].partitions
    expected = [(5, "m", 0), (6, "m", 0)] if commit else [(1, "", 0), (-1, "", 0)]
    assert [(row.committed_offset, row.metadata, row.error_code) for row in rows] == expected


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_says_which_member_it_is_must_be_current(
    transaction: TransactionCalls, group: GroupCalls, topic: str, version: int
) -> None:
    member, generation = group.stable_member()
    who = transaction.start()
    transaction.add_offsets(who, group.group)

    def commit(**options: object) -> int:
        answer = transaction.commit_offsets(who, group.group, {topic: {0: 4}}, version, **options)
        return answer[topic][0]

    assert commit(member_id=member, generation=generation) == 0
    assert commit() == 0
    assert commit(member_id=member, generation=generation - 1) == ILLEGAL_GENERATION
    assert commit(member_id="ghost", generation=generation) == UNKNOWN_MEMBER
    assert commit(member_id=member, generation=generation, instance_id="nobody") == UNKNOWN_MEMBER


@pytest.mark.parametrize("version", [3, 5])
def test_a_group_without_members_has_no_generation(
    transaction: TransactionCalls, group: GroupCalls, topic: str, version: int
) -> None:
    who = transaction.start()
    transaction.add_offsets(who, group.group)
    ghost = {"member_id": "ghost", "generation": 1}
    assert transaction.commit_offsets(who, group.group, {topic: {0: 4}}, version, **ghost) == {
        topic: {0: ILLEGAL_GENERATION}
    }
    assert group.listed() is None
    assert transaction.commit_offsets(who, group.group, {topic: {0: 4}}, version, member_id="ghost") == {topic: {0: 0}}


def test_offsets_of_strange_transactions(transaction: TransactionCalls, group: GroupCalls, topic: str) -> None:
    for version in (4, 5):
        refused = transaction.commit_offsets(Producer(1, 0), group.group, {topic: {0: 1}}, version)
        assert refused == {topic: {0: INVALID_MAPPING}}
    assert transaction.add_offsets(Producer(1, 0), group.group) == INVALID_MAPPING
    assert transaction.commit_offsets(transaction.start(), "", {topic: {0: 1}}, 3) == {topic: {0: INVALID_GROUP_ID}}
    assert group.listed() is None


def test_an_ordinary_commit_after_a_transactional_one_stays(
    transaction: TransactionCalls, group: GroupCalls, topic: str
) -> None:
    who = transaction.start()
    transaction.commit_offsets(who, group.group, {topic: {0: 4}})
    group.commit({topic: {0: 77}})
    transaction.end(who, commit=True)
    transaction.wait_for_state("CompleteCommit")
    assert group.committed(topic) == 77


def test_deleting_a_group_deletes_what_is_pending(transaction: TransactionCalls, group: GroupCalls, topic: str) -> None:
    who = transaction.start()
    transaction.commit_offsets(who, group.group, {topic: {0: 4}})
    assert group.delete_offsets({topic: [0]}) == (0, {topic: {0: 0}})
    transaction.end(who, commit=True)
    transaction.wait_for_state("CompleteCommit")
    assert group.committed(topic) == -1


# ---- reading


def test_read_committed_stops_at_open_transactions_and_names_aborted_ones(
    peer: Peer, calls: Callable[[], TransactionCalls], topic: str
) -> None:
    def view(offset: int) -> tuple[int, list[int], bool]:
        answer = fetch_committed(peer, topic, offset)
        aborted = [each.first_offset for each in answer.aborted_transactions]
        return answer.last_stable_offset, aborted, bool(answer.records)

    def end_offset(isolation: int, timestamp: int = LATEST, version: int = 8) -> int:
        request = list_offsets_request(topic, timestamp, isolation_level=isolation)
        return int(peer.ask(request, version).topics[0].partitions[0].offset)

    doomed, good = calls(), calls()
    first, second = doomed.start(), good.start()
    doomed.produce(first, topic, 0, [b"a", b"b"])
    good.produce(second, topic, 0, [b"c"])
    peer.produce(topic, batch([b"plain"]))
    assert view(0) == view(3) == (0, [], False)
    assert [end_offset(READ_UNCOMMITTED), end_offset(READ_COMMITTED)] == [4, 0]
    assert end_offset(READ_COMMITTED, EARLIEST) == 0
    assert end_offset(READ_COMMITTED, version=2) == 0
    plain = peer.fetch(topic, 0, max_wait_ms=0)
    assert (plain.last_stable_offset, plain.aborted_transactions, bool(plain.records)) == (0, None, True)
    assert sorted(each.current_txn_start_offset for each in producers_of(peer, topic).active_producers) == [0, 2]
    doomed.end(first, commit=False)
    doomed.wait_for_state("CompleteAbort")
    assert [view(0), view(2)] == [(2, [0], True), (2, [], False)]
    good.end(second, commit=True)
    good.wait_for_state("CompleteCommit")
    assert [view(0), view(4), view(5), view(6)] == [(6, [0], True), (6, [0], True), (6, [], True), (6, [], False)]
    assert end_offset(READ_COMMITTED) == 6
    ended = [
        (each.producer_epoch, each.current_txn_start_offset) for each in producers_of(peer, topic).active_producers
    ]
    assert ended == [(1, -1), (1, -1)]


def test_a_marker_says_how_its_transaction_ended(peer: Peer, transaction: TransactionCalls, topic: str) -> None:
    who = transaction.start()
    transaction.produce(who, topic, 0)
    transaction.end(who, commit=True)
    transaction.wait_for_state("CompleteCommit")
    marker = bytes(peer.fetch(topic, 1, max_wait_ms=0).records)
    (header,) = peer.stored_batches(topic, 1)
    assert header.attributes & 0x30 == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (who.producer_id, who.epoch + 1, -1)
    key_and_value = b"\x08" + struct.pack(">hh", 0, 1) + b"\x0c" + struct.pack(">hi", 0, 0)
    assert marker[-13:] == key_and_value + b"\0"


# ---- markers by hand


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_ends_a_transaction_in_one_partition(
    peer: Peer, transaction: TransactionCalls, topic: str, version: int
) -> None:
    who = transaction.start()
    transaction.produce(who, topic, 0)
    abort = {"commit": False, "version": version}
    assert write_marker(peer, who, "conformance-nowhere", **abort) == UNKNOWN_PARTITION
    assert write_marker(peer, who, topic, partition=7, **abort) == UNKNOWN_PARTITION
    assert write_marker(peer, Producer(who.producer_id, -1), topic, **abort) == -1
    assert fetch_committed(peer, topic).last_stable_offset == 0
    assert write_marker(peer, who, topic, coordinator_epoch=3, **abort) == 0
    assert fetch_committed(peer, topic).last_stable_offset == 2
    assert write_marker(peer, who, topic, coordinator_epoch=2, **abort) == COORDINATOR_FENCED
    assert write_marker(peer, who, topic, coordinator_epoch=3, **abort) == 0
    assert write_marker(peer, Producer(who.producer_id, -1), topic, coordinator_epoch=3, **abort) == -1
    assert write_marker(peer, Producer(-1, 0), topic, coordinator_epoch=3, **abort) == -1
    assert transaction.describe().transaction_state == "Ongoing"
    assert transaction.produce(who, topic, 1).error_code == 0
    newer = Producer(who.producer_id, who.epoch + 1)
    assert write_marker(peer, newer, topic, coordinator_epoch=3, **abort) == 0
    assert write_marker(peer, who, topic, coordinator_epoch=3, **abort) == INVALID_EPOCH
    assert write_marker(peer, who, topic, coordinator_epoch=2, **abort) == INVALID_EPOCH
