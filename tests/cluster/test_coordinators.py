"""Coordinators of groups and transactions on several brokers: they move with leaders and take nothing back."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.cluster.conftest import promised
from tests.cluster.coordinator_clients import VersionTwoProducer, coordinator_of
from tests.conformance.group_calls import GroupCalls
from tests.conformance.peer import Peer
from tests.conformance.transaction_calls import Producer as TransactionalProducer
from tests.conformance.transaction_calls import TransactionCalls

from ottla.client.coordinators import KeyType
from ottla.testing.cluster import Cluster, ClusterBroker
from ottla.testing.links import ZOOKEEPER

QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50}
SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
PATIENCE_SECONDS = 30.0
CONCURRENT_TRANSACTIONS = 51


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """What everything in this test is called; a second try finds nothing of the first."""
    words = request.node.name.removeprefix("test_")[:60].replace("[", "-").replace("]", "")
    return f"{words}-{uuid.uuid4().hex[:4]}"


def client(cluster: Cluster, **settings: Any) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return {"bootstrap.servers": cluster.bootstrap, **QUIET, **named}


def produce(cluster: Cluster, topic: str, partitions: int, count: int) -> None:
    producer = Producer(client(cluster, acks="all"))
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_SECONDS) == 0


def read_committed(cluster: Cluster, topic: str, partitions: int, count: int) -> list[bytes]:
    """All values that a reader of committed records sees; waits until there are so many, and for the stable end."""
    consumer = Consumer(client(cluster, group_id="nobody", isolation_level="read_committed"))
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    time.sleep(0.2)
    while (message := consumer.poll(0.2)) is not None:
        if message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


class Killer:
    """Kills a broker a moment after the order, while the test goes on."""

    def __init__(self) -> None:
        self.killed: list[ClusterBroker] = []
        self._threads: list[threading.Thread] = []

    def kill_after(self, seconds: float, broker: ClusterBroker) -> None:
        def work() -> None:
            time.sleep(seconds)
            broker.kill()

        self.killed.append(broker)
        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def revive(self, cluster: Cluster) -> None:
        for thread in self._threads:
            thread.join()
        cluster.start_brokers()
        cluster.wait_until_whole()


@pytest.fixture
def killer() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    for thread in killer._threads:
        thread.join()


@promised(10.0)
def test_a_commit_that_was_answered_is_never_taken_back(
    cluster: Cluster, name: str, killer: Killer, seconds_max: float
) -> None:
    """Commits go on while their coordinator is killed twice; a fetched offset is never below an acknowledged one."""
    cluster.create_topic(name)
    committer = Consumer(client(cluster, group_id=name, enable_auto_commit=False))
    partition = TopicPartition(name, 0)
    answered = 0
    longest_seconds = 0.0
    for round_ in range(2):
        killer.kill_after(0.5, coordinator_of(cluster, KeyType.GROUP, name))
        until = time.monotonic() + 2.5
        offset = answered
        while time.monotonic() < until or answered <= 10 * (round_ + 1):
            offset += 1
            began = time.monotonic()
            if commit(committer, name, offset):
                answered = offset
                longest_seconds = max(longest_seconds, time.monotonic() - began)
            (found,) = committer.committed([partition], timeout=PATIENCE_SECONDS)
            assert found.offset >= answered, f"round {round_}: {found.offset} after {answered} was answered"
        killer.revive(cluster)
    (found,) = committer.committed([partition], timeout=PATIENCE_SECONDS)
    assert found.offset >= answered > 20
    assert longest_seconds < seconds_max
    committer.close()


def commit(consumer: Consumer, topic: str, offset: int) -> bool:
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    except KafkaException:
        return False
    return True


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_continues_when_its_coordinator_is_killed(cluster: Cluster, name: str, protocol: str) -> None:
    """Two members read on: nothing is left out, and in the end the group has committed all of it."""
    cluster.create_topic(name, 2)
    settings = client(cluster, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False)
    settings |= SESSION if protocol == "classic" else {"group.protocol": "consumer"}
    members = [Consumer(settings) for _ in range(2)]
    for member in members:
        member.subscribe([name])
    read: dict[int, int] = {0: 0, 1: 0}  # by partition: how far
    for part in range(4):
        produce(cluster, name, 2, 200)
        if part == 2:
            coordinator_of(cluster, KeyType.GROUP, name).kill()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and sum(read.values()) < 200 * (part + 1):
            for member in members:
                read_some(member, read)
    assert read == {0: 400, 1: 400}
    for member in members:
        member.close()
    places = [TopicPartition(name, index) for index in range(2)]
    asking = Consumer(client(cluster, group_id=name))
    assert [each.offset for each in asking.committed(places, timeout=PATIENCE_SECONDS)] == [400, 400]
    asking.close()


def read_some(member: Consumer, read: dict[int, int]) -> None:
    """Each next record is the one after the last, or one of those that were read but not committed."""
    for message in member.consume(50, 0.1):
        if message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert offset <= read[partition], f"{read[partition]} was left out"
            read[partition] = max(read[partition], offset + 1)
            with contextlib.suppress(KafkaException):  # a rebalance: the new owner of the partition commits
                member.commit(message=message, asynchronous=False)


@pytest.mark.parametrize("victim", ["coordinator", "leader"])
def test_transactions_of_version_1_end_as_acknowledged(
    cluster: Cluster, name: str, killer: Killer, victim: str
) -> None:
    """librdkafka: partitions are added by the client, and verified by brokers that do not coordinate."""
    cluster.create_topic(name, 3)
    producer = Producer(client(cluster, transactional_id=name, linger_ms=0, transaction_timeout_ms=30_000))
    producer.init_transactions(PATIENCE_SECONDS)
    committed: list[bytes] = []
    for number in range(40):
        if number == 15:
            killer.kill_after(0.05, victim_of(cluster, name, victim))
        if run_transaction(producer, name, number, is_commit=number % 4 != 3):
            committed += values_of(number)
    assert killer.killed
    assert len(committed) >= 3 * 25
    killer.revive(cluster)
    values = read_committed(cluster, name, 3, len(committed))
    assert sorted(values) == sorted(committed)


def victim_of(cluster: Cluster, name: str, victim: str) -> ClusterBroker:
    coordinator = coordinator_of(cluster, KeyType.TRANSACTION, name)
    if victim == "coordinator":
        return coordinator
    leaders = [cluster.leader_of(name, index) for index in range(3)]
    return next(leader for leader in leaders if leader is not coordinator)


def values_of(number: int) -> list[bytes]:
    return [b"%d:%d" % (number, partition) for partition in range(3)]


def run_transaction(producer: Producer, topic: str, number: int, *, is_commit: bool) -> bool:
    """Whether it was committed."""
    producer.begin_transaction()
    for partition, value in enumerate(values_of(number)):
        producer.produce(topic, value, partition=partition)
    producer.flush(PATIENCE_SECONDS)
    try:
        if is_commit:
            retry(producer.commit_transaction)
            return True
    except KafkaException as problem:
        if not problem.args[0].txn_requires_abort():
            raise
    retry(producer.abort_transaction)
    return False


def retry(call: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            call(PATIENCE_SECONDS)
        except KafkaException as problem:
            if not problem.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def test_an_abort_that_overtakes_the_first_partition_is_no_error(cluster: Cluster, name: str) -> None:
    """The partition was refused: markers of the last transaction were still on their way to other brokers."""
    cluster.create_topic(name, 3)
    with Peer(coordinator_of(cluster, KeyType.TRANSACTION, name).bootstrap_servers) as peer:
        calls = TransactionCalls(peer, name)
        who = calls.start()

        def is_refused() -> bool:
            """Whether the next transaction came too early; if it did not, its partition is committed next time."""
            add_partitions(calls, who, name)
            assert calls.end(who, commit=True, version=4).error_code == 0
            refusal = calls.add(who, {name: [0]})[name][0]
            calls.wait_for_state("CompleteCommit" if refusal else "Ongoing")
            return bool(refusal == CONCURRENT_TRANSACTIONS)

        cluster.wait_for(is_refused, "a partition that was refused")
        assert end_when_possible(calls, who, commit=False) == 0
        add_partitions(calls, who, name)
        assert calls.end(who, commit=True, version=4).error_code == 0


def end_when_possible(calls: TransactionCalls, who: TransactionalProducer, *, commit: bool) -> int:
    """The answer, once the last record of the transaction is on all brokers; clients ask again as well."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (error := calls.end(who, commit=commit, version=4).error_code) == CONCURRENT_TRANSACTIONS:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(error)


def add_partitions(calls: TransactionCalls, who: TransactionalProducer, topic: str) -> None:
    """All three of them, as soon as all brokers know the topic and the last transaction is complete."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while set((answers := calls.add(who, {topic: [0, 1, 2]}))[topic].values()) != {0}:
        assert time.monotonic() < deadline, answers
        time.sleep(0.01)


@pytest.mark.parametrize("victim", ["coordinator", "leader"])
def test_transactions_of_version_2_end_as_acknowledged(
    cluster: Cluster, name: str, killer: Killer, victim: str
) -> None:
    """Brokers add partitions to transactions that others coordinate; offsets of the group count with them."""
    if cluster.partition("in") is None:
        cluster.create_topic("in")
    cluster.create_topic(name, 3)
    producer = VersionTwoProducer(cluster, name)
    committed: list[bytes] = []
    offset = 0
    for number in range(16):
        if number == 6:
            killer.kill_after(0.05, victim_of(cluster, name, victim))
        is_commit = number % 4 != 3
        places = {(name, partition): value for partition, value in enumerate(values_of(number))}
        producer.run(places, name, number + 1, is_commit=is_commit)
        if is_commit:
            committed += values_of(number)
            offset = number + 1
    producer.close()
    killer.revive(cluster)
    assert sorted(read_committed(cluster, name, 3, len(committed))) == sorted(committed)
    group = Consumer(client(cluster, group_id=name, isolation_level="read_committed"))
    (found,) = group.committed([TopicPartition("in", 0)], timeout=PATIENCE_SECONDS)
    assert found.offset == offset
    group.close()


def test_a_copy_is_made_exactly_once_while_a_broker_dies(cluster: Cluster, name: str, killer: Killer) -> None:
    """Consume, transform, produce: offsets and records are one transaction, on three brokers of which one dies."""
    source, target = f"{name}-in", f"{name}-out"
    cluster.create_topic(source, 3)
    cluster.create_topic(target, 3)
    produce(cluster, source, 3, 600)
    deadline = time.monotonic() + 60
    copied = 0
    while copied < 600 and time.monotonic() < deadline:
        copied = copy(cluster, source, target, name, lambda: kill_one(killer, cluster), deadline)
    killer.revive(cluster)
    values = read_committed(cluster, target, 3, 600)
    assert sorted(map(int, values)) == list(range(600))
    assert len(killer.killed) == 1


def kill_one(killer: Killer, cluster: Cluster) -> None:
    if not killer.killed:
        killer.kill_after(0.0, cluster.brokers[0])


def copy(cluster: Cluster, source: str, target: str, name: str, disturb: Any, deadline: float) -> int:
    """One life of a copying application; how far the group is when it ends."""
    settings = client(cluster, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False) | SESSION
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.subscribe([source])
    producer = Producer(client(cluster, transactional_id=name, linger_ms=0))
    producer.init_transactions(PATIENCE_SECONDS)
    rounds = 0
    try:
        while time.monotonic() < deadline and group_offset(consumer, source) < 600:
            messages = [each for each in consumer.consume(40, 1.0) if each.error() is None]
            if not messages:
                continue
            rounds += 1
            if rounds == 4:
                disturb()
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            known = [each for each in positions if each.offset >= 0]
            producer.send_offsets_to_transaction(known, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
            producer.commit_transaction(PATIENCE_SECONDS)
    except KafkaException as problem:
        if problem.args[0].txn_requires_abort():
            retry(producer.abort_transaction)  # and a new life begins at the group's offsets
    done = group_offset(consumer, source)
    consumer.close()
    return done


def group_offset(consumer: Consumer, topic: str) -> int:
    try:
        found = consumer.committed([TopicPartition(topic, index) for index in range(3)], timeout=PATIENCE_SECONDS)
    except KafkaException:
        return 0
    return sum(max(each.offset, 0) for each in found)


@pytest.mark.faults
def test_a_paused_coordinator_answers_nothing_stale(cluster: Cluster, name: str) -> None:
    """It has a successor by then, and requests that wait in its sockets; SIGSTOP for two sessions."""
    cluster.create_topic(name)
    place = TopicPartition(name, 0)
    readers = [Consumer(client(cluster, group_id=name)) for _ in range(4)]
    cluster.wait_for(lambda: commit(readers[0], name, 5) or None, "an answer to a commit")
    for reader in readers:
        assert reader.committed([place], timeout=PATIENCE_SECONDS)[0].offset == 5
    held = coordinator_of(cluster, KeyType.GROUP, name)
    held.pause()
    told: list[int] = []
    threads = [threading.Thread(target=ask_for_offset, args=(reader, place, told)) for reader in readers]
    for thread in threads:
        thread.start()
    successor = cluster.wait_for(lambda: other_coordinator(cluster, name, held), "a successor")
    committer = Consumer(client(cluster, group_id=name, bootstrap_servers=successor.bootstrap_servers))
    cluster.wait_for(lambda: commit(committer, name, 100) or None, "an answer to a commit")
    held.resume()
    for thread in threads:
        thread.join()
    assert len(told) > 4
    assert min(told) >= 100
    for consumer in (*readers, committer):
        consumer.close()


def other_coordinator(cluster: Cluster, name: str, held: ClusterBroker) -> ClusterBroker | None:
    found = coordinator_of(cluster, KeyType.GROUP, name)
    return None if found is held else found


def ask_for_offset(reader: Consumer, place: TopicPartition, told: list[int]) -> None:
    """The first request waits in the socket of the paused broker; then one after the other for half a second."""
    until = time.monotonic() + PATIENCE_SECONDS
    has_answer = False
    while time.monotonic() < until:
        with contextlib.suppress(KafkaException):
            told.append(reader.committed([place], timeout=PATIENCE_SECONDS)[0].offset)
            if not has_answer:
                has_answer, until = True, time.monotonic() + 0.5


def test_a_coordinator_that_is_cut_off_answers_nothing_stale(cluster_factory: Callable[..., Cluster]) -> None:
    """Clients still reach it, and no broker can notify it of its successor."""
    cluster = cluster_factory(has_links=True)
    assert cluster.links is not None
    cluster.create_topic("t")
    cut = coordinator_of(cluster, KeyType.GROUP, "g")
    cluster.wait_for(lambda: commit_at_any([cut], 5), "an answer to a commit")
    others = [broker for broker in cluster.brokers if broker is not cut]
    for node in (ZOOKEEPER, *(broker.id for broker in others)):
        cluster.links.cut(cut.id, node)
    cluster.wait_for(lambda: commit_at_any(others, 100), "an answer to a commit of the successor")
    with Peer(cut.bootstrap_servers) as peer:
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            answer = GroupCalls(peer, "g").fetch_offsets({"t": [0]})
            assert answer.error_code, answer.topics
    cluster.links.heal()
    told: list[int] = []
    reader = Consumer(client(cluster, group_id="g"))
    ask_for_offset(reader, TopicPartition("t", 0), told)
    assert set(told) == {100}
    reader.close()


def commit_at_any(brokers: list[ClusterBroker], offset: int) -> bool:
    """Whether one of them has taken it."""
    for broker in brokers:
        with Peer(broker.bootstrap_servers) as peer:
            if GroupCalls(peer, "g").commit({"t": {0: offset}})["t"][0] == 0:
                return True
    return False
