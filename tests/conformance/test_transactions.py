"""Transactions of real clients: exactly once from topic to topic, fencing, time-outs, and restarts of the broker."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from tests.conformance.conftest import NewTopic, broker_of_module
from tests.conformance.group_calls import GroupCalls, find_coordinator
from tests.conformance.peer import COORDINATOR_LOAD_IN_PROGRESS, Peer
from tests.conformance.transaction_calls import TransactionCalls
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

BrokerFactory = Callable[..., Any]

RECORDS = 200
A_TRANSACTION = 20
SECONDS_MAX = 40
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | None]:
    """Instead of the broker of the session: it looks for late transactions often."""
    yield from broker_of_module(tmp_path_factory, QUICK)


@pytest.fixture(scope="module")
def bootstrap(broker: Broker | None) -> str:
    return broker.bootstrap if broker else FOREIGN_BOOTSTRAP


@pytest.fixture(scope="module")
def topic_names() -> Callable[[], str]:
    count = iter(range(1_000))
    stamp = time.time_ns()
    return lambda: f"transactions-{stamp}-{next(count)}"


def transactional(bootstrap: str, name: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **settings})
    producer.init_transactions(SECONDS_MAX)
    return producer


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0


def read_committed(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """All that is there: `count` records, and nothing after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-{time.time_ns()}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        assert time.monotonic() < deadline, f"{len(values)} of {count}"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF and len(values) >= count:
            consumer.close()
            return values


def copy(bootstrap: str, source: str, target: str, transactions: int) -> Producer:
    """Copy records in transactions together with their offsets; the last transaction is left open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": source,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([source])
    producer = transactional(bootstrap, source)
    for number in range(transactions + 1):
        producer.begin_transaction()
        taken = 0
        deadline = time.monotonic() + SECONDS_MAX
        while taken < A_TRANSACTION and time.monotonic() < deadline:
            for message in consumer.consume(A_TRANSACTION - taken, 0.2):
                producer.produce(target, message.value())
                taken += 1
        assert taken == A_TRANSACTION
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS_MAX)
        if number < transactions:
            producer.commit_transaction(SECONDS_MAX)
    producer.flush(SECONDS_MAX)
    consumer.close()
    return producer


def test_exactly_once_from_topic_to_topic_with_librdkafka(bootstrap: str, new_topic: NewTopic) -> None:
    source, target = new_topic(), new_topic()
    fill(bootstrap, source)
    zombie = copy(bootstrap, source, target, 4)  # dies with a transaction open
    last = RECORDS // A_TRANSACTION - 4 - 1
    successor = copy(bootstrap, source, target, last)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(SECONDS_MAX)
    assert fenced.value.args[0].fatal()
    successor.commit_transaction(SECONDS_MAX)
    assert read_committed(bootstrap, target, RECORDS) == [b"%d" % number for number in range(RECORDS)]
    assert len(read_committed(bootstrap, target, RECORDS, "read_uncommitted")) == RECORDS + A_TRANSACTION


def test_aborted_records_are_never_seen(bootstrap: str, topic: str) -> None:
    producer = transactional(bootstrap, topic)
    for word in (b"one", b"never", b"two", b"nor this", b"three"):
        producer.begin_transaction()
        producer.produce(topic, word)
        if word in (b"never", b"nor this"):
            producer.flush(SECONDS_MAX)
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    assert read_committed(bootstrap, topic, 3) == [b"one", b"two", b"three"]


def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str, topic: str) -> None:
    slow = transactional(bootstrap, topic, **{"transaction.timeout.ms": 1_000, "message.timeout.ms": 900})
    slow.begin_transaction()
    slow.produce(topic, b"too late")
    slow.flush(SECONDS_MAX)
    with Peer(bootstrap) as peer:
        TransactionCalls(peer, topic).wait_for_state("CompleteAbort")
    with pytest.raises(KafkaException):
        slow.commit_transaction(SECONDS_MAX)
    quick = transactional(bootstrap, f"{topic}-quick")
    quick.begin_transaction()
    quick.produce(topic, b"in time")
    quick.commit_transaction(SECONDS_MAX)
    assert read_committed(bootstrap, topic, 1) == [b"in time"]


PROGRAM = Path(__file__).parent / "java" / "Transactions.java"


def test_exactly_once_from_topic_to_topic_with_java(bootstrap: str, new_topic: NewTopic, kafka_jars: Path) -> None:
    source, target = new_topic(), new_topic()
    fill(bootstrap, source)
    command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    done = subprocess.run(
        [*command, "-cp", f"{kafka_jars}/*", str(PROGRAM), bootstrap, source, target],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["zombie fenced: ProducerFencedException"], done.stdout + done.stderr[-3000:]
    assert read_committed(bootstrap, target, RECORDS) == [b"%d" % number for number in range(RECORDS)]


# ---- the broker restarts


@pytest.mark.parametrize("how", ["orderly", "killed"])
def test_groups_and_transactions_outlive_the_broker(broker_factory: BrokerFactory, how: str) -> None:
    broker = broker_factory(group_initial_rebalance_delay_ms=0)
    with Peer(broker.bootstrap) as peer:
        for key_type in (0, 1):
            find_coordinator(peer, "x", key_type)
        topic_id = peer.create_topic("t", 3)
        group, new = GroupCalls(peer, "g"), GroupCalls(peer, "new")
        member, generation = group.stable_member()
        group.commit({"t": {0: 5}}, member_id=member, generation=generation)
        new.consumer_join("A", ["t"])
        new.commit({"t": {0: 6}}, member_id="A", generation=2)
        open_one, done_one = TransactionCalls(peer, "open"), TransactionCalls(peer, "done")
        who = open_one.start()
        open_one.produce(who, "t", 0)
        open_one.commit_offsets(who, "other", {"t": {0: 7}})
        done = done_one.start()
        done_one.produce(done, "t", 0)
        done_one.end(done, commit=True)
    if how == "killed":
        broker.kill9()
        broker.start()
    else:
        broker.restart()
    with Peer(broker.bootstrap) as peer:
        group, new = GroupCalls(peer, "g"), GroupCalls(peer, "new")
        assert [group.committed("t"), new.committed("t"), GroupCalls(peer, "other").committed("t")] == [5, 6, -1]
        assert group.heartbeat(member, generation) == 0
        assert group.commit({"t": {0: 8}}, member_id=member, generation=generation) == {"t": {0: 0}}
        assert new.consumer_heartbeat("A", 2, owned={topic_id: [0, 1, 2]}).error == 0
        open_one = TransactionCalls(peer, "open")
        assert open_one.wait_for_state("Ongoing").producer_id == who.producer_id
        assert open_one.produce(who, "t", 1).error_code == 0
        assert open_one.end(who, commit=True).error_code == 0
        open_one.wait_for_state("CompleteCommit")
        assert GroupCalls(peer, "other").committed("t") == 7
        assert TransactionCalls(peer, "done").wait_for_state("CompleteCommit").producer_epoch == done.epoch + 1


def test_a_loading_coordinator_answers_nothing_stale(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(offsets_topic_num_partitions=1, log_cleaner_enable="false")
    with Peer(broker.bootstrap) as peer:
        find_coordinator(peer, "x")
        peer.create_topic("t", 100)
        group = GroupCalls(peer, "g")
        for round_number in range(200):
            group.commit({"t": dict.fromkeys(range(100), round_number)})
    broker.restart()
    with Peer(broker.bootstrap) as peer:
        group = GroupCalls(peer, "g")
        errors = set()
        while (answer := group.fetch_offsets({"t": [0]})).error_code != 0:
            errors.add(answer.error_code)
            if len(errors) == 1:
                assert group.join().error_code in (COORDINATOR_LOAD_IN_PROGRESS, 79)
                assert group.heartbeat("m", 1) in (0, 25)  # a member can do no better than wait
        assert errors == {COORDINATOR_LOAD_IN_PROGRESS}
        assert answer.topics[0].partitions[0].committed_offset == 199
