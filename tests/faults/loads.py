"""Producers that never stop, each of another client library, and a reader that follows them."""

import asyncio
import itertools
import logging
import random
import threading
import time
from typing import Any, ClassVar

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaProducer
from tests.faults.history import History, Place, Stored
from tests.faults.worker import security_of

FLUSH_SECONDS_MAX = 60.0
# A broker that is away is no news here: errors of single records and partitions are what counts.
LIBRDKAFKA = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0, "error_cb": lambda _: None}
FILLER = b"x" * 4096

for library in ("kafka", "aiokafka"):
    logging.getLogger(library).setLevel(logging.CRITICAL)


class Load(threading.Thread):
    """Sends rising numbers to all places in turn until stop(); then waits for what is still under way."""

    def __init__(self, name: str, bootstrap: str, places: list[Place], history: History, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.history = history
        self._places = itertools.cycle(places)
        self._numbers = dict.fromkeys(places, 0)
        self._random = random.Random(f"{name} {seed}")
        self._stopping = threading.Event()

    def next_record(self) -> tuple[Place, bytes]:
        place = next(self._places)
        number = self._numbers[place]
        self._numbers[place] = number + 1
        return place, b"%s:%d:" % (self.name.encode(), number) + FILLER[: self._random.choice((0, 10, 100, 1500))]

    def stop(self) -> None:
        self._stopping.set()
        self.join(FLUSH_SECONDS_MAX + 10)
        if self.is_alive():
            self.history.complain(f"{self.name} does not come to an end")

    def run(self) -> None:
        try:
            self.produce()
        except Exception as error:  # noqa: BLE001 (a thread must not die in silence)
            self.history.complain(f"{self.name} ended with {error!r}")

    def produce(self) -> None:
        raise NotImplementedError


class ConfluentLoad(Load):
    """librdkafka with idempotence: five requests in flight, nothing twice, order kept."""

    records_per_pause = 20
    settings: ClassVar[dict[str, object]] = {}  # more than below

    def produce(self) -> None:
        self.history.add_producer(self.name, is_idempotent=True)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "compression.type": self._random.choice(("none", "lz4", "zstd")),
                "batch.size": 20_000,  # must fit into the smallest segment
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                **LIBRDKAFKA,
                **security_of(self.bootstrap),
                **self.settings,
            }
        )
        while not self._stopping.is_set():
            for _ in range(self.records_per_pause):
                (topic, partition), value = self.next_record()
                self._send(producer, topic, value, partition)
            producer.poll(0.01)
        if left := producer.flush(FLUSH_SECONDS_MAX):
            self.history.complain(f"{self.name} could not deliver {left} records")

    def _send(self, producer: Producer, topic: str, value: bytes, partition: int) -> None:
        while True:
            try:
                return producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is None:
            offset = message.offset()  # None if a later acknowledgement proved to librdkafka that this one was stored
            place = (message.topic() or "", message.partition() or 0)
            self.history.acknowledge(place, value, -1 if offset is None else offset)
        else:
            self.history.give_up(value, error)


class KafkaPythonLoad(Load):
    """kafka-python without idempotence: it may repeat itself, but what was acknowledged is there and in order."""

    def produce(self) -> None:
        self.history.add_producer(self.name, is_idempotent=False)
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            linger_ms=2,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )
        while not self._stopping.is_set():
            place, value = self.next_record()
            future = producer.send(place[0], value, partition=place[1])
            future.add_callback(self._delivered, place, value)
            future.add_errback(self._failed, value)
            time.sleep(0.005)
        producer.flush(FLUSH_SECONDS_MAX)
        producer.close(10)

    def _delivered(self, place: Place, value: bytes, metadata: Any) -> None:
        self.history.acknowledge(place, value, metadata.offset)

    def _failed(self, value: bytes, error: object) -> None:
        self.history.give_up(value, error)


class AioKafkaLoad(Load):
    """aiokafka with idempotence."""

    def produce(self) -> None:
        self.history.add_producer(self.name, is_idempotent=True)
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, linger_ms=2, retry_backoff_ms=20
        )
        await producer.start()
        under_way: set[asyncio.Future[Any]] = set()
        while not self._stopping.is_set():
            place, value = self.next_record()
            future = await producer.send(place[0], value, partition=place[1])
            under_way.add(future)
            future.add_done_callback(under_way.discard)
            future.add_done_callback(lambda done, place=place, value=value: self._done(done, place, value))
            await asyncio.sleep(0.005)
        await asyncio.wait_for(producer.stop(), FLUSH_SECONDS_MAX)

    def _done(self, future: Any, place: Place, value: bytes) -> None:
        if future.cancelled() or future.exception() is not None:
            self.history.give_up(value, "cancelled" if future.cancelled() else future.exception())
        else:
            self.history.acknowledge(place, value, future.result().offset)


class Reader(threading.Thread):
    """A consumer with fetch sessions that follows all places during the whole run."""

    def __init__(self, bootstrap: str, places: list[Place], history: History) -> None:
        super().__init__(name="reader", daemon=True)
        self._history = history
        self._places = places
        self._consumer = make_consumer(bootstrap)
        self._stopping = threading.Event()

    def run(self) -> None:
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self._places])
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            value = message.value()
            self._history.see((message.topic() or "", message.partition() or 0), message.offset() or 0, value or b"")
        elif error.code() != KafkaError._PARTITION_EOF:
            self._history.complain(f"M: the reader was told {error} about {message.topic()}-{message.partition()}")

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)


def read_everything(bootstrap: str, places: list[Place], seconds_max: float = 60.0) -> Stored:
    """All records that are there now, read by a fresh consumer that checks every CRC."""
    consumer = make_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    stored: Stored = {place: [] for place in places}
    unread = set(places)
    deadline = time.monotonic() + seconds_max
    while unread:
        assert time.monotonic() < deadline, f"no end of {sorted(unread)[:10]} after {seconds_max} s"
        for message in consumer.consume(1000, 0.1):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                stored[place].append((message.offset() or 0, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(place)
            else:
                raise AssertionError(f"{place}: {error}")
    consumer.close()
    return stored


def make_consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",  # the library demands one; assign() needs no coordinator
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 20,
            **LIBRDKAFKA,
            **security_of(bootstrap),
        }
    )
