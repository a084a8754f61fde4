"""Groups and transactions that Apache Kafka 4.3.1 has kept (tests/data, made by make_kafka_coordinators.py) live on."""

import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conformance.group_calls import GroupCalls
from tests.conformance.make_kafka_coordinators import TARGET
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import CONTROL, LENGTH_COVERS_FROM, BatchHeader, read_batches
from tests.conformance.transaction_calls import Producer, TransactionCalls, fetch_committed, producers_of
from tests.conftest import Broker, ottla_command

pytestmark = pytest.mark.needs_ottla

SETTINGS = {"log.cleaner.enable": "false", "group.initial.rebalance.delay.ms": "0"}
FENCED_INSTANCE = 82
UNSTABLE = 88
LOADED_SECONDS_MAX = 10
PREPARE_OF_COMMITTED = 4  # the offset of its record


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "kafka-logs"
    with tarfile.open(TARGET) as archive:
        archive.extractall(folder, filter="data")
    return folder


def start_on(folder: Path, place: Path) -> Broker:
    broker = Broker(place, SETTINGS)
    command = [*ottla_command(), "migrate", "from-kafka", str(folder), "--all", "--internal"]
    done = subprocess.run(
        [*command, "--data", str(broker.data_directory)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return broker.start()


@pytest.fixture(scope="module")
def taken_over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    place = tmp_path_factory.mktemp("taken")
    with tarfile.open(TARGET) as archive:
        archive.extractall(place / "kafka-logs", filter="data")
    broker = start_on(place / "kafka-logs", place / "ottla")
    try:
        wait_until_loaded(broker)
        yield broker
        broker.stop()
    finally:
        broker.discard()


def wait_until_loaded(broker: Broker) -> None:
    deadline = time.monotonic() + LOADED_SECONDS_MAX
    with Peer(broker.bootstrap) as peer:
        while GroupCalls(peer, "simple").describe().group_state != "Empty":
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def kafkas(taken_over: Broker) -> Iterator[Peer]:
    with Peer(taken_over.bootstrap) as peer:
        yield peer


def cut_before(folder: Path, is_wanted: Callable[[BatchHeader], bool]) -> None:
    """Cut the log off before the first such batch."""
    path = folder / f"{0:020}.log"
    data = path.read_bytes()
    size = 0
    for header in read_batches(data):
        if is_wanted(header):
            break
        size += LENGTH_COVERS_FROM + header.length
    path.write_bytes(data[:size])


def offsets(peer: Peer, group: str) -> dict[int, int]:
    topics = GroupCalls(peer, group).fetch_offsets(None).topics
    return {row.partition_index: row.committed_offset for topic in topics for row in topic.partitions}


def test_all_offsets_are_there(kafkas: Peer) -> None:
    found = {
        name: offsets(kafkas, name)
        for name in ("classic-stable", "classic-empty", "simple", "deleted", "new-two", "new-empty", "in-transaction")
    }
    assert found == {
        "classic-stable": {0: 10, 1: 11},
        "classic-empty": {0: 20},
        "simple": {0: 32},
        "deleted": {},
        "new-two": {0: 50},
        "new-empty": {2: 60},
        "in-transaction": {0: 70},
    }
    (topic,) = GroupCalls(kafkas, "classic-empty").fetch_offsets({"orders": [0]}).topics
    assert topic.partitions[0].metadata == "note"


def test_classic_groups_are_as_they_were(kafkas: Peer) -> None:
    states = {name: GroupCalls(kafkas, name).describe().group_state for name in ("classic-empty", "simple", "deleted")}
    assert states == {"classic-empty": "Empty", "simple": "Empty", "deleted": "Dead"}
    group = GroupCalls(kafkas, "classic-stable")
    row = group.describe()
    assert (row.group_state, row.protocol_type, row.protocol_data) == ("Stable", "consumer", "range")
    (member,) = row.members
    assert (member.group_instance_id, bytes(member.member_assignment)) == ("one", b"all")
    assert group.heartbeat(member.member_id, 1, instance_id="one") == 0
    assert group.join(instance_id="one").generation_id == 1
    assert group.heartbeat(member.member_id, 1, instance_id="one") == FENCED_INSTANCE


def test_groups_of_the_new_protocol_continue_at_their_offsets(kafkas: Peer) -> None:
    two = GroupCalls(kafkas, "new-two")
    row = two.consumer_describe()
    assert (row.state, row.epoch, row.assignment_epoch) == ("Reconciling", 3, 3)
    assert {each.member_id: (each.epoch, each.assigned, each.target) for each in row.members} == {
        "A": (2, {"orders": [0, 1, 2]}, {"orders": [0, 1]}),
        "B": (3, {}, {"orders": [2]}),
    }
    (topic,) = two.fetch_offsets(None, 10).topics
    assert two.consumer_heartbeat("B", 3, owned={}).assigned is None
    advanced = two.consumer_heartbeat("A", 2, owned={topic.topic_id: [0, 1]})
    assert advanced.error == 0
    assert GroupCalls(kafkas, "new-empty").listed().group_state == "Empty"
    assert GroupCalls(kafkas, "new-deleted").listed() is None
    static = GroupCalls(kafkas, "new-static")
    assert static.consumer_describe().assignor == "range"
    assert static.consumer_describe().members[0].epoch == -2
    back = static.consumer_join("S2", ["orders"], instance_id="one")
    assert (back.error, back.assigned) == (0, {topic.topic_id: [0, 1, 2]})
    pattern = GroupCalls(kafkas, "new-regex").consumer_describe().members[0]
    assert (pattern.regex, pattern.assigned) == ("ord.*", {"orders": [0, 1, 2]})


def test_transactions_are_as_they_were(kafkas: Peer) -> None:
    rows = {name: TransactionCalls(kafkas, name).describe() for name in ("empty", "committed", "aborted", "open")}
    states = {name: (row.transaction_state, row.producer_epoch) for name, row in rows.items()}
    assert states == {
        "empty": ("Empty", 0),
        "committed": ("CompleteCommit", 0),
        "aborted": ("CompleteCommit", 2),
        "open": ("Ongoing", 0),
    }
    assert {(each.topic, *each.partitions) for each in rows["open"].topics} == {
        ("orders", 0),
        ("__consumer_offsets", 0),
    }
    assert rows["empty"].transaction_timeout_ms == 30_000


def test_an_open_transaction_is_ended(unpacked: Path, tmp_path: Path) -> None:
    broker = start_on(unpacked, tmp_path / "ottla")
    try:
        wait_until_loaded(broker)
        with Peer(broker.bootstrap) as peer:
            opened = TransactionCalls(peer, "open")
            row = opened.describe()
            starts = [each.current_txn_start_offset for each in producers_of(peer, "orders").active_producers]
            assert fetch_committed(peer, "orders").last_stable_offset == max(starts)
            group = GroupCalls(peer, "in-transaction")
            unstable = group.fetch_offsets({"orders": [1]}, require_stable=True).topics[0].partitions[0]
            assert unstable.error_code == UNSTABLE
            assert opened.end(Producer(row.producer_id, row.producer_epoch), commit=True).error_code == 0
            opened.wait_for_state("CompleteCommit")
            assert offsets(peer, "in-transaction") == {0: 70, 1: 72}
            assert fetch_committed(peer, "orders").last_stable_offset == peer.end_offset("orders")
        broker.stop()
    finally:
        broker.discard()


def test_transactions_prepared_by_kafka_are_completed(unpacked: Path, tmp_path: Path) -> None:
    """As if Kafka had died between the decision and its markers."""
    cut_before(unpacked / "__transaction_state-0", lambda batch: batch.base_offset > PREPARE_OF_COMMITTED)
    for folder in ("orders-0", "__consumer_offsets-0"):
        cut_before(unpacked / folder, lambda batch: batch.attributes & CONTROL != 0)
    broker = start_on(unpacked, tmp_path / "ottla")
    try:
        wait_until_loaded(broker)
        with Peer(broker.bootstrap) as peer:
            TransactionCalls(peer, "committed").wait_for_state("CompleteCommit")
            assert offsets(peer, "in-transaction") == {0: 70}
            (producer,) = producers_of(peer, "orders").active_producers
            assert producer.current_txn_start_offset == -1
            assert fetch_committed(peer, "orders").last_stable_offset == 2
        broker.stop()
    finally:
        broker.discard()
