"""X1-X3 and G2 in a cluster: a broker dies by its own hand at each step of a transaction, or while a group is written.

Every broker has every partition, so a step is written by all of them: the broker that dies at it may be
the coordinator, the leader of a partition that takes part, or a follower.
"""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.conformance.group_calls import find_coordinator
from tests.conformance.peer import Peer
from tests.faults.broker_deaths import WRAPPER
from tests.faults.cluster_checker import check_replicas
from tests.faults.cluster_disks import python_path
from tests.faults.cluster_rounds import check_logs, rounds
from tests.faults.group_members import CLASSIC, CONSUMER, GROUP, TOPIC, GroupHistory, Member, wait_until
from tests.faults.loads import LIBRDKAFKA
from tests.faults.test_group_faults import DEATHS, Feed
from tests.faults.test_transaction_steps import read_output
from tests.faults.transaction_clients import OUTPUT, PARTITIONS, ConfluentTransactions, values_of

from ottla.testing.cluster import Cluster, ClusterBroker

pytestmark = pytest.mark.faults
WHENS = ["after", "half", "before"]
# Without the group's place: librdkafka may wait for ever in send_offsets_to_transaction() for a coordinator that died
# (its issue 5511, also with several brokers). Copiers of the soak move places, in processes that can be killed.
MARKERS = [("MARKER", number) for number in range(1, PARTITIONS + 1)]
COMMIT = [("ADD_PARTITIONS", 1), ("DATA", 2), ("PREPARE_COMMIT", 1), *MARKERS, ("COMPLETE_COMMIT", 1)]
ABORT = [("PREPARE_ABORT", 1), *MARKERS, ("COMPLETE_ABORT", 1)]
DEATH_SECONDS_MAX = 60.0
LSO_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 3.0
ClusterFactory = Callable[..., Cluster]
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
}


class Mortals:
    """A cluster whose brokers die on command, and the commands."""

    def __init__(self, factory: ClusterFactory, folder: Path) -> None:
        self._orders = {broker_id: folder / f"death-{broker_id}" for broker_id in (1, 2, 3)}
        environments = {
            broker_id: {"PYTHONPATH": python_path(WRAPPER), "OTTLA_TEST_DEATH": str(order)}
            for broker_id, order in self._orders.items()
        }
        self.cluster = factory(environments=environments, settings=SETTINGS)
        self.deaths = 0

    def arm(self, broker: ClusterBroker, step: str, number: int, when: str) -> None:
        order = self._orders[broker.id]
        order.with_suffix(".tmp").write_text(f"{step} {number} {when}\n")
        order.with_suffix(".tmp").rename(order)

    def start_again_after_death(self, broker: ClusterBroker) -> None:
        deadline = time.monotonic() + DEATH_SECONDS_MAX
        while broker.is_running:
            assert time.monotonic() < deadline, f"broker {broker.id} does not die: {self._orders[broker.id].exists()}"
            time.sleep(0.01)
        assert not self._orders[broker.id].exists(), f"died of something else:\n{broker.logs[-3000:]}"
        self.deaths += 1
        broker.kill()  # takes note
        broker.start()


def coordinator_of(cluster: Cluster, key: str, key_type: int) -> ClusterBroker:
    deadline = time.monotonic() + 30
    while True:
        with Peer(cluster.live_brokers[0].bootstrap_servers) as peer:
            found = find_coordinator(peer, key, key_type)
        if not found.error_code:
            return cluster.broker(found.node_id)
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_a_death_at_any_step_changes_no_outcome(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """X1 and X2."""
    mortals = Mortals(cluster_factory, tmp_path)
    cluster = mortals.cluster
    chance = random.Random(1)
    cluster.create_topic(OUTPUT, PARTITIONS)
    client = ConfluentTransactions(cluster.bootstrap, "mover", moves_group=False)
    assert client.run(0, is_commit=True)
    committed, number = [0], 0
    steps = [(step, True) for step in COMMIT] + [(step, False) for step in ABORT]
    for turn in range(rounds(20)):
        for index, ((step, nth), is_commit) in enumerate(steps):
            number += 1
            # In half of all cases the coordinator, else any broker.
            victim = coordinator_of(cluster, "mover", 1) if chance.random() < 0.5 else chance.choice(cluster.brokers)
            mortals.arm(victim, step, nth, WHENS[(turn + index) % len(WHENS)])
            with ThreadPoolExecutor(1) as executor:
                ending = executor.submit(client.run, number, is_commit=is_commit)
                mortals.start_again_after_death(victim)
                if ending.result():
                    committed.append(number)
            cluster.wait_until_whole()
    client.close()
    stored = read_output(cluster.bootstrap)
    for partition in range(PARTITIONS):
        assert stored[partition] == [value for each in committed for value in values_of(each, partition)]
    places = [(OUTPUT, partition) for partition in range(PARTITIONS)]
    assert not check_replicas(cluster, places)
    check_logs(cluster)
    print(f"{mortals.deaths} deaths, {number} transactions, {len(committed)} committed")


ABANDONED = """
import os, signal, sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2], "transaction.timeout.ms": 3000})
producer.init_transactions(30)
producer.begin_transaction()
for partition in range(3):
    producer.produce("output", b"abandoned", partition=partition)
assert producer.flush(30) == 0
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_producer_blocks_no_reader(cluster_factory: ClusterFactory) -> None:
    """X3: also when the coordinator dies in between, readers of committed records go on after the time-out and 10 s."""
    cluster = cluster_factory(settings=SETTINGS)
    cluster.create_topic(OUTPUT, PARTITIONS)
    for number in range(rounds(30)):
        name = f"abandoned-{number}"
        subprocess.run([sys.executable, "-c", ABANDONED, cluster.bootstrap, name], check=False, timeout=60)
        begin = time.monotonic()
        if number % 2:
            victim = coordinator_of(cluster, name, 1)
            victim.kill()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **LIBRDKAFKA})
        for partition in range(PARTITIONS):
            producer.produce(OUTPUT, b"after", partition=partition)
        assert producer.flush(30) == 0
        seen = read_output(cluster.bootstrap)
        while any(len(values) <= number for values in seen.values()):
            assert time.monotonic() < begin + TIMEOUT_SECONDS + LSO_SECONDS_MAX, f"round {number}: {seen}"
            time.sleep(0.2)
            seen = read_output(cluster.bootstrap)
        assert {value for values in seen.values() for value in values} == {b"after"}
        if number % 2:
            victim.start()
            cluster.wait_until_whole()
    check_logs(cluster)


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_dead_coordinator_loses_no_committed_offset(
    cluster_factory: ClusterFactory, tmp_path: Path, protocol: str
) -> None:
    """G2."""
    mortals = Mortals(cluster_factory, tmp_path)
    cluster = mortals.cluster
    cluster.create_topic(TOPIC, 4)
    feed = Feed(cluster.bootstrap, 4)
    feed.start()
    history = GroupHistory(cluster.bootstrap, 4, protocol)
    members = [Member(history, f"member-{number}") for number in range(3)]
    for member in members:
        member.start()
    wait_until(lambda: history.acknowledged > 0, 30, history)
    for number in range(rounds(50)):
        victim = coordinator_of(cluster, GROUP, 0)
        mortals.arm(victim, *DEATHS[number % len(DEATHS)])
        leaver = threading.Thread(target=members.pop(0).stop)
        leaver.start()
        members.append(Member(history, f"member-{number + 3}"))
        members[-1].start()
        mortals.start_again_after_death(victim)
        leaver.join(60)
        cluster.wait_until_whole()
        history.check_places()
        acknowledged = history.acknowledged
        wait_until(lambda: history.acknowledged > acknowledged, 30, history)  # noqa: B023
    wait_until(history.is_shared_out, 30, history)
    feed.stop()
    for member in members:
        member.stop()
    history.check_places()
    print(f"{mortals.deaths} deaths, {history.acknowledged} places acknowledged, problems {history.problems}")
    assert not history.problems
    check_logs(cluster)
