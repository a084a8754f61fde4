"""A broker that stops or is killed and comes back: nothing acknowledged is lost, nothing is stored twice."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.peer import Peer, list_offsets_request
from tests.conformance.raw_batches import batch, read_batches
from tests.conformance.test_offsets import end_of_epoch

BrokerFactory = Callable[..., Any]

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER = 74, 75, 45
KILLS = 5


def sequenced(producer_id: int, sequence: int) -> bytes:
    return batch([b"%d" % sequence], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def all_offsets(peer: Peer, topic: str) -> list[int]:
    offsets: list[int] = []
    while batches := peer.stored_batches(topic, offsets[-1] + 1 if offsets else 0):
        for header in batches:
            offsets += range(header.base_offset, header.next_offset)
    return offsets


def leader_epoch(peer: Peer, topic: str) -> int:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic, topic_id=None)]
    answer = peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    return int(answer.topics[0].partitions[0].leader_epoch)


def end_process(broker: Any, way: str) -> None:
    if way == "stop":
        broker.stop()
    else:
        broker.kill9()


@pytest.mark.parametrize("way", ["stop", "kill -9"])
def test_records_topics_and_producers_survive(broker_factory: BrokerFactory, way: str) -> None:
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        topic_id = peer.create_topic("kept", partitions=2, retention_ms=123_456_789)
        producer_id = peer.new_producer_id()
        for sequence in range(8):
            assert peer.produce("kept", sequenced(producer_id, sequence)).base_offset == sequence
        stored = bytes(peer.fetch("kept", 0).records)
    end_process(broker, way)
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert "kept" in peer.topic_names()
        described = peer.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12).topics
        assert [(row.topic_id, len(row.partitions)) for row in described if row.name == "kept"] == [(topic_id, 2)]
        assert bytes(peer.fetch("kept", 0).records) == stored
        assert peer.produce("kept", sequenced(producer_id, 7)).base_offset == 7, "still known as a duplicate"
        assert peer.produce("kept", sequenced(producer_id, 1)).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert peer.produce("kept", sequenced(producer_id, 9)).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert peer.produce("kept", sequenced(producer_id, 8)).base_offset == 8
        assert peer.new_producer_id() > producer_id


@pytest.mark.parametrize("way", ["stop", "kill -9"])
def test_a_leader_that_comes_back_begins_a_new_epoch(broker_factory: BrokerFactory, way: str) -> None:
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("led")
        assert leader_epoch(peer, "led") == 0
        assert peer.produce("led", batch()).base_offset == 0
    end_process(broker, way)
    broker.start()
    with Peer(broker.bootstrap) as peer:
        epoch = leader_epoch(peer, "led")
        assert epoch > 0
        assert peer.fetch("led", 0, leader_epoch=epoch).error_code == 0
        assert peer.fetch("led", 0, leader_epoch=epoch - 1).error_code == FENCED_LEADER_EPOCH
        assert peer.fetch("led", 0, leader_epoch=epoch + 1).error_code == UNKNOWN_LEADER_EPOCH
        answer = peer.ask(list_offsets_request("led", -1, leader_epoch=epoch - 1), 8).topics[0].partitions[0]
        assert answer.error_code == FENCED_LEADER_EPOCH
        assert end_of_epoch(peer, 4, "led", 0, epoch - 1, 0) == (FENCED_LEADER_EPOCH, -1, -1)
        assert end_of_epoch(peer, 4, "led", 0, -1, 0) == (0, 0, 1)
        assert peer.produce("led", batch()).base_offset == 1
        assert [header.leader_epoch for header in peer.stored_batches("led")] == [0, epoch]
        assert end_of_epoch(peer, 4, "led", 0, -1, 0) == (0, 0, 1)
        assert end_of_epoch(peer, 4, "led", 0, -1, epoch) == (0, epoch, 2)


def test_kill_9_under_load_loses_and_doubles_nothing(broker_factory: BrokerFactory) -> None:
    """A few rounds of what a longer test does a hundred times."""
    broker = broker_factory()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    acknowledged: dict[int, bytes] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged[message.offset()] = message.value()

    count = 0
    for _ in range(KILLS):
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            producer.produce("load", b"%d" % count, on_delivery=delivered)
            producer.poll(0)
            count += 1
            if count % 20 == 0:
                time.sleep(0.001)
        broker.kill9()
        broker.start()
    assert producer.flush(30) == 0
    assert len(acknowledged) == count
    with Peer(broker.bootstrap) as peer:
        assert all_offsets(peer, "load") == list(range(count))
    assert [acknowledged[offset] for offset in range(count)] == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("cut_bytes", [1, 40, 70])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(broker_factory: BrokerFactory, cut_bytes: int) -> None:
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("torn")
        for _ in range(5):
            peer.produce("torn", batch())
    broker.kill9()
    segment = Path(broker.data_directory) / "torn-0" / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes()[:-cut_bytes])
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert peer.end_offset("torn") == 4
        assert peer.produce("torn", batch()).base_offset == 4
        assert len(read_batches(bytes(peer.fetch("torn", 0).records))) == 5


def test_lost_indexes_are_built_again(broker_factory: BrokerFactory) -> None:
    broker = broker_factory()
    now = int(time.time() * 1000)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("indexed", index_interval_bytes=100)
        for number in range(50):
            peer.produce("indexed", batch([b"x" * 100], timestamp=now - 50_000 + number * 1000))
    broker.stop()
    for kind in ("index", "timeindex", "snapshot"):
        for path in (Path(broker.data_directory) / "indexed-0").glob(f"*.{kind}"):
            path.unlink()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        for number in (0, 7, 49):
            assert peer.list_offset("indexed", now - 50_000 + number * 1000).offset == number
            assert peer.stored_batches("indexed", number)[0].base_offset == number
