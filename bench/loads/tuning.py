"""librdkafka with one setting changed at a time: the cost on both sides, and the bytes and requests sent."""

import itertools
import json
import threading
import time
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.loads.librdkafka import CONSUMER_WITHOUT_STALLS, FLUSH_SECONDS_MAX, PRODUCE_STRIDE
from bench.meter import Meter
from bench.raw_client import Target

DISTINCT_VALUES = 5000  # more than a batch of the default size holds: nothing repeats within one
STATISTICS_MS = 100
STATISTICS_SECONDS_MAX = 5.0
TOWNS = ("Berlin", "Lagos", "Lima", "Osaka", "Porto", "Quito", "Seoul", "Turin")
STATES = ("created", "paid", "packed", "sent", "returned")


def orders(count: int = DISTINCT_VALUES) -> list[bytes]:
    """Typical JSON, about 300 bytes each: names repeat, numbers and ids do not."""
    chance = Random(114)
    return [
        json.dumps(
            {
                "order_id": f"{chance.getrandbits(64):016x}",
                "customer": {"id": chance.randrange(10**6), "town": chance.choice(TOWNS)},
                "state": chance.choice(STATES),
                "created_at": f"2026-11-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:15:00Z",
                "items": [
                    {"sku": f"SKU-{chance.randrange(10**5):05}", "count": chance.randrange(1, 9), "price": price / 100}
                    for price in (chance.randrange(100, 20_000), chance.randrange(100, 20_000))
                ],
                "note": f"{chance.getrandbits(96):024x}",
            }
        ).encode()
        for _ in range(count)
    ]


class Statistics:
    """librdkafka's statistics: requests by name, and bytes over all its connections."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def __call__(self, text: str) -> None:
        self.told = json.loads(text)

    def total(self, name: str) -> float:
        return float(sum(broker.get(name, 0) for broker in self.told.get("brokers", {}).values()))

    def requests(self, name: str) -> float:
        return float(sum(broker.get("req", {}).get(name, 0) for broker in self.told.get("brokers", {}).values()))

    def wait(self, client: Any) -> None:
        """Wait for two more reports: the second one certainly started after this call."""
        end = time.monotonic() + STATISTICS_SECONDS_MAX
        for _ in range(2):
            before = self.told
            while self.told is before:
                client.poll(0.02)
                if time.monotonic() > end:
                    raise BenchError("librdkafka tells nothing about itself")


def produce(
    target: Target, topic: str, settings: dict[str, Any], rate: int, seconds: float, partitions: int, clients: int
) -> Figures:
    """`rate` records per second in all, 0: unlimited; `clients` producers share the partitions."""
    failed: list[KafkaError] = []
    told = [Statistics() for _ in range(clients)]
    made = [
        Producer(
            {
                **target.client_settings,
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "delivery.report.only.error": not rate,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": each,
                "on_delivery": lambda error, _: failed.append(error) if error else None,
                **settings,
            }
        )
        for each in told
    ]
    values = itertools.cycle(orders())
    latencies: list[int] = []
    for producer in made:
        producer.list_topics(topic, 10)
    with Meter(target.pid) as meter:
        if rate:
            count = _pace(made, topic, values, rate, seconds, partitions, latencies)
        else:
            count = _hand_over(made[0], topic, values, seconds, partitions)
        left = sum(producer.flush(FLUSH_SECONDS_MAX) for producer in made)
    if failed or left:
        raise BenchError(f"{len(failed)} messages failed ({failed[:1]}), {left} were not acknowledged")
    _wait_all(told, made)
    figures = meter.figures(records=count)
    figures["records"] = count
    figures["client_us_per_record"] = meter.client_cpu_s * 1e6 / count
    figures["wire_bytes_per_record"] = sum(each.total("txbytes") for each in told) / count
    figures["requests_per_s"] = sum(each.requests("Produce") for each in told) / meter.seconds
    figures["connections"] = sum(each.total("connects") for each in told)
    return figures | (latency_figures(latencies) if latencies else {})


def consume(target: Target, topic: str, settings: dict[str, Any], records: int, seconds_max: float) -> Figures:
    """Read partition 0 from its start until all records have arrived or the time is over."""
    told = Statistics()
    consumer = _consumer(target, [TopicPartition(topic, 0, 0)], {**CONSUMER_WITHOUT_STALLS, **settings}, told)
    received = 0
    with Meter(target.pid) as meter:
        end = time.perf_counter() + seconds_max
        while received < records and time.perf_counter() < end:
            received += len(consumer.consume(10_000, 1))
    figures = meter.figures(records=received)
    figures["client_us_per_record"] = meter.client_cpu_s * 1e6 / received
    consumer.close()
    return figures


def follow(
    target: Target, topic: str, settings: dict[str, Any], rate: int, seconds: float, partitions: int, clients: int
) -> Figures:
    """Consumers at the end of a topic to which another client writes `rate` records per second; 0: no writes.

    `clients` consumers share the partitions. The latency is from the call of produce() until a consumer has the record;
    CPU per second, not per record.
    """
    producer = Producer({**target.client_settings, "acks": "1", "linger.ms": 0})
    values = itertools.cycle(orders())
    for number in range(partitions):
        producer.produce(topic, next(values), partition=number)
    producer.flush(FLUSH_SECONDS_MAX)
    told = [Statistics() for _ in range(clients)]
    consumers = [
        _consumer(target, [TopicPartition(topic, n, 0) for n in range(first, partitions, clients)], settings, each)
        for first, each in enumerate(told)
    ]
    for consumer in consumers:
        if not consumer.consume(1, 10):
            raise BenchError("a consumer got nothing")
    _wait_all(told, consumers)  # the first records of other partitions have come by then
    fetches = sum(each.requests("Fetch") for each in told)
    bytes_before = sum(each.total("rxbytes") for each in told)
    latencies: list[int] = []
    with Meter(target.pid) as meter:
        start = time.perf_counter()
        sent = 0
        while (now := time.perf_counter()) - start < seconds:
            while rate and sent < (now - start) * rate:
                producer.produce(topic, next(values), str(time.perf_counter_ns()), partition=sent % partitions)
                sent += 1
            producer.poll(0)
            for consumer in consumers:
                messages = consumer.consume(1000, 0)
                received_ns = time.perf_counter_ns()
                latencies += [received_ns - int(message.key()) for message in messages if message.key()]
            time.sleep(0.0005 if rate else 0.05)
    _wait_all(told, consumers)
    producer.flush(FLUSH_SECONDS_MAX)
    figures = meter.figures()
    figures["requests_per_s"] = (sum(each.requests("Fetch") for each in told) - fetches) / meter.seconds
    figures["wire_bytes_per_s"] = (sum(each.total("rxbytes") for each in told) - bytes_before) / meter.seconds
    figures["broker_ms_per_s"] = meter.broker_cpu_s * 1000 / meter.seconds
    figures["client_ms_per_s"] = meter.client_cpu_s * 1000 / meter.seconds
    figures["connections"] = sum(each.total("connects") for each in told)
    for consumer in consumers:
        consumer.close()
    return figures | (latency_figures(latencies) if latencies else {})


def _wait_all(told: list[Statistics], clients: list[Any]) -> None:
    for each, client in zip(told, clients, strict=True):
        each.wait(client)


def _consumer(target: Target, places: list[TopicPartition], settings: dict[str, Any], told: Statistics) -> Consumer:
    consumer = Consumer(
        {
            **target.client_settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": told,
            **settings,
        }
    )
    consumer.assign(places)
    return consumer


def _hand_over(producer: Any, topic: str, values: Any, seconds: float, partitions: int) -> int:
    numbers = itertools.cycle(range(partitions))
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        try:
            for _ in range(PRODUCE_STRIDE):
                producer.produce(topic, next(values), partition=next(numbers))
                count += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    return count


def _pace(
    made: list[Any], topic: str, values: Any, rate: int, seconds: float, partitions: int, latencies: list[int]
) -> int:
    """Evenly over the time; the same producer always writes partition N."""
    clock = time.perf_counter_ns

    def note(began: int) -> Any:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                raise BenchError(f"a message failed: {error}")
            latencies.append(clock() - began)

        return delivered

    over = threading.Event()
    pollers = [threading.Thread(target=_poll, args=(producer, over)) for producer in made]
    for poller in pollers:
        poller.start()
    start, count = clock(), 0
    while (now := clock() - start) < seconds * 1e9:
        while count < now * rate / 1e9:
            number = count % partitions
            made[number % len(made)].produce(topic, next(values), partition=number, on_delivery=note(clock()))
            count += 1
        time.sleep(max(0.0, count / rate - (clock() - start) / 1e9))
    over.set()
    for poller in pollers:
        poller.join()
    return count


def _poll(producer: Any, over: threading.Event) -> None:
    """In a thread: polling only with the next record would delay the acknowledgement's timestamp."""
    while not over.is_set():
        producer.poll(0.1)
