"""librdkafka through confluent-kafka: the view of applications. acks=all everywhere."""

import itertools
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.batches import payloads
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.meter import Meter
from bench.raw_client import Target

FLUSH_SECONDS_MAX = 60.0
PRODUCE_STRIDE = 1000
DISTINCT_VALUES = 1000
# By default librdkafka stops fetching at 100,000 queued messages and then waits a second: with small messages that
# stalls the client at about 200,000 a second, whatever the broker does.
CONSUMER_WITHOUT_STALLS = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 2}


def produce(target: Target, topic: str, record_bytes: int, codec: str, seconds: float, bytes_max: int) -> Figures:
    """As many messages as the client can send in the time; all must be acknowledged."""
    failed: list[KafkaError] = []
    producer = Producer(
        {
            **target.client_settings,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": codec,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    producer.list_topics(topic, 10)
    with Meter(target.pid) as meter:
        count = _hand_over(producer, topic, record_bytes, time.perf_counter() + seconds, bytes_max // record_bytes)
        left = producer.flush(FLUSH_SECONDS_MAX)
    if failed or left:
        raise BenchError(f"{len(failed)} messages failed ({failed[:1]}), {left} were not acknowledged")
    return meter.figures(payload_bytes=count * record_bytes, records=count)


def consume(target: Target, topic: str, record_bytes: int, messages: int, seconds_max: float) -> Figures:
    """Read the topic's partition 0 from its start until `messages` have arrived or the time is over."""
    consumer = Consumer(
        {
            **target.client_settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **CONSUMER_WITHOUT_STALLS,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = 0
    with Meter(target.pid) as meter:
        end = time.perf_counter() + seconds_max
        while received < messages and time.perf_counter() < end:
            batch = consumer.consume(10_000, 1)
            if batch and batch[0].error():
                raise BenchError(f"consume: {batch[0].error()}")
            received += len(batch)
    consumer.close()
    if not received:
        raise BenchError(f"nothing of {messages} messages was consumed within {seconds_max:.0f} s")
    return meter.figures(payload_bytes=received * record_bytes, records=received)


def produce_one_in_flight(target: Target, topic: str, record_bytes: int, warmup_s: float, seconds: float) -> Figures:
    """The next message is produced when the one before is acknowledged."""
    producer = Producer({**target.client_settings, "acks": "all", "linger.ms": 0})
    value = payloads(record_bytes)[0]
    _run_one_in_flight(producer, topic, value, warmup_s)
    with Meter(target.pid) as meter:
        latencies = _run_one_in_flight(producer, topic, value, seconds)
    return meter.figures(requests=len(latencies)) | latency_figures(latencies)


def _hand_over(producer: Any, topic: str, record_bytes: int, end: float, messages_max: int) -> int:
    values = itertools.cycle(payloads(record_bytes, DISTINCT_VALUES))
    produce_message, count = producer.produce, 0
    while time.perf_counter() < end and count < messages_max:
        try:
            for _ in range(PRODUCE_STRIDE):
                produce_message(topic, next(values))
                count += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    return count


def _run_one_in_flight(producer: Any, topic: str, value: bytes, seconds: float) -> list[int]:
    outcomes: list[KafkaError | None] = []
    latencies: list[int] = []
    clock = time.perf_counter_ns

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        outcomes.append(error)

    end = clock() + int(seconds * 1e9)
    while clock() < end:
        start = clock()
        producer.produce(topic, value, on_delivery=on_delivery)
        while len(outcomes) == len(latencies):
            producer.poll(1)
        latencies.append(clock() - start)
    if any(outcomes):
        raise BenchError(f"messages failed: {next(filter(None, outcomes))}")
    return latencies
