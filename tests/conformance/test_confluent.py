"""librdkafka (confluent-kafka): what most programs outside of the JVM use."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from tests.conformance.conftest import NewTopic

WAIT_SECONDS = 15.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def make_producer(bootstrap: str) -> Callable[..., Producer]:
    def make(**settings: Any) -> Producer:
        keys = {key.replace("_", "."): value for key, value in settings.items()}
        return Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000, **keys})

    return make


@pytest.fixture
def make_consumer(bootstrap: str) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        keys = {key.replace("_", "."): value for key, value in settings.items()}
        made.append(
            Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": f"unused-{uuid.uuid4().hex}",  # demanded by the API; assign() needs no coordinator
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "fetch.wait.max.ms": 100,
                    **keys,
                }
            )
        )
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def send_all(producer: Producer, topic: str, rows: list[dict[str, Any]]) -> list[Message]:
    """Produce every row and return the delivery reports; any error raises."""
    reports: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        reports.append(message)

    for row in rows:
        producer.produce(topic, on_delivery=on_delivery, **row)
    assert producer.flush(WAIT_SECONDS) == 0
    return reports


def read_all(consumer: Consumer, topic: str, count: int, offset: int = 0, partition: int = 0) -> list[Message]:
    consumer.assign([TopicPartition(topic, partition, offset)])
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def delivery_error(producer: Producer, topic: str, value: bytes, **options: Any) -> KafkaError:
    errors: list[KafkaError] = []
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error), **options)
    producer.flush(WAIT_SECONDS)
    assert len(errors) == 1
    assert errors[0] is not None, "delivered"
    return errors[0]


@pytest.mark.parametrize("codec", CODECS)
def test_a_round_trip_with_every_codec(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str, codec: str
) -> None:
    values = [b"value %d " % number * 10 for number in range(500)]
    send_all(make_producer(compression_type=codec, linger_ms=20), topic, [{"value": value} for value in values])
    messages = read_all(make_consumer(check_crcs=True), topic, 500)
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(500))


def test_keys_headers_nulls_and_timestamps_come_back(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    moment = int(time.time() * 1000) - 60_000
    rows = [
        {"key": b"key", "value": b"value", "headers": [("a", b"1"), ("a", b"2"), ("null", None)], "timestamp": moment},
        {"key": None, "value": None, "timestamp": moment + 1},
        {"key": b"", "value": b"", "headers": [("empty", b"")], "timestamp": moment + 2},
        {"key": "ключ".encode(), "value": "значение".encode(), "timestamp": moment + 3},
    ]
    send_all(make_producer(), topic, rows)
    messages = read_all(make_consumer(), topic, len(rows))
    assert [(message.key(), message.value()) for message in messages] == [(row["key"], row["value"]) for row in rows]
    assert [message.headers() for message in messages] == [row.get("headers") for row in rows]
    assert [message.timestamp() for message in messages] == [
        (TIMESTAMP_CREATE_TIME, moment + number) for number in range(4)
    ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_all_kinds_of_acks(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str, acks: str
) -> None:
    reports = send_all(make_producer(acks=acks), topic, [{"value": b"%d" % number} for number in range(100)])
    assert len(reports) == 100
    if acks != "0":
        assert [report.offset() for report in reports] == list(range(100))
    assert len(read_all(make_consumer(), topic, 100)) == 100


def test_the_idempotent_producer(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    producer = make_producer(enable_idempotence=True, batch_num_messages=10)
    reports = send_all(producer, topic, [{"value": b"%d" % number} for number in range(1000)])
    assert [report.offset() for report in reports] == list(range(1000))
    messages = read_all(make_consumer(), topic, 1000)
    assert [message.value() for message in messages] == [b"%d" % number for number in range(1000)]


def test_messages_of_almost_a_megabyte(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    values = [bytes([number]) * 999_000 for number in range(5)]
    send_all(make_producer(), topic, [{"value": value} for value in values])
    assert [message.value() for message in read_all(make_consumer(), topic, 5)] == values


def test_the_broker_refuses_a_message_that_is_too_large(make_producer: Callable[..., Producer], topic: str) -> None:
    producer = make_producer(message_max_bytes=5_000_000)  # the client would let it pass
    assert delivery_error(producer, topic, b"x" * 2_000_000).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send_all(producer, topic, [{"value": b"small"}])[0].offset() == 0


def test_a_topic_may_allow_larger_messages(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes=3_000_000)
    send_all(make_producer(message_max_bytes=5_000_000), topic, [{"value": b"x" * 2_000_000}])
    assert len(read_all(make_consumer(), topic, 1)[0].value()) == 2_000_000


def test_log_append_time(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    send_all(make_producer(), topic, [{"value": b"v", "timestamp": 5}])
    kind, moment = read_all(make_consumer(), topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= moment <= int(time.time() * 1000)


def test_offsets_for_times_and_watermarks(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    start = int(time.time() * 1000) - 100_000
    send_all(make_producer(), topic, [{"value": b"v", "timestamp": start + 1000 * number} for number in range(10)])
    consumer = make_consumer()
    asked = {start: 0, start + 1: 1, start + 8500: 9, start + 9000: 9, start + 9001: 10, 0: 0}
    for moment, offset in asked.items():
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, moment)], timeout=WAIT_SECONDS)
        assert found.error is None
        assert found.offset in ((-1,) if offset == 10 else (offset,))
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS) == (0, 10)


def test_a_consumer_can_start_anywhere(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    producer = make_producer()
    send_all(producer, topic, [{"value": b"%d" % number} for number in range(10)])
    assert [m.value() for m in read_all(make_consumer(), topic, 3, offset=7)] == [b"7", b"8", b"9"]
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0, -2)])  # the beginning
    assert consumer.consume(1, WAIT_SECONDS)[0].offset() == 0
    consumer.seek(TopicPartition(topic, 0, 4))
    assert consumer.consume(1, WAIT_SECONDS)[0].offset() == 4
    consumer.assign([TopicPartition(topic, 0, -1)])  # the end
    assert consumer.poll(0.5) is None
    send_all(producer, topic, [{"value": b"new"}])
    assert consumer.consume(1, WAIT_SECONDS)[0].value() == b"new"


def test_an_offset_out_of_range_is_reported_or_reset(make_consumer: Callable[..., Consumer], topic: str) -> None:
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, 0, 100)])
    message = consumer.poll(WAIT_SECONDS)
    assert message is not None
    assert message.error() is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_keys_decide_about_the_partition(make_producer: Callable[..., Producer], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=6)
    keys = [b"key-%d" % number for number in range(60)]
    producer = make_producer(partitioner="murmur2_random")
    first = send_all(producer, topic, [{"key": key, "value": b"1"} for key in keys])
    again = send_all(producer, topic, [{"key": key, "value": b"2"} for key in keys])
    homes = {report.key(): report.partition() for report in first}
    assert {report.key(): report.partition() for report in again} == homes
    assert set(homes.values()) == set(range(6))


def test_records_without_keys_use_every_partition(make_producer: Callable[..., Producer], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)
    producer = make_producer(sticky_partitioning_linger_ms=0)
    reports = send_all(producer, topic, [{"value": b"v"} for _ in range(400)])
    assert {report.partition() for report in reports} == {0, 1, 2, 3}


def test_an_explicit_partition_is_kept(make_producer: Callable[..., Producer], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    reports = send_all(make_producer(), topic, [{"value": b"v", "partition": 2} for _ in range(10)])
    assert [(report.partition(), report.offset()) for report in reports] == [(2, number) for number in range(10)]
    error = delivery_error(make_producer(), topic, b"v", partition=7)
    assert error.code() == KafkaError._UNKNOWN_PARTITION


def test_an_unknown_topic_is_created_by_a_producer(make_producer: Callable[..., Producer], topic_name: str) -> None:
    producer = make_producer()
    assert send_all(producer, topic_name, [{"value": b"v"}])[0].offset() == 0
    assert len(producer.list_topics(topic_name, WAIT_SECONDS).topics[topic_name].partitions) == 1


def test_a_producer_may_forbid_the_creation(make_producer: Callable[..., Producer], topic_name: str) -> None:
    producer = make_producer(allow_auto_create_topics=False, topic_metadata_propagation_max_ms=500)
    assert delivery_error(producer, topic_name, b"v").code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic_name not in producer.list_topics(timeout=WAIT_SECONDS).topics


def test_a_consumer_creates_nothing_unless_it_asks_to(make_consumer: Callable[..., Consumer], topic_name: str) -> None:
    consumer = make_consumer()
    metadata = consumer.list_topics(topic_name, WAIT_SECONDS).topics[topic_name]
    assert metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic_name not in consumer.list_topics(timeout=WAIT_SECONDS).topics


def test_read_committed_reads_everything_without_transactions(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    send_all(make_producer(), topic, [{"value": b"v"} for _ in range(20)])
    for level in ("read_committed", "read_uncommitted"):
        assert len(read_all(make_consumer(isolation_level=level), topic, 20)) == 20


def test_many_partitions_keep_their_order(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=10)
    rows = [{"value": b"%d" % number, "partition": number % 10} for number in range(2000)]
    send_all(make_producer(enable_idempotence=True), topic, rows)
    consumer = make_consumer()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(10)])
    seen: dict[int, list[int]] = {partition: [] for partition in range(10)}
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(map(len, seen.values())) < 2000 and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.5):
            seen[message.partition()].append(int(message.value()))
    assert seen == {partition: list(range(partition, 2000, 10)) for partition in range(10)}


def test_a_consumer_ends_where_the_partition_ends(
    make_producer: Callable[..., Producer], make_consumer: Callable[..., Consumer], topic: str
) -> None:
    send_all(make_producer(), topic, [{"value": b"v"} for _ in range(3)])
    with closing(make_consumer(enable_partition_eof=True)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in range(3):
            assert consumer.poll(WAIT_SECONDS).error() is None
        assert consumer.poll(WAIT_SECONDS).error().code() == KafkaError._PARTITION_EOF
