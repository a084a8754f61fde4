"""A producer that commits one message at a time: the next transaction begins after the commit."""

import time

from confluent_kafka import Producer

from bench import group_wire as wire
from bench.batches import payloads
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.loads.members import wait_for_coordinator
from bench.meter import Meter
from bench.raw_client import Connection, Target, produce_error

TIMEOUT_MS = 60_000
TIMEOUT_SECONDS = 60.0
CONCURRENT_TRANSACTIONS = 51
NOT_READY = frozenset((14, 15, 16, CONCURRENT_TRANSACTIONS))  # loading, not available, not coordinator
PAUSE_SECONDS = 0.02
REPEAT_SECONDS = 0.001  # clients wait longer: Apache Kafka's own 20 ms or more
RECORD_BYTES = 100


def raw(target: Target, topic: str, warmup_s: float, seconds: float) -> Figures:
    """Produce and EndTxn on one connection, in transaction version 2; `repeats` counts retriable errors."""
    name = f"bench-{time.time_ns()}"
    wait_for_coordinator(target, name, wire.TRANSACTION)
    with Connection(target) as connection:
        producer = _RawProducer(connection, topic, name)
        producer.run(target, warmup_s)
        return producer.run(target, seconds)


class _RawProducer:
    def __init__(self, connection: Connection, topic: str, name: str) -> None:
        self.connection = connection
        self.topic = topic
        self.name = name
        self.repeats = 0
        self.value = payloads(RECORD_BYTES)[0]
        self.who = self._init()

    def __repr__(self) -> str:
        return f"<_RawProducer {self.name} {self.who}>"

    def _init(self) -> wire.Identity:
        """Retries while the coordinator is starting."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            answer = self.connection.call(wire.init_producer_request(self.name, TIMEOUT_MS))
            error, who = wire.read_init_producer(answer)
            if not error:
                return who
            if error not in NOT_READY or time.monotonic() > end:
                raise BenchError(f"InitProducerId was answered with error {error}")
            time.sleep(PAUSE_SECONDS)

    def run(self, target: Target, seconds: float) -> Figures:
        latencies: list[int] = []
        self.repeats = 0
        with Meter(target.pid) as meter:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                began = time.perf_counter_ns()
                self.transact()
                latencies.append(time.perf_counter_ns() - began)
        figures = meter.figures(requests=len(latencies)) | latency_figures(latencies)
        return figures | {"repeats": self.repeats / len(latencies)}

    def transact(self) -> None:
        batch = wire.transactional_batch(self.value, self.who)
        request = wire.transactional_produce_request(self.topic, self.name, batch)
        while error := produce_error(self.connection.call(request), self.topic):
            if error != CONCURRENT_TRANSACTIONS:
                raise BenchError(f"Produce was answered with error {error}")
            self.repeats += 1
            time.sleep(REPEAT_SECONDS)
        request = wire.end_request(self.name, self.who, True)
        error, who = wire.read_end(self.connection.call(request))
        if error:
            raise BenchError(f"EndTxn was answered with error {error}")
        self.who = who


def librdkafka(target: Target, topic: str, warmup_s: float, seconds: float) -> Figures:
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": f"bench-{time.time_ns()}"})
    producer.init_transactions(TIMEOUT_SECONDS)
    _run(producer, target, topic, warmup_s)
    return _run(producer, target, topic, seconds)


def _run(producer: Producer, target: Target, topic: str, seconds: float) -> Figures:
    value = payloads(RECORD_BYTES)[0]
    latencies: list[int] = []
    with Meter(target.pid) as meter:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter_ns()
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.commit_transaction(TIMEOUT_SECONDS)
            latencies.append(time.perf_counter_ns() - began)
    return meter.figures(requests=len(latencies)) | latency_figures(latencies)
