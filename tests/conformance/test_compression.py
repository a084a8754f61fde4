"""A topic with a compression.type of its own: all batches are stored with that codec and every client reads them."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.conformance.peer import Peer, produce_request
from tests.conformance.raw_batches import CODEC_MASK, GZIP, LZ4, NONE, SNAPPY, ZSTD, batch

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TOPIC_TYPES = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
MESSAGE_TOO_LARGE = 10
JAVA_SECONDS_MAX = 60
NewTopic = Callable[..., str]


def stored_codecs(peer: Peer, topic: str) -> set[int]:
    return {header.attributes & CODEC_MASK for header in peer.stored_batches(topic)}


def produce_all_codecs(bootstrap: str, topic: str, value_bytes: int) -> list[bytes]:
    """One batch of three records under each codec."""
    values = []
    for name in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": name, "linger.ms": 50})
        for number in range(3):
            values.append(f"{name} {number} ".encode() + b"compressible " * (value_bytes // 13))
            producer.produce(topic, values[-1], key=name.encode(), headers={"codec": name}, partition=0)
        assert producer.flush(10) == 0
    return values


@pytest.mark.parametrize("value_bytes", [100, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("topic_type", [*TOPIC_TYPES, "producer"])
def test_every_pair_of_codecs_is_stored_and_read(
    bootstrap: str, new_topic: NewTopic, peer: Peer, topic_type: str, value_bytes: int
) -> None:
    topic = new_topic(compression_type=topic_type)
    values = produce_all_codecs(bootstrap, topic, value_bytes)
    expected = set(CODECS.values()) if topic_type == "producer" else {TOPIC_TYPES[topic_type]}
    assert stored_codecs(peer, topic) == expected
    assert read_with_librdkafka(bootstrap, topic, len(values)) == values
    assert read_with_aiokafka(bootstrap, topic, len(values)) == values


def read_with_librdkafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "check.crcs": True, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=10)
    consumer.close()
    for message in messages:
        assert message.error() is None
        assert message.headers() == [("codec", message.key())]
    return [message.value() for message in messages]


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            partition = AiokafkaPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def test_java_reads_every_codec_that_the_broker_makes(
    bootstrap: str, new_topic: NewTopic, kafka_jars: Path, tmp_path: Path
) -> None:
    topics = [new_topic(compression_type=topic_type) for topic_type in TOPIC_TYPES]
    values = [produce_all_codecs(bootstrap, topic, 20_000) for topic in topics]
    source = Path(__file__).parent / "java" / "ReadTopics.java"
    command = ["java", "-Xmx256M", "-cp", f"{kafka_jars}/*", str(source), bootstrap, str(len(values[0])), *topics]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [value.decode() for row in values for value in row]


def test_a_batch_that_grows_beyond_the_limit_is_refused(new_topic: NewTopic, peer: Peer) -> None:
    """Small when it comes, too large under the topic's own codec: as Kafka checks it."""
    topic = new_topic(compression_type="uncompressed", max_message_bytes=50_000)
    assert peer.produce(topic, batch([b"x" * 60_000], codec=ZSTD)).error_code == MESSAGE_TOO_LARGE
    assert peer.produce(topic, batch([b"x" * 40_000], codec=ZSTD)).error_code == 0
    assert peer.produce(topic, batch([b"x" * 1_000_000], codec=ZSTD)).error_code == MESSAGE_TOO_LARGE
    assert peer.end_offset(topic) == 1


@pytest.mark.parametrize(
    ("topic_type", "low", "high"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -7, 19)], ids=["gzip", "lz4", "zstd"]
)
def test_a_higher_level_makes_smaller_batches(
    new_topic: NewTopic, peer: Peer, topic_type: str, low: int, high: int
) -> None:
    """lz4's default, 9, means the fast compressor, with Kafka as well."""
    words = b"".join(b"%d and %d, " % (number * 7919 % 1000, number % 37) for number in range(12_000))
    sizes = []
    for level in (low, high):
        topic = new_topic(**{"compression_type": topic_type, f"compression_{topic_type}_level": level})
        assert peer.produce(topic, batch([words])).error_code == 0
        sizes.append(peer.stored_batches(topic)[0].length)
    assert sizes[1] < sizes[0] < len(words)


def test_pipelined_large_batches_keep_their_order(new_topic: NewTopic, peer: Peer) -> None:
    """Each takes its time in another thread; whatever is sent behind it waits."""
    topic = new_topic(compression_type="gzip")
    producer_id = peer.new_producer_id()
    requests = []
    for sequence in range(12):
        size = 300_000 if sequence % 3 == 0 else 10
        records = batch([b"%d " % sequence * size], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        requests.append(produce_request(topic, records))
        peer.send(requests[-1], 12)
    answers: list[Any] = [peer.receive(request).responses[0].partition_responses[0] for request in requests]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, offset) for offset in range(12)]


def test_a_batch_without_acks_is_recompressed_too(new_topic: NewTopic, peer: Peer) -> None:
    topic = new_topic(compression_type="zstd")
    peer.send(produce_request(topic, batch([b"x" * 200_000]), acks=0), 12)
    assert peer.produce(topic, batch()).base_offset == 1
    assert stored_codecs(peer, topic) == {ZSTD}
