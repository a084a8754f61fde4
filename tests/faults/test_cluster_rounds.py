"""R1-R7, R9-R12, R14, R19, R20 and I2 of the reliability list, with real processes.

OTTLA_FAULTS_SCALE says how much of the full number of rounds is run: 0.2 by default, 1 before a release.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import KafkaException, Producer
from tests.faults import cluster_faults as fault
from tests.faults.cluster_checker import TOPIC, Checker, check_replicas
from tests.faults.cluster_faults import PARTITIONS, Fault, Scene
from tests.faults.cluster_rounds import check_logs, rounds, run_rounds
from tests.faults.loads import LIBRDKAFKA, read_everything

from ottla.base.names import TopicPartition
from ottla.client.errors import ClientError
from ottla.client.reassignments import alter_reassignments, list_reassignments
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
SESSION_SECONDS = 6.0
LAG_SECONDS = 5.0
ClusterFactory = Callable[..., Cluster]

# name: (fault, rounds, how long a partition may go without an acknowledgement, whether links can be cut)
ROUNDS: dict[str, tuple[Fault, int, float, bool]] = {
    "R1 kill leader": (fault.kill_leader, 100, SESSION_SECONDS + 3, False),
    "R2 kill controller": (fault.kill_controller, 50, SESSION_SECONDS + 3, False),
    "R3 wipe follower": (fault.kill_and_wipe_follower, 20, SESSION_SECONDS + 3, False),
    "R4 kill all": (fault.kill_all, 30, 30.0, False),
    "kill two": (fault.kill_two, 20, 20.0, False),
    "restart one": (fault.restart_one, 20, 2.0 + 1.0, False),
    "R5 pause leader": (fault.pause_leader, 50, 2 * SESSION_SECONDS + 3, False),
    "R6 pause controller": (fault.pause_controller, 30, 2 * SESSION_SECONDS + 3, False),
    "pause briefly": (fault.pause_briefly, 20, SESSION_SECONDS + 3, False),
    "R7 restart ZooKeeper": (fault.restart_zookeeper, 20, 5.0, False),
    "R9 cut leader from followers": (fault.cut_leader_from_followers, 50, 3 * SESSION_SECONDS, True),
    "R9 cut controller from brokers": (fault.cut_controller_from_brokers, 30, 3 * SESSION_SECONDS, True),
    "R10 cut one way": (fault.cut_one_way, 30, 4 * SESSION_SECONDS, True),
    "R10 cut one off": (fault.cut_one_off, 30, 4 * SESSION_SECONDS, True),
    "R10 cut from ZooKeeper": (fault.cut_from_zookeeper, 30, SESSION_SECONDS, True),
    "R13 swizzle": (fault.swizzle, 20, 6 * SESSION_SECONDS, True),
    "roll by the tool": (fault.roll_by_tool, 20, SESSION_SECONDS, False),
    "maintenance": (fault.maintain, 50, SESSION_SECONDS + 3, False),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_nothing_is_lost(cluster_factory: ClusterFactory, tmp_path: Path, name: str) -> None:
    what, full, gap_seconds_max, has_links = ROUNDS[name]
    cluster = cluster_factory(has_links=has_links)
    run_rounds(cluster, tmp_path / "logs", [what] * rounds(full), gap_seconds_max=gap_seconds_max)


def test_topics_that_were_answered_outlive_the_controller(cluster_factory: ClusterFactory) -> None:
    """R2: the controller dies right after it has answered."""
    cluster = cluster_factory()
    names = []
    for number in range(rounds(50)):
        names.append(cluster.create_topic(f"topic-{number}", 2))
        controller = cluster.controller()
        controller.kill()
        cluster.controller(other_than=controller, seconds_max=SESSION_SECONDS + 2)
        controller.start()
    cluster.wait_until_whole()
    for answer in cluster.metadata().values():
        known = {topic.name for topic in answer.topics if len(topic.partitions) == 2}
        assert known >= set(names)


def test_without_zookeeper_records_flow_and_changes_are_refused(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """R7: 20 s without ZooKeeper."""
    cluster = cluster_factory()
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        for _ in range(rounds(10)):
            before = {index: cluster.partition(TOPIC, index).leader_epoch for index in range(PARTITIONS)}  # type: ignore[union-attr]
            cluster.zookeeper.kill()
            checker.history.forget_gaps()
            begin = time.monotonic()
            with pytest.raises((ClientError, KafkaException)):
                cluster.create_topic(f"late-{begin}")
            while time.monotonic() < begin + 20:
                time.sleep(0.1)
            cluster.zookeeper.start()
            cluster.controller(seconds_max=10)
            cluster.create_topic(f"again-{int(begin)}")
            cluster.wait_until_whole()
            after = {index: cluster.partition(TOPIC, index).leader_epoch for index in range(PARTITIONS)}  # type: ignore[union-attr]
            assert after == before, "leaders have changed"
            assert checker.history.gap() < 3, checker.history.gap()
        outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations
    check_logs(cluster)


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """R11: gone after the lag and 5 s, back within 10 s."""
    cluster = cluster_factory(has_links=True)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        scene = Scene(cluster, random.Random(1), TOPIC)
        for _ in range(rounds(20)):
            busy = (cluster.leader_of(TOPIC, 0), cluster.controller())  # only through the controller can an ISR shrink
            follower = next(broker for broker in cluster.brokers if broker not in busy)
            scene.cut_off(follower)
            rest = [broker.id for broker in cluster.brokers if broker is not follower]
            led = [index for index in range(PARTITIONS) if cluster.leader_of(TOPIC, index) is not follower]
            for index in led:
                cluster.wait_for_isr(TOPIC, index, rest, LAG_SECONDS + 5)
            scene.links.heal()
            for index in led:
                cluster.wait_for_isr(TOPIC, index, [broker.id for broker in cluster.brokers], 10)
        outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations


def test_a_bad_network_loses_nothing(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """R12: 100 ms, 3 Mbit/s and lost packets between all brokers."""
    cluster = cluster_factory(has_links=True)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        assert cluster.links is not None
        for one in cluster.brokers:
            for other in cluster.brokers:
                if one.id < other.id:
                    cluster.links.slow_down(
                        one.id, other.id, delay_seconds=0.1, bytes_per_second=3_000_000 / 8, loss_rate=0.01
                    )
        deadline = time.monotonic() + 10 * rounds(30)
        while checker.history.acknowledged_count < 100_000 and time.monotonic() < deadline:
            time.sleep(0.5)
        cluster.links.heal()
        outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations
    assert not outcome.given_up


def test_rolling_restarts_delay_no_writer(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """R14: with groups and transactions."""
    cluster = cluster_factory()
    run_rounds(cluster, tmp_path / "logs", [fault.roll] * rounds(20), gap_seconds_max=2.0 + 1.0, has_transactions=True)


def test_deaths_delay_no_client_beside_transactions_and_groups(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    faults = [fault.kill_leader, fault.kill_controller] * rounds(10)
    run_rounds(cluster_factory(), tmp_path / "logs", faults, gap_seconds_max=SESSION_SECONDS + 3, has_transactions=True)


def test_replicas_move_while_brokers_die(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """R19: moved to other brokers, or on the way there taken back, while leaders are killed."""
    cluster = cluster_factory(brokers=4)
    chance = random.Random(19)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        scene = Scene(cluster, chance, TOPIC)
        for number in range(rounds(30)):
            wanted = {
                TopicPartition(TOPIC, index): chance.sample([broker.id for broker in cluster.brokers], 3)
                for index in range(PARTITIONS)
            }
            ask(cluster, lambda client, wanted=wanted: refuse_none(alter_reassignments(client, wanted)))
            fault.kill_leader(scene)
            if number % 3 == 2:
                under_way = ask(cluster, list_reassignments)
                if under_way:
                    ask(cluster, lambda client, u=under_way: alter_reassignments(client, dict.fromkeys(u)))
                wanted = {}
            cluster.wait_for(lambda: not ask(cluster, list_reassignments), "an end of all moves", 60)
            for place, replicas in wanted.items():
                found = cluster.partition(place.topic, place.partition)
                assert found is not None
                assert sorted(found.replica_nodes) == sorted(replicas)
            cluster.wait_until_whole()
        outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations, outcome
    check_logs(cluster)


def ask(cluster: Cluster, question: Callable[[Any], Any]) -> Any:
    with cluster.admin() as admin:
        return question(admin.client)


def refuse_none(refused: dict[TopicPartition, Any]) -> None:
    assert not refused, refused


def test_a_new_topic_has_no_records_of_an_old_one(cluster_factory: ClusterFactory) -> None:
    """R20: deleted and made again under the same name while brokers die; writers never stop."""
    cluster = cluster_factory(settings={"auto.create.topics.enable": False})
    chance = random.Random(20)
    for number in range(rounds(50)):
        cluster.create_topic("phoenix", 2)
        prefix = f"life{number}"
        with LifeLoad(cluster, prefix):
            time.sleep(chance.uniform(0.3, 1.0))
            victim = chance.choice(cluster.brokers)
            killer = threading.Timer(chance.uniform(0.0, 0.2), victim.kill)
            killer.start()
            time.sleep(chance.uniform(0.0, 0.4))
            cluster.delete_topic("phoenix")
            killer.join()
        if chance.random() < 0.5:
            victim.start()
        cluster.create_topic("phoenix", 2, replicas=2)  # on the brokers that are up: the victim may be down
        cluster.start_brokers()
        cluster.wait_until_whole()
        stored = read_everything(cluster.bootstrap, [("phoenix", 0), ("phoenix", 1)])
        old = [value for rows in stored.values() for _, value in rows]
        assert not old, f"round {number}: {old[:3]} come from an earlier topic"
        assert not check_replicas(cluster, [("phoenix", 0), ("phoenix", 1)])
        cluster.delete_topic("phoenix")
    check_logs(cluster)


class LifeLoad:
    """Writes to a topic until it is gone; a producer with the old topic id must not write to the new topic."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "message.timeout.ms": 3000, **LIBRDKAFKA})
        number = 0
        while not self._is_over.is_set():
            producer.produce("phoenix", f"{self.prefix}:{number}", partition=number % 2)
            number += 1
            producer.poll(0.005)
        producer.purge()
        producer.flush(5)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(30)
