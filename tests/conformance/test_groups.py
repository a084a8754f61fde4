"""Groups of real clients: members come and go, each partition has one reader, nothing is read twice or passed over.

The broker sets the heartbeat interval of the new protocol's members: it is short in these tests.
"""

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import aiokafka.errors
import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from tests.conformance.conftest import NewTopic, broker_of_module
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

PARTITIONS = 4
RECORDS = 80
SECONDS_MAX = 40
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
CLASSIC = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 100}
LIBRDKAFKA = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "roundrobin": {**CLASSIC, "partition.assignment.strategy": "roundrobin"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
KINDS = [*LIBRDKAFKA, "kafka-python", "aiokafka"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    """Instead of the broker of the session."""
    yield from broker_of_module(tmp_path_factory, QUICK)


@pytest.fixture(scope="module")
def bootstrap(broker: Broker | None) -> str:
    return broker.bootstrap if broker else FOREIGN_BOOTSTRAP


@pytest.fixture(scope="module")
def topic_names() -> Callable[[], str]:
    count = iter(range(1_000))
    stamp = time.time_ns()
    return lambda: f"groups-{stamp}-{next(count)}"


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(partitions=PARTITIONS)


def fill(bootstrap: str, topic: str, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0


class Reader(threading.Thread):
    """A member in a thread of its own: what it owns, and what it has read and committed."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.owned: set[int] = set()
        self.seen: list[int] = []
        self.is_leaving = threading.Event()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.read()
        except BaseException as failure:  # noqa: BLE001 (reported to the test)
            self.failure = failure

    def read(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        self.is_leaving.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class LibrdkafkaReader(Reader):
    settings: ClassVar[dict[str, Any]]

    def read(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False, **self.settings})
        consumer.subscribe([self.topic])
        while not self.is_leaving.is_set():
            message = consumer.poll(0.05)
            self.owned = {place.partition for place in consumer.assignment()}
            if message is not None and message.error() is None:
                with suppress(KafkaException):
                    consumer.commit(message, asynchronous=False)
                    self.seen.append(int(message.value()))
        consumer.close()


class KafkaPythonReader(Reader):
    def read(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
            partition_assignment_strategy=[RangePartitionAssignor, RoundRobinPartitionAssignor],
        )
        while not self.is_leaving.is_set():
            batches = consumer.poll(timeout_ms=50, max_records=5)
            self.owned = {place.partition for place in consumer.assignment()}
            if batches:
                with suppress(kafka.errors.CommitFailedError):  # it lost them meanwhile: the new owner reads them again
                    consumer.commit()
                    self.seen += [int(record.value) for records in batches.values() for record in records]
        consumer.close()


class AiokafkaReader(Reader):
    def read(self) -> None:
        asyncio.run(self.read_async())

    async def read_async(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
        )
        await consumer.start()
        while not self.is_leaving.is_set():
            batches = await consumer.getmany(timeout_ms=50, max_records=5)
            self.owned = {place.partition for place in consumer.assignment()}
            if batches:
                with suppress(aiokafka.errors.CommitFailedError):
                    await consumer.commit()
                    self.seen += [int(record.value) for records in batches.values() for record in records]
        await consumer.stop()


def start_reader(kind: str, bootstrap: str, topic: str, group: str) -> Reader:
    if kind == "kafka-python":
        return KafkaPythonReader(bootstrap, topic, group)
    if kind == "aiokafka":
        return AiokafkaReader(bootstrap, topic, group)
    return type(kind, (LibrdkafkaReader,), {"settings": LIBRDKAFKA[kind]})(bootstrap, topic, group)


def until(is_so: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("one", "other"),
    [*((kind, kind) for kind in KINDS), ("range", "consumer"), ("consumer", "cooperative")],
)
def test_members_share_the_partitions_and_take_over_from_a_leaving_member(
    bootstrap: str, topic: str, one: str, other: str
) -> None:
    """Also when one of them brings the other protocol: the group changes while it has members."""
    everything = set(range(PARTITIONS))
    first = start_reader(one, bootstrap, topic, topic)
    until(lambda: first.owned == everything, lambda: (first.owned, first.failure))
    second = start_reader(other, bootstrap, topic, topic)
    until(
        lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2 and first.owned | second.owned == everything,
        lambda: (first.owned, second.owned, first.failure, second.failure),
    )
    fill(bootstrap, topic)
    until(
        lambda: len(first.seen) + len(second.seen) >= RECORDS,
        lambda: (len(first.seen), len(second.seen), first.failure, second.failure),
    )
    first.leave()
    until(lambda: second.owned == everything, lambda: second.owned)
    fill(bootstrap, topic)
    until(
        lambda: len(first.seen) + len(second.seen) >= 2 * RECORDS,
        lambda: (len(first.seen), len(second.seen), second.failure),
    )
    second.leave()
    assert sorted(first.seen + second.seen) == sorted([*range(RECORDS), *range(RECORDS)])


# ---- one client, one subject each


def consumer_for(bootstrap: str, group: str, **settings: Any) -> Consumer:
    common = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **CLASSIC}
    return Consumer({**common, **{key.replace("_", "."): value for key, value in settings.items()}})


def read_some(consumer: Consumer, count: int) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count}"
        messages += [each for each in consumer.consume(count - len(messages), 0.2) if each.error() is None]
    return messages


def test_a_static_member_restarts_without_a_rebalance(bootstrap: str, topic: str) -> None:
    changes = {"one": 0, "two": 0}

    def start(name: str) -> Consumer:
        def on_change(*_: object) -> None:
            changes[name] += 1

        consumer = consumer_for(bootstrap, topic, group_instance_id=name)
        consumer.subscribe([topic], on_assign=on_change, on_revoke=on_change)
        return consumer

    def poll_until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, changes
            one.poll(0.02)
            two.poll(0.02)

    one, two = start("one"), start("two")
    poll_until(lambda: len(one.assignment()) == len(two.assignment()) == PARTITIONS // 2)
    owned = {place.partition for place in two.assignment()}
    before = changes["one"]
    two.close()
    two = start("two")
    poll_until(lambda: bool(two.assignment()))
    assert {place.partition for place in two.assignment()} == owned
    assert changes["one"] == before
    one.close()
    two.close()


def test_one_partition_is_paused_and_resumed(bootstrap: str, topic: str) -> None:
    consumer = consumer_for(bootstrap, topic, enable_auto_commit=False)
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.02) is None and len(consumer.assignment()) == PARTITIONS)
    paused = [TopicPartition(topic, 1)]
    consumer.pause(paused)
    fill(bootstrap, topic)
    others = read_some(consumer, RECORDS * 3 // 4)
    assert {message.partition() for message in others} == {0, 2, 3}
    assert consumer.poll(0.2) is None
    consumer.resume(paused)
    assert {message.partition() for message in read_some(consumer, RECORDS // 4)} == {1}
    consumer.close()


def test_offsets_are_committed_on_time_on_leaving_and_on_losing(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic)
    automatic = consumer_for(bootstrap, topic, auto_commit_interval_ms=100)
    automatic.subscribe([topic])
    read_some(automatic, RECORDS)
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    each = RECORDS // PARTITIONS
    watcher = consumer_for(bootstrap, topic)

    def committed() -> list[int]:
        return [place.offset for place in watcher.committed(places, 10)]

    until(lambda: automatic.poll(0.01) is None and committed() == [each] * PARTITIONS)
    automatic.close()
    lost: list[int] = []

    def on_revoke(consumer: Consumer, revoked: list[TopicPartition]) -> None:
        lost.extend(place.partition for place in revoked)
        consumer.commit(offsets=[TopicPartition(topic, place.partition, 7) for place in revoked], asynchronous=False)

    careful = consumer_for(bootstrap, topic, enable_auto_commit=False)
    careful.subscribe([topic], on_revoke=on_revoke)
    until(lambda: careful.poll(0.02) is None and len(careful.assignment()) == PARTITIONS)
    careful.close()
    assert sorted(lost) == list(range(PARTITIONS))
    assert committed() == [7] * PARTITIONS
    watcher.close()


def test_a_consumer_seeks_and_its_group_is_deleted(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic)
    consumer = consumer_for(bootstrap, topic)
    consumer.subscribe([topic])
    read_some(consumer, RECORDS)
    consumer.seek(TopicPartition(topic, 2, 5))
    again = read_some(consumer, RECORDS // PARTITIONS - 5)
    assert (again[0].partition(), again[0].offset()) == (2, 5)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (refused,) = admin.delete_consumer_groups([topic]).values()
    with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
        refused.result(10)
    (described,) = admin.describe_consumer_groups([topic]).values()
    assert (described.result(10).state, len(described.result(10).members)) == (ConsumerGroupState.STABLE, 1)
    consumer.close()
    (deleted,) = admin.delete_consumer_groups([topic]).values()
    assert deleted.result(10) is None


# ---- Java

PROGRAM = Path(__file__).parent / "java" / "Groups.java"


def test_java_consumers_of_both_protocols(bootstrap: str, new_topic: NewTopic, kafka_jars: Path) -> None:
    topics = [new_topic(partitions=PARTITIONS), new_topic(partitions=PARTITIONS)]
    for topic in topics:
        fill(bootstrap, topic)
    command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    done = subprocess.run(
        [*command, "-cp", f"{kafka_jars}/*", str(PROGRAM), bootstrap, *topics],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == [
        f"{protocol} shared {PARTITIONS // 2}/{PARTITIONS // 2}, taken over {PARTITIONS}, read {RECORDS}, twice 0"
        for protocol in ("classic", "consumer")
    ], done.stdout + done.stderr[-3000:]
