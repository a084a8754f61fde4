"""Brokers in which one rule of replication is broken: the checker must notice within a few rounds."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.cluster_checker import TOPIC, Checker
from faults.cluster_disks import python_path
from faults.cluster_faults import Fault, Scene, kill_and_wipe_follower, kill_leader
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
MUTATED = Path(__file__).parent / "mutated_broker"
ROUNDS_MAX = 5


def kill_what_has_everything(scene: Scene) -> None:
    """A replica that has joined too early is all that is left for a while."""
    kill_and_wipe_follower(scene)
    scene.cluster.wait_until_whole()
    kill_leader(scene)


@pytest.mark.parametrize(
    ("mutation", "fault", "letters"),
    [
        ("early acknowledgement", kill_leader, "DCM"),
        ("early joining", kill_what_has_everything, "DCM"),
        ("no deduplication", kill_leader, "UCO"),
    ],
)
def test_a_broken_rule_is_noticed(
    cluster_factory: Callable[..., Cluster], tmp_path: Path, mutation: str, fault: Fault, letters: str
) -> None:
    environment = {"PYTHONPATH": python_path(MUTATED), "OTTLA_TEST_MUTATION": mutation, "OTTLA_PURE": "1"}
    cluster = cluster_factory(has_links=True, environments=dict.fromkeys((1, 2, 3), environment))
    scene = Scene(cluster, random.Random(5), TOPIC)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        for one, other in ((1, 2), (1, 3), (2, 3)):
            scene.links.slow_down(one, other, delay_seconds=0.1)
        for _ in range(ROUNDS_MAX):
            time.sleep(1.0)
            fault(scene)
            cluster.wait_until_whole()
        scene.links.heal()
        outcome = checker.finish(cluster)
    print(outcome)
    assert {line[0] for line in outcome.violations} & set(letters), outcome
