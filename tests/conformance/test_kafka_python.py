"""kafka-python, used as its users do: KafkaProducer, KafkaConsumer, TopicPartition, KafkaAdminClient (no groups)."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tests.conformance.conftest import NewTopic
from tests.conformance.waiting import eventually

WAIT_SECONDS = 10


@pytest.fixture
def make_producer(bootstrap: str) -> Iterator[Callable[..., KafkaProducer]]:
    made: list[KafkaProducer] = []

    def make(**settings: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=bootstrap, **settings))
        return made[-1]

    yield make
    for producer in made:
        producer.close(WAIT_SECONDS)


@pytest.fixture
def make_consumer(bootstrap: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*topics: str, **settings: Any) -> KafkaConsumer:
        made.append(KafkaConsumer(*topics, bootstrap_servers=bootstrap, **settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_a_producer_sends_and_waits_for_its_future(make_producer: Callable[..., KafkaProducer], topic: str) -> None:
    future = make_producer().send(topic=topic, value=b"Hello", partition=0)
    metadata = future.get(timeout=WAIT_SECONDS)
    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
    assert metadata.timestamp > 0


def test_asynchronous_sends_are_all_there_after_flush(make_producer: Callable[..., KafkaProducer], topic: str) -> None:
    producer = make_producer(linger_ms=5)
    futures = [producer.send(topic, b"%d" % number) for number in range(200)]
    producer.flush(WAIT_SECONDS)
    assert [future.value.offset for future in futures] == list(range(200))


def test_callbacks_tell_success_and_failure(make_producer: Callable[..., KafkaProducer], topic: str) -> None:
    producer, told = make_producer(max_request_size=5_000_000), []
    producer.send(topic, b"small").add_callback(lambda metadata: told.append(metadata.offset))
    producer.flush(WAIT_SECONDS)
    producer.send(topic, b"x" * 2_000_000).add_errback(lambda error: told.append(type(error)))
    producer.flush(WAIT_SECONDS)
    assert told == [0, MessageSizeTooLargeError]


def test_an_iterating_consumer_ends_at_its_timeout(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], topic: str
) -> None:
    producer = make_producer(key_serializer=str.encode, value_serializer=str.encode)
    for number in range(50):
        producer.send(topic, key=f"key {number}", value=f"value {number}", headers=[("number", b"%d" % number)])
    producer.flush(WAIT_SECONDS)
    consumer = make_consumer(topic, client_id="client_1", auto_offset_reset="earliest", consumer_timeout_ms=1000)
    rows = [(row.offset, row.key.decode(), row.value.decode(), row.headers) for row in consumer]
    assert rows == [(n, f"key {n}", f"value {n}", [("number", b"%d" % n)]) for n in range(50)]


def test_a_blocking_consumer_sees_what_comes_later(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], topic: str
) -> None:
    consumer = make_consumer(consumer_timeout_ms=WAIT_SECONDS * 1000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_end()
    assert consumer.position(TopicPartition(topic, 0)) == 0
    producer = make_producer()
    timer = threading.Timer(0.3, lambda: [producer.send(topic, b"later"), producer.flush()])
    timer.start()
    started = time.monotonic()
    assert next(consumer).value == b"later"
    assert time.monotonic() - started < 3
    timer.join()


def test_assign_seek_and_offsets(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    home, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    start = int(time.time() * 1000) - 100_000
    producer = make_producer()
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=start + number * 1000)
    producer.flush(WAIT_SECONDS)
    consumer = make_consumer(consumer_timeout_ms=2000)
    consumer.assign([home, other])
    assert consumer.beginning_offsets([home, other]) == {home: 0, other: 0}
    assert consumer.end_offsets([home, other]) == {home: 10, other: 0}
    found = consumer.offsets_for_times({home: start + 4500, other: start})
    assert (found[home].offset, found[home].timestamp, found[other]) == (5, start + 5000, None)
    consumer.seek(home, 7)
    assert consumer.position(home) == 7
    assert [next(consumer).value for _ in range(3)] == [b"7", b"8", b"9"]
    consumer.seek_to_beginning(home)
    assert next(consumer).value == b"0"
    assert consumer.partitions_for_topic(topic) == {0, 1}
    assert topic in consumer.topics()


def test_poll_returns_batches_and_pause_holds_a_partition(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    home, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = make_producer()
    for partition in (0, 1):
        producer.send(topic, b"%d" % partition, partition=partition)
    producer.flush(WAIT_SECONDS)
    consumer = make_consumer(auto_offset_reset="earliest")
    consumer.assign([home, other])
    consumer.pause(other)
    polled = consumer.poll(timeout_ms=WAIT_SECONDS * 1000)
    assert {partition: [row.value for row in rows] for partition, rows in polled.items()} == {home: [b"0"]}
    consumer.resume(other)
    polled = consumer.poll(timeout_ms=WAIT_SECONDS * 1000)
    assert {partition: [row.value for row in rows] for partition, rows in polled.items()} == {other: [b"1"]}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_all_kinds_of_acks(make_producer: Callable[..., KafkaProducer], topic: str, acks: int | str) -> None:
    producer = make_producer(acks=acks, enable_idempotence=False)
    metadata = producer.send(topic, b"value").get(timeout=WAIT_SECONDS)
    assert (metadata.topic, metadata.partition) == (topic, 0)
    assert acks == 0 or metadata.offset == 0


def test_gzip_and_nulls(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], topic: str
) -> None:
    producer = make_producer(compression_type="gzip", linger_ms=20)
    values = [b"value " * 100, None, b""]
    for value in values:
        producer.send(topic, value, key=b"key")
    producer.flush(WAIT_SECONDS)
    consumer = make_consumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=1000)
    assert [row.value for row in consumer] == values


def test_an_idempotent_producer_keeps_order(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], topic: str
) -> None:
    producer = make_producer(enable_idempotence=True, batch_size=200)
    for number in range(300):
        producer.send(topic, b"%d" % number)
    producer.flush(WAIT_SECONDS)
    consumer = make_consumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=1000)
    assert [int(row.value) for row in consumer] == list(range(300))


def test_the_same_key_goes_to_the_same_partition(
    make_producer: Callable[..., KafkaProducer], new_topic: NewTopic
) -> None:
    topic, producer = new_topic(partitions=5), make_producer()
    homes = [
        {key: producer.send(topic, b"v", key=b"%d" % key).get(WAIT_SECONDS).partition for key in range(20)}
        for _ in range(2)
    ]
    assert homes[0] == homes[1]
    assert len(set(homes[0].values())) > 1


def test_an_unknown_topic_is_created_by_sending(
    make_producer: Callable[..., KafkaProducer], topic_name: str, admin: KafkaAdminClient
) -> None:
    producer = make_producer()
    assert producer.send(topic_name, b"v").get(timeout=WAIT_SECONDS).offset == 0
    assert producer.partitions_for(topic_name) == {0}
    assert topic_name in admin.list_topics()


def test_read_committed_reads_plain_records(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], topic: str
) -> None:
    make_producer().send(topic, b"v").get(WAIT_SECONDS)
    consumer = make_consumer(
        topic, auto_offset_reset="earliest", isolation_level="read_committed", consumer_timeout_ms=1000
    )
    assert [row.value for row in consumer] == [b"v"]


def test_admin_topics(admin: KafkaAdminClient, topic_name: str) -> None:
    admin.create_topics({topic_name: {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "99"}}})

    def partitions() -> list[int]:
        (described,) = admin.describe_topics([topic_name])
        return [row["leader_id"] for row in described["partitions"]]

    assert eventually(lambda: partitions() == [1, 1, 1])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic_name])
    admin.create_partitions({topic_name: 5})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic_name: 2})
    assert eventually(lambda: len(partitions()) == 5)
    paged = admin.describe_topic_partitions([topic_name], response_partition_limit=2)
    assert [row["partition_index"] for row in paged["topics"][0]["partitions"]] == [0, 1]
    assert paged["next_cursor"] == {"topic_name": topic_name, "partition_index": 2}
    admin.delete_topics([topic_name])
    assert eventually(lambda: topic_name not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic_name])


def test_admin_refusals(admin: KafkaAdminClient, topic_name: str) -> None:
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({topic_name: {"num_partitions": 1, "replication_factor": 3}})
    admin.create_topics({topic_name: {"num_partitions": 1, "replication_factor": 1}}, validate_only=True)
    assert topic_name not in admin.list_topics()


def test_admin_configs(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic(retention_ms=1234)

    def described() -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (rows,) = admin.describe_configs([resource], config_filter="all")["topic"].values()
        return {key: row["value"] for key, row in rows.items()}

    assert described()["retention.ms"] == "1234"
    changes = {"retention.ms": ("DELETE", None), "max.message.bytes": ("SET", "2000")}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changes)])
    assert eventually(lambda: described()["max.message.bytes"] == "2000")
    assert described()["retention.ms"] == "604800000"


def test_admin_cluster_and_features(admin: KafkaAdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster()
    assert [(row["broker_id"], f"{row['host']}:{row['port']}") for row in cluster["brokers"]] == [(1, bootstrap)]
    assert cluster["controller_id"] == 1
    assert cluster["cluster_id"]
    for feature in admin.describe_features().values():
        lowest, highest = feature["supported"]
        assert lowest <= feature.get("finalized", (lowest, highest))[1] <= highest


def test_admin_offsets(admin: KafkaAdminClient, make_producer: Callable[..., KafkaProducer], topic: str) -> None:
    producer, start = make_producer(), int(time.time() * 1000) - 50_000
    for moment in (1000, 9000, 2000):
        producer.send(topic, b"v", timestamp_ms=start + moment).get(WAIT_SECONDS)
    home = TopicPartition(topic, 0)
    for asked, offset in ((-2, 0), (-1, 3), (-3, 1), (start + 1500, 1), (start + 9001, -1)):
        found = admin.list_partition_offsets({home: asked})[home]
        assert (found.offset if found else -1) == offset
