"""Brokers in which one rule of replication is broken: the checker must notice within a few rounds."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.cluster_checker import TOPIC, Checker
from tests.faults.cluster_disks import python_path
from tests.faults.cluster_faults import Scene

from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
MUTATED = Path(__file__).parent / "mutated_broker"
ROUNDS_MAX = 5


def kill_leader_of_slow_followers(scene: Scene) -> None:
    """Followers lack the last tenth of a second when their leader dies."""
    for one, other in ((1, 2), (1, 3), (2, 3)):
        scene.links.slow_down(one, other, delay_seconds=0.1)
    time.sleep(0.5)
    leader = scene.some_leader()
    leader.kill()
    scene.links.heal()
    leader.start()


@pytest.mark.parametrize(("mutation", "letters"), [("early acknowledgement", "DCM"), ("no deduplication", "UCO")])
def test_a_broken_rule_is_noticed(
    cluster_factory: Callable[..., Cluster], tmp_path: Path, mutation: str, letters: str
) -> None:
    environment = {"PYTHONPATH": python_path(MUTATED), "OTTLA_TEST_MUTATION": mutation, "OTTLA_PURE": "1"}
    cluster = cluster_factory(has_links=True, environments=dict.fromkeys((1, 2, 3), environment))
    scene = Scene(cluster, random.Random(5), TOPIC)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        for _ in range(ROUNDS_MAX):
            time.sleep(0.5)
            kill_leader_of_slow_followers(scene)
            cluster.wait_until_whole()
        outcome = checker.finish(cluster)
    print(outcome)
    assert {line[0] for line in outcome.violations} & set(letters), outcome
