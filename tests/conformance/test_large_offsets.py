"""Offsets beyond 32 bits, through clients that we did not write: nothing on the way may count with four bytes.

The log is written by a broker and then moved to where its next records pass 2**32: the first offset of a batch is not
covered by its checksum. `python -m bench.big offsets` really writes so many.
"""

import struct
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from tests.conformance.waiting import eventually
from tests.conftest import Broker, BrokerFactory

TOPIC = "far"
BOUNDARY = 2**32
BEFORE = 5  # so many of the first ten records are below the boundary
FIRST = BOUNDARY - BEFORE
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def broker(broker_factory: BrokerFactory) -> Broker:
    broker: Broker = broker_factory(log_retention_ms=-1)
    write(broker, range(10))
    broker.stop()
    move(broker.data_directory / f"{TOPIC}-0", FIRST)
    return broker.start()


def test_a_partition_grows_past_32_bits(broker: Broker) -> None:
    write(broker, range(10, 20))
    expected = [(FIRST + number, b"%d" % number) for number in range(20)]
    assert read(broker, FIRST) == expected
    assert read(broker, BOUNDARY) == expected[BEFORE:]
    broker.restart()
    assert read(broker, BOUNDARY + 7) == expected[BEFORE + 7 :]
    broker.kill9()
    broker.start()
    write(broker, range(20, 21))
    assert read(broker, FIRST) == [*expected, (FIRST + 20, b"20")]


def test_offsets_past_32_bits_are_committed_and_found_by_time(broker: Broker) -> None:
    write(broker, range(10, 20))
    consumer = librdkafka_consumer(broker)
    assert eventually(lambda: commits(consumer, BOUNDARY + 3)), "the new coordinator accepts commits"
    (found,) = consumer.offsets_for_times([TopicPartition(TOPIC, 0, FIRST_MS + 12)], 10)
    consumer.close()
    assert found.offset == FIRST + 12
    broker.restart()
    again = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id="far", enable_auto_commit=False, consumer_timeout_ms=10_000
    )
    partition = PythonTopicPartition(TOPIC, 0)
    again.assign([partition])
    assert again.committed(partition) == BOUNDARY + 3
    assert again.end_offsets([partition]) == {partition: FIRST + 20}
    message = next(again)
    assert (message.offset, message.value) == (BOUNDARY + 3, b"%d" % (BEFORE + 3))
    again.close()


def commits(consumer: Consumer, offset: int) -> bool:
    """Commit an offset; False while the broker loads __consumer_offsets, which this commit may be the first to need."""
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.NOT_COORDINATOR:
            raise
        return False
    return True


def write(broker: Broker, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    failures: list[object] = []
    for number in numbers:
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=0,
            timestamp=FIRST_MS + number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert not failures


def read(broker: Broker, offset: int) -> list[tuple[int | None, bytes | None]]:
    consumer = librdkafka_consumer(broker)
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10)
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    messages = consumer.consume(end - offset, 20)
    consumer.close()
    assert not [message.error() for message in messages if message.error()]
    return [(message.offset(), message.value()) for message in messages]


def librdkafka_consumer(broker: Broker) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "far", "auto.offset.reset": "error"}
    return Consumer({**settings, "enable.auto.commit": False})


def move(folder: Path, first: int) -> None:
    """Let a log of one segment begin at another offset; remove the files that can be rebuilt."""
    (segment,) = folder.glob("*.log")
    data = bytearray(segment.read_bytes())
    position = 0
    while position < len(data):
        offset, length = struct.unpack_from(">qi", data, position)
        struct.pack_into(">q", data, position, first + offset)
        position += 12 + length
    for path in [*folder.iterdir(), *folder.parent.glob("*-checkpoint")]:
        if path.suffix in {".log", ".index", ".timeindex", ".snapshot"} or path.name.endswith("-checkpoint"):
            path.unlink()
    (folder / f"{first:020}.log").write_bytes(data)
