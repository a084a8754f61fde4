"""What the coordinators write, byte by byte the same as Apache Kafka 4.3.1: either reads what the other has written."""

import time
import uuid
from collections.abc import Callable

import pytest
from tests.conformance.group_calls import GroupCalls
from tests.conformance.internal_records import Stored, partition_of, records_about
from tests.conformance.java_tools import JavaTools
from tests.conformance.peer import Peer
from tests.conformance.raw import array, compact_array, compact_string, i8, i16, i32, i64, string, uvarint
from tests.conformance.transaction_calls import Producer, TransactionCalls

pytestmark = pytest.mark.usefixtures("coordinator")

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TIME_BYTES = 8
HOST = "/127.0.0.1"


@pytest.fixture
def group(peer: Peer, topic_names: Callable[[], str]) -> GroupCalls:
    return GroupCalls(peer, topic_names())


@pytest.fixture
def three(peer: Peer, topic_name: str, broker: object) -> tuple[str, uuid.UUID]:
    topic_id = peer.create_topic(topic_name, 3)
    if broker is None:
        time.sleep(0.3)  # Apache Kafka's coordinator hears of a topic a little later than its clients
    return topic_name, topic_id


def assert_written(found: list[Stored], expected: list[tuple[bytes, list[bytes] | None]]) -> None:
    """Values are given in pieces, with eight bytes of a time or a hash between two of them."""
    assert [record.key for record in found] == [key for key, _ in expected]
    for record, (key, pieces) in zip(found, expected, strict=True):
        if pieces is None or record.value is None:
            assert record.value is None, key
            assert pieces is None, key
            continue
        position = 0
        for piece in pieces:
            assert record.value[position : position + len(piece)] == piece, (key, record.value, position)
            position += len(piece) + TIME_BYTES
        assert len(record.value) == position - TIME_BYTES, (key, record.value)


def test_a_classic_group(peer: Peer, group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, topic_id = three
    member, generation = group.stable_member(instance_id="one")
    group.commit({topic: {1: 7}}, member_id=member, generation=generation, instance_id="one", metadata="note")
    group.commit({topic_id: {1: 8}}, 10, member_id=member, generation=generation, instance_id="one")
    group.leave((member, "one"))
    group.delete()
    name = string(group.group)
    key = i16(2) + name
    row = string(member) + string("one") + string("peer") + string(HOST) + i32(30_000) + i32(30_000)
    row += i32(1) + b"r" + i32(3) + b"all"
    alive = i16(3) + string("consumer") + i32(1) + string("range") + string(member)
    offset = uvarint(1) + uvarint(0) + uvarint(16) + topic_id.bytes  # one tagged field: the topic's id
    assert_written(
        records_about(peer, OFFSETS, group.group),
        [
            (key, [i16(3) + string("") + i32(0) + string(None) + string(None), array([])]),
            (key, [alive, array([row])]),
            (i16(1) + name + string(topic) + i32(1), [i16(4) + i64(7) + i32(-1) + compact_string("note"), offset]),
            (i16(1) + name + string(topic) + i32(1), [i16(4) + i64(8) + i32(-1) + compact_string(""), offset]),
            (key, [i16(3) + string("consumer") + i32(2) + string(None) + string(None), array([])]),
            (i16(1) + name + string(topic) + i32(1), None),
            (key, None),
        ],
    )


def member_value(topic: str, instance: str | None = None) -> bytes:
    value = i16(0) + compact_string(instance) + compact_string(None) + compact_string("raw") + compact_string(HOST)
    value += compact_array([compact_string(topic)]) + compact_string("") + i32(30_000) + compact_string(None)
    return value + uvarint(1) + uvarint(0) + uvarint(1) + b"\0"  # a tagged field says that it is no classic member


def current_value(epoch: int, previous: int, state: int, *rows: list[tuple[uuid.UUID, list[int], int]]) -> bytes:
    """Assigned and pending partitions, each with the epoch since which the member has them."""
    value = i16(0) + i32(epoch) + i32(previous) + i8(state)
    for topics in rows:
        items = []
        for topic_id, partitions, since in topics:
            epochs = compact_array([i32(since)] * len(partitions))
            tagged = uvarint(1) + uvarint(0) + uvarint(len(epochs)) + epochs
            items.append(topic_id.bytes + compact_array([i32(each) for each in partitions]) + tagged)
        value += compact_array(items)
    return value + uvarint(0)


def target_value(topic_id: uuid.UUID, *partitions: int) -> bytes:
    return i16(0) + compact_array([topic_id.bytes + compact_array([i32(each) for each in partitions]) + b"\0"]) + b"\0"


def epoch_pieces(epoch: int) -> list[bytes]:
    """An epoch with one tagged field of eight bytes: a hash, or a time."""
    return [i16(0) + i32(epoch) + uvarint(1) + uvarint(0) + uvarint(8), b""]


def test_a_group_of_the_new_protocol(peer: Peer, group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, topic_id = three
    group.consumer_join("A", [topic])
    time.sleep(1.1)
    group.consumer_join("B", [topic])
    group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2]})
    group.consumer_heartbeat("A", 2, owned={topic_id: [0, 1]})
    group.consumer_heartbeat("B", 3, owned={})
    group.consumer_heartbeat("B", -1)
    name = string(group.group)
    epoch, target_epoch = i16(3) + name, i16(6) + name

    def key(kind: int, member: str) -> bytes:
        return i16(kind) + name + string(member)

    assert_written(
        records_about(peer, OFFSETS, group.group),
        [
            (key(5, "A"), [member_value(topic)]),
            (epoch, epoch_pieces(2)),
            (key(7, "A"), [target_value(topic_id, 0, 1, 2)]),
            (target_epoch, epoch_pieces(2)),
            (key(8, "A"), [current_value(2, 0, 0, [(topic_id, [0, 1, 2], 2)], [])]),
            (key(5, "B"), [member_value(topic)]),
            (epoch, epoch_pieces(3)),
            (key(7, "A"), [target_value(topic_id, 0, 1)]),
            (key(7, "B"), [target_value(topic_id, 2)]),
            (target_epoch, epoch_pieces(3)),
            (key(8, "B"), [current_value(3, 0, 2, [], [])]),
            (key(8, "A"), [current_value(2, 2, 1, [(topic_id, [0, 1], 2)], [(topic_id, [2], 2)])]),
            (key(8, "A"), [current_value(3, 2, 0, [(topic_id, [0, 1], 2)], [])]),
            (key(8, "B"), [current_value(3, 3, 0, [(topic_id, [2], 3)], [])]),
            (key(8, "B"), None),
            (key(7, "B"), None),
            (key(5, "B"), None),
            (epoch, epoch_pieces(4)),
        ],
    )


def test_a_static_member_of_the_new_protocol(peer: Peer, group: GroupCalls, three: tuple[str, uuid.UUID]) -> None:
    topic, topic_id = three
    group.consumer_join("A", [topic], instance_id="one")
    group.consumer_heartbeat("A", -2, instance_id="one")
    group.consumer_join("B", [topic], instance_id="one")
    name = string(group.group)
    kept = [(topic_id, [0, 1, 2], 0)]

    def key(kind: int, member: str) -> bytes:
        return i16(kind) + name + string(member)

    assert_written(
        records_about(peer, OFFSETS, group.group)[5:],
        [
            (key(8, "A"), [current_value(-2, 0, 0, kept, [])]),
            (key(8, "A"), None),
            (key(7, "A"), None),
            (key(5, "A"), None),
            (key(5, "B"), [member_value(topic, "one")]),
            (key(7, "B"), [target_value(topic_id, 0, 1, 2)]),
            (key(8, "B"), [current_value(0, 0, 0, kept, [])]),
            (key(8, "B"), [current_value(2, 0, 0, kept, [])]),
        ],
    )


def test_a_deleted_group_of_the_new_protocol(peer: Peer, group: GroupCalls, topic: str) -> None:
    group.consumer_join("A", [topic])
    group.commit({topic: {0: 1}}, member_id="A", generation=2)
    group.consumer_heartbeat("A", -1)
    group.delete()
    name = string(group.group)
    assert [(record.key, record.value) for record in records_about(peer, OFFSETS, group.group)][-4:] == [
        (i16(1) + name + string(topic) + i32(0), None),
        (i16(6) + name, None),
        (i16(4) + name, None),
        (i16(3) + name, None),
    ]


def transaction_value(who: Producer, status: int, places: list[tuple[str, int]] | None) -> bytes:
    value = i16(1) + i64(who.producer_id) + i16(who.epoch) + i32(60_000) + i8(status)
    if places is None:
        return value + uvarint(0)
    rows = [compact_string(topic) + compact_array([i32(index)]) + uvarint(0) for topic, index in places]
    return value + compact_array(rows)


def previous(who: Producer, client_version: int) -> bytes:
    """Tagged fields: the producer id before this change, and (unless 0) the transaction version of the client."""
    tagged = uvarint(0) + uvarint(8) + i64(who.producer_id)
    if client_version == 0:
        return uvarint(1) + tagged
    return uvarint(2) + tagged + uvarint(2) + uvarint(2) + i16(client_version)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction(peer: Peer, topic_names: Callable[[], str], group: GroupCalls, topic: str, version: int) -> None:
    transaction = TransactionCalls(peer, topic_names())
    who = transaction.start()
    if version == 1:
        transaction.add(who, {topic: [0]})
        transaction.add_offsets(who, group.group)
        transaction.commit_offsets(who, group.group, {topic: {0: 5}}, 4)
        transaction.end(who, commit=True, version=4)
    else:
        transaction.produce(who, topic, 0)
        transaction.commit_offsets(who, group.group, {topic: {0: 5}})
        transaction.end(who, commit=True)
    transaction.wait_for_state("CompleteCommit")
    records = records_about(peer, TRANSACTIONS, transaction.transactional_id)
    key = i16(0) + string(transaction.transactional_id)
    ended = who if version == 1 else Producer(who.producer_id, who.epoch + 1)
    both = [(topic, 0), (OFFSETS, partition_of(group.group))]
    if not (records[2].value or b"").startswith(transaction_value(who, 1, both)):
        both.reverse()  # Kafka keeps them in no order
    told = previous(who, 0 if version == 1 else 2)
    assert_written(
        records,
        [
            (key, [transaction_value(who, 0, None), i64(-1) + previous(who, 0)]),
            (key, [transaction_value(who, 1, [(topic, 0)]), b"", told]),
            (key, [transaction_value(who, 1, both), b"", told]),
            (key, [transaction_value(ended, 2, both), b"", told]),
            (key, [transaction_value(ended, 4, []), b"", told]),
        ],
    )
    (offset,) = records_about(peer, OFFSETS, group.group)
    assert offset.is_transactional
    assert_written(
        [offset],
        [
            (
                i16(1) + string(group.group) + string(topic) + i32(0),
                [i16(4) + i64(5) + i32(-1) + compact_string(""), uvarint(0)],
            )
        ],
    )


# ---- Kafka's own eyes

FORMATTERS = "org.apache.kafka.tools.consumer."


def read_by_java(java: JavaTools, bootstrap: str, topic: str, formatter: str, expected: str) -> str:
    """The consumer ends when nothing has come for a while: on a busy machine, before its first record."""
    found = ""
    for timeout_ms in ("1500", "15000"):
        server = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", timeout_ms)
        found = java.run("kafka-console-consumer.sh", *server, "--formatter", FORMATTERS + formatter).out
        if expected in found:
            break
    return found


def test_kafkas_formatters_read_all_of_it(
    java: JavaTools, bootstrap: str, peer: Peer, group: GroupCalls, topic: str
) -> None:
    member, generation = group.stable_member(session_ms=45_000)
    group.commit({topic: {0: 4711}}, member_id=member, generation=generation)
    new = GroupCalls(peer, f"{group.group}-new")
    new.consumer_join("A", [topic])
    transaction = TransactionCalls(peer, f"{group.group}-transaction")
    transaction.produce(transaction.start(), topic, 0)
    expected = f'"group":"{group.group}","topic":"{topic}","partition":0'
    offsets = read_by_java(java, bootstrap, OFFSETS, "OffsetsMessageFormatter", expected)
    assert expected in offsets
    assert '"offset":4711' in offsets
    expected = f'"memberId":"{member}"'
    assert expected in read_by_java(java, bootstrap, OFFSETS, "GroupMetadataMessageFormatter", expected)
    expected = f'"transactionalId":"{transaction.transactional_id}"'
    assert expected in read_by_java(java, bootstrap, TRANSACTIONS, "TransactionLogMessageFormatter", expected)
