"""DeleteRecords: what is below an offset is gone, for every client and after a crash."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.protocol.admin.topics import DeleteRecordsRequest
from tests.conformance.peer import EARLIEST, Peer
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually

NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = 0, 1, 3
INVALID_TOPIC, POLICY_VIOLATION = 17, 44
NewTopic = Callable[..., str]
BrokerFactory = Callable[..., Any]


def delete_records(
    peer: Peer, topic: str, *offsets: tuple[int, int], timeout_ms: int = 5000, version: int = 2
) -> dict[int, tuple[int, int]]:
    """(error, low watermark) by partition."""
    shape = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [shape.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    answer = peer.ask(DeleteRecordsRequest(topics=[shape(name=topic, partitions=rows)], timeout_ms=timeout_ms), version)
    rows = [row for one in answer.topics for row in one.partitions]
    return {row.partition_index: (row.error_code, row.low_watermark) for row in rows}


@pytest.fixture
def ten(new_topic: NewTopic, peer: Peer) -> str:
    """A topic of two partitions with ten batches in the first."""
    topic = new_topic(2)
    for _ in range(10):
        assert peer.produce(topic, batch()).error_code == 0
    return topic


def test_records_below_the_offset_are_gone(ten: str, peer: Peer) -> None:
    assert delete_records(peer, ten, (0, 4)) == {0: (NONE, 4)}
    assert peer.list_offset(ten, EARLIEST).offset == 4
    assert peer.fetch(ten, 3).error_code == OFFSET_OUT_OF_RANGE
    answer = peer.fetch(ten, 4)
    assert (answer.error_code, answer.log_start_offset) == (NONE, 4)
    assert [header.base_offset for header in peer.stored_batches(ten, 4)] == [4, 5, 6, 7, 8, 9]
    assert peer.produce(ten, batch()).log_start_offset == 4


@pytest.mark.parametrize("version", [0, 1, 2])
def test_minus_one_means_the_high_watermark(ten: str, peer: Peer, version: int) -> None:
    assert delete_records(peer, ten, (0, -1), (1, -1), version=version) == {0: (NONE, 10), 1: (NONE, 0)}
    assert peer.list_offset(ten, EARLIEST).offset == 10
    assert peer.fetch(ten, 10, max_wait_ms=0).error_code == NONE
    assert peer.produce(ten, batch()).base_offset == 10


def test_an_offset_below_the_start_changes_nothing(ten: str, peer: Peer) -> None:
    delete_records(peer, ten, (0, 6))
    assert delete_records(peer, ten, (0, 2)) == {0: (NONE, 6)}


@pytest.mark.parametrize("offset", [11, 2**63 - 1, -2, -(2**63)])
def test_an_offset_that_is_not_there_is_refused(ten: str, peer: Peer, offset: int) -> None:
    assert delete_records(peer, ten, (0, offset)) == {0: (OFFSET_OUT_OF_RANGE, -1)}
    assert peer.list_offset(ten, EARLIEST).offset == 0


def test_partitions_and_topics_that_are_not_there(ten: str, topic_name: str, peer: Peer) -> None:
    assert delete_records(peer, ten, (7, 0), (0, 1)) == {7: (UNKNOWN_TOPIC_OR_PARTITION, -1), 0: (NONE, 1)}
    assert delete_records(peer, ten, (-1, 0)) == {-1: (UNKNOWN_TOPIC_OR_PARTITION, -1)}
    assert delete_records(peer, topic_name, (0, 0)) == {0: (UNKNOWN_TOPIC_OR_PARTITION, -1)}
    assert delete_records(peer, "a/..", (0, 0)) == {0: (UNKNOWN_TOPIC_OR_PARTITION, -1)}
    assert delete_records(peer, ten) == {}


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(ten: str, peer: Peer) -> None:
    assert delete_records(peer, ten, (0, 11), (0, 3)) == {0: (NONE, 3)}
    assert delete_records(peer, ten, (0, 5), (0, 11)) == {0: (OFFSET_OUT_OF_RANGE, -1)}


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_the_time_out_does_not_matter_to_one_broker(ten: str, peer: Peer, timeout_ms: int) -> None:
    assert delete_records(peer, ten, (0, 2), timeout_ms=timeout_ms) == {0: (NONE, 2)}


def test_a_topic_that_is_only_compacted_keeps_its_records(new_topic: NewTopic, peer: Peer) -> None:
    compacted = new_topic(cleanup_policy="compact")
    peer.produce(compacted, batch(key=b"k"))
    assert delete_records(peer, compacted, (0, -1)) == {0: (POLICY_VIOLATION, -1)}
    assert delete_records(peer, compacted, (0, 99)) == {0: (POLICY_VIOLATION, -1)}
    both = new_topic(cleanup_policy="compact,delete")
    peer.produce(both, batch(key=b"k"))
    assert delete_records(peer, both, (0, -1)) == {0: (NONE, 1)}


def test_kafka_python_deletes_records(bootstrap: str, ten: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        result = admin.delete_records({TopicPartition(ten, 0): 7})
    finally:
        admin.close()
    assert result[TopicPartition(ten, 0)]["low_watermark"] == 7


def test_an_internal_topic_keeps_its_records(peer: Peer) -> None:
    if "__consumer_offsets" not in peer.topic_names():
        peer.create_topic("__consumer_offsets")
    assert delete_records(peer, "__consumer_offsets", (0, 0)) == {0: (INVALID_TOPIC, -1)}


def test_deleted_records_stay_away_after_a_crash(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_segment_delete_delay_ms=0)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("short", internal_segment_bytes=200)
        for _ in range(10):
            peer.produce("short", batch([b"x" * 40]))
        segments = broker.data_directory / "short-0"
        assert len(list(segments.glob("*.log"))) == 10
        peer.create_topic("inside")
        for _ in range(10):
            peer.produce("inside", batch())
        assert delete_records(peer, "short", (0, 6)) == {0: (NONE, 6)}
        assert delete_records(peer, "inside", (0, 6)) == {0: (NONE, 6)}
        assert sorted(path.stem for path in segments.glob("*.log"))[0] == f"{6:020d}"
        assert eventually(lambda: not list(segments.glob("*.deleted")))
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        for topic in ("short", "inside"):
            assert peer.list_offset(topic, EARLIEST).offset == 6
            assert peer.fetch(topic, 5).error_code == OFFSET_OUT_OF_RANGE
            assert peer.stored_batches(topic, 6)[0].base_offset == 6
            assert peer.end_offset(topic) == 10
