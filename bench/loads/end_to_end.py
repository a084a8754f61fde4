"""Latency from producer to consumer at a steady rate: two processes that read one monotonic clock."""

import struct
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.batches import payloads
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.meter import Meter
from bench.raw_client import Target

STAMP = struct.Struct(">q")
MARK = b"mark"  # a record written before the consumer starts: reading it shows that the consumer is ready
RECORD_BYTES = 100
FLUSH_SECONDS_MAX = 30.0
LATE_SECONDS = 0.005


def produce(target: Target, topic: str, rate: int, warmup_s: float, seconds: float) -> Figures:
    """Send timestamped messages at the rate, first for the warm-up; return the cost and the number of delayed sends."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0})
    padding = payloads(RECORD_BYTES)[0][STAMP.size :]
    late = 0
    with Meter(target.pid) as meter:
        start = time.monotonic()
        for number in range(messages(rate, warmup_s + seconds)):
            wait = start + number / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            late += wait < -LATE_SECONDS
            producer.produce(topic, STAMP.pack(time.monotonic_ns()) + padding)
            producer.poll(0)
        left = producer.flush(FLUSH_SECONDS_MAX)
    if left:
        raise BenchError(f"{left} messages were not acknowledged")
    return meter.figures(records=messages(rate, warmup_s + seconds)) | {"late_sends": float(late)}


def consume(
    say_ready: Callable[[], None], target: Target, topic: str, rate: int, warmup_s: float, seconds: float
) -> Figures:
    """Latency of the messages after the warm-up; all must come."""
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    expected = messages(rate, warmup_s + seconds)
    latencies: list[int] = []
    clock, unpack, poll = time.monotonic_ns, STAMP.unpack_from, consumer.poll
    end = time.monotonic() + warmup_s + seconds + 2 * FLUSH_SECONDS_MAX
    while len(latencies) < expected and time.monotonic() < end:
        message = poll(1)
        if message is None or message.error():
            continue
        now, value = clock(), message.value() or b""
        if value == MARK:
            say_ready()
        else:
            latencies.append(now - unpack(value)[0])
    if len(latencies) < expected:
        raise BenchError(f"only {len(latencies)} of {expected} messages arrived")
    return latency_figures(latencies[messages(rate, warmup_s) :])


def messages(rate: int, seconds: float) -> int:
    return int(rate * seconds)
