"""Records that contain their own position, so no list of them is needed.

Batch N has the timestamp FIRST_MS + N and always the same records: key and value of record M are M. So any
client can verify a record from its offset alone.
"""

import random
import struct
import time

import cramjam
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from crc32c import crc32c

from bench import wire
from bench.batches import BATCH_BODY, BATCH_HEAD, Batch, varint
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.meter import Meter
from bench.raw_client import Connection, Target, check_produced, create_topics

FIRST_MS = 1_700_000_000_000
BATCH_BYTES = 1_000_000
SEGMENT_BYTES_MAX, SEGMENTS_MIN = 1 << 30, 20
DEPTH = 4
ZSTD = 4
TIMES_POSITION = BATCH_HEAD.size + 6  # after the attributes and the delta of the last offset
TIMES = struct.Struct(">qq")
POLL_SECONDS_MAX = 30.0


def numbered_batch(value_bytes: int, is_compressed: bool) -> Batch:
    """As many records as fit into BATCH_BYTES before they are compressed."""
    rows = bytearray()
    count = 0
    while len(rows) < BATCH_BYTES - value_bytes - 32:
        number = b"%d" % count
        value = number.rjust(value_bytes, b"0")
        row = b"\0\0" + varint(count) + varint(len(number)) + number + varint(len(value)) + value + b"\0"
        rows += varint(len(row)) + row
        count += 1
    records = bytes(cramjam.zstd.compress(bytes(rows))) if is_compressed else bytes(rows)
    head = BATCH_BODY.pack(ZSTD if is_compressed else 0, count - 1, FIRST_MS, FIRST_MS, -1, -1, -1, count)
    body = head + records
    return Batch(BATCH_HEAD.pack(0, 9 + len(body), 0, 2, crc32c(body)) + body, count)


def write(target: Target, topic: str, records: int, value_bytes: int, is_compressed: bool) -> Figures:
    """At least so many records into partition 0, acks=all, DEPTH requests on their way."""
    batch = numbered_batch(value_bytes, is_compressed)
    batches = -(-records // batch.records)
    segment_bytes = min(SEGMENT_BYTES_MAX, max(2 * len(batch.data), batches * len(batch.data) // SEGMENTS_MIN))
    create_topics(target, {topic: 1}, {"retention.ms": "-1", "segment.bytes": str(segment_bytes)})
    frame = bytearray(wire.produce_request(topic, 0, batch.data))
    start = frame.index(batch.data[: BATCH_HEAD.size])
    body = memoryview(frame)[start + BATCH_HEAD.size : start + len(batch.data)]
    with Connection(target) as connection, Meter(target.pid) as meter:
        sent = answered = 0
        while answered < batches:
            while sent < batches and sent - answered < DEPTH:
                TIMES.pack_into(frame, start + TIMES_POSITION, FIRST_MS + sent, FIRST_MS + sent)
                struct.pack_into(">I", frame, start + BATCH_HEAD.size - 4, crc32c(body))
                connection.send(bytes(frame))
                sent += 1
            check_produced(connection.receive(), topic)
            answered += 1
    sizes: Figures = {
        "batch_records": batch.records,
        "records": batches * batch.records,
        "segment_bytes": segment_bytes,
    }
    return meter.figures(records=batches * batch.records, payload_bytes=batches * len(batch.data)) | sizes


def read_by_offset(target: Target, topic: str, batch_records: int, first: int, end: int, times: int) -> Figures:
    """A record at each of some offsets between these two, by librdkafka; also the first and the last one."""
    chance = random.Random(44)
    offsets = [first, end - 1, *(chance.randrange(first, end) for _ in range(times))]
    latencies = []
    consumer = _consumer(target)
    for offset in offsets:
        began = time.perf_counter_ns()
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(POLL_SECONDS_MAX)
        latencies.append(time.perf_counter_ns() - began)
        if message is None or message.error():
            raise BenchError(f"nothing at offset {offset}: {message and message.error()}")
        found = message.offset(), message.timestamp()[1], message.key()
        expected = offset, FIRST_MS + offset // batch_records, b"%d" % (offset % batch_records)
        if found != expected:
            raise BenchError(f"at offset {offset} stands {found}, not {expected}")
    consumer.close()
    return latency_figures(latencies)


def read_by_time(target: Target, topic: str, batch_records: int, first: int, end: int, times: int) -> Figures:
    """The first offset of some moments between these two offsets, by librdkafka."""
    chance = random.Random(45)
    latencies = []
    consumer = _consumer(target)
    for _ in range(times):
        batch = chance.randrange(-(-first // batch_records), end // batch_records)
        began = time.perf_counter_ns()
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, FIRST_MS + batch)], POLL_SECONDS_MAX)
        latencies.append(time.perf_counter_ns() - began)
        if found.error or found.offset != batch * batch_records:
            raise BenchError(f"batch {batch} begins at {batch * batch_records}, not at {found.offset}")
    consumer.close()
    return latency_figures(latencies)


def watermarks(target: Target, topic: str) -> tuple[int, int]:
    consumer = _consumer(target)
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), POLL_SECONDS_MAX)
    consumer.close()
    return first, end


def read_all(target: Target, topic: str, end: int) -> list[tuple[int, bytes]]:
    """Offsets and keys of all that a (cleaned) topic still has."""
    consumer = _consumer(target)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes]] = []
    while not found or found[-1][0] < end - 1:
        messages = consumer.consume(100_000, POLL_SECONDS_MAX)
        if not messages:
            raise BenchError(f"{topic} ends at {found[-1:]}, not at {end}")
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            found.append((message.offset(), message.key()))
    consumer.close()
    return found


def _consumer(target: Target) -> Consumer:
    return Consumer(
        {
            **target.client_settings,
            "group.id": "bench",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
