"""Settings of a broker that clients feel: limits of connections, frames and messages, and what may be created."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.peer import Peer
from tests.conformance.raw import Connection, ConnectionClosedError, i32, request_header
from tests.conformance.raw_batches import batch

BrokerFactory = Callable[..., Any]

API_VERSIONS = 18
UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, TOPIC_DELETION_DISABLED = 3, 10, 73


def is_served(connection: Connection) -> bool:
    try:
        return connection.ask(API_VERSIONS, 0, b"")[:2] == b"\0\0"
    except ConnectionClosedError:
        return False


@pytest.mark.parametrize("setting", ["max_connections_per_ip", "max_connections"])
def test_connections_above_the_limit_are_not_served(broker_factory: BrokerFactory, setting: str) -> None:
    broker = broker_factory(**{setting: 10})
    with ExitStack() as stack:
        served = [stack.enter_context(Connection(broker.bootstrap)) for _ in range(10)]
        assert all(is_served(connection) for connection in served)
        if setting == "max_connections_per_ip":
            with Connection(broker.bootstrap) as one_more:
                assert not is_served(one_more)
            assert all(is_served(connection) for connection in served)
        served[0].close()
        time.sleep(0.2)
        with Connection(broker.bootstrap) as after:
            assert is_served(after)


def test_idle_connections_are_closed(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(connections_max_idle_ms=1000)
    with Connection(broker.bootstrap) as silent, Connection(broker.bootstrap) as busy:
        assert is_served(silent)
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            assert is_served(busy)
            time.sleep(0.1)
        assert silent.is_closed_by_peer(3)


def test_a_smaller_limit_of_frames(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(socket_request_max_bytes=50_000)
    with Connection(broker.bootstrap) as connection:
        connection.send(i32(50_001) + request_header(API_VERSIONS, 0, 1))
        assert connection.is_closed_by_peer()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("small")
        assert peer.produce("small", batch([b"x" * 40_000])).error_code == 0


def test_the_brokers_limit_of_messages_holds_for_new_topics(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(message_max_bytes=2000)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("narrow")
        peer.create_topic("wide", max_message_bytes=5000)
        assert peer.produce("narrow", batch([b"x" * 3000])).error_code == MESSAGE_TOO_LARGE
        assert peer.produce("wide", batch([b"x" * 3000])).error_code == 0


def test_topics_are_not_created_by_use_when_that_is_off(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(auto_create_topics_enable="false")
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "message.timeout.ms": 5000,
            "topic.metadata.propagation.max.ms": 500,
        }
    )
    producer.produce("nowhere", b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    assert [error.code() for error in errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    with Peer(broker.bootstrap) as peer:
        topics = [MetadataRequest.MetadataRequestTopic(name="nowhere", topic_id=None)]
        answer = peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        assert answer.topics[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert peer.topic_names() == set()


def test_created_by_use_with_the_brokers_number_of_partitions(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(num_partitions=4)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("new", b"v")
    assert producer.flush(10) == 0
    assert len(producer.list_topics("new", 5).topics["new"].partitions) == 4


def test_topics_cannot_be_deleted_when_that_is_off(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(delete_topic_enable="false")
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("stays")
        assert peer.delete_topics(["stays"]) == {"stays": TOPIC_DELETION_DISABLED}
        assert "stays" in peer.topic_names()


def test_a_port_in_use_ends_the_start_with_one_clear_line(broker_factory: BrokerFactory) -> None:
    first = broker_factory()
    second = broker_factory(start=False)
    second.settings["listeners"] = f"PLAINTEXT://{first.bootstrap}"
    second.launch()
    assert second.wait() != 0
    second.assert_no_traceback()
    assert str(first.port) in second.log_text


def test_two_brokers_never_share_a_folder(broker_factory: BrokerFactory) -> None:
    first = broker_factory()
    second = broker_factory(start=False)
    second.settings["log.dirs"] = str(first.data_directory)
    second.launch()
    assert second.wait() != 0
    second.assert_no_traceback()
    assert str(first.data_directory) in second.log_text
    with Peer(first.bootstrap) as peer:
        peer.create_topic("unharmed")


@pytest.mark.parametrize(
    ("key", "value"),
    [("log.segment.bytes", "many"), ("listeners", "nonsense"), ("log.cleanup.policy", "sometimes")],
)
def test_a_broken_setting_is_named(broker_factory: BrokerFactory, key: str, value: str) -> None:
    broker = broker_factory(start=False)
    broker.settings[key] = value
    broker.launch()
    assert broker.wait() != 0
    broker.assert_no_traceback()
    assert key in broker.log_text
    assert value in broker.log_text
