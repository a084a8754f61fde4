"""Every partition moves, those of coordinators too, while groups and transactions are at work and brokers die."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults import cluster_faults as fault
from tests.faults.cluster_checker import TOPIC, Checker
from tests.faults.cluster_faults import Scene
from tests.faults.cluster_rounds import check_logs, rounds

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.reassignments import Election, alter_reassignments, elect_leaders, list_reassignments
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
ClusterFactory = Callable[..., Cluster]
REPLICAS = 3
MOVE_SECONDS_MAX = 60.0


def test_coordinators_move_with_their_partitions(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """R19 and X1, G2 with moves instead of deaths: nothing is lost, nothing is seen twice, commits never go back."""
    cluster = cluster_factory(brokers=4)
    chance = random.Random(4)
    with Checker(cluster.bootstrap, tmp_path / "logs", has_transactions=True) as checker:
        scene = Scene(cluster, chance, TOPIC)
        for number in range(rounds(20)):
            wanted = shuffled(cluster, chance)
            refused = ask(cluster, lambda client, wanted=wanted: alter_reassignments(client, wanted))
            assert refused == {}
            if number % 3 == 1:
                fault.kill_leader(scene)
            cluster.wait_for(lambda: not ask(cluster, list_reassignments), "an end of all moves", MOVE_SECONDS_MAX)
            cluster.wait_until_whole()
            results = ask(cluster, lambda client: elect_leaders(client, Election.PREFERRED, None))
            failed = {name: problem for name, problem in results.items() if problem is not None}
            assert all(problem.error is Error.PREFERRED_LEADER_NOT_AVAILABLE for problem in failed.values()), failed
            checker.wait_for_acknowledgements(2)
        outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations, outcome
    check_logs(cluster)


def shuffled(cluster: Cluster, chance: random.Random) -> dict[TopicPartition, list[int]]:
    """Other brokers for every partition of every topic."""
    ids = [broker.id for broker in cluster.brokers]
    with cluster.admin() as admin:
        names = [TopicPartition(topic.name, item.number) for topic in admin.topics() for item in topic.partitions]
    return {name: chance.sample(ids, REPLICAS) for name in names}


def ask(cluster: Cluster, question: Callable[[Any], Any]) -> Any:
    with cluster.admin() as admin:
        return question(admin.client)
