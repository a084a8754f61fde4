"""Rolls of a cluster from one version to another: broker after broker, the controller last, as an operator would."""

from collections.abc import Callable
from pathlib import Path

from tests.cluster.older_version import make_newer, make_older
from tests.faults.cluster_checker import Checker

from ottla.client.cluster import UpgradeType, describe_features, update_features
from ottla.controller.decisions.ottla_version import OTTLA_VERSION_FEATURE
from ottla.testing.cluster import Cluster, ClusterBroker

Change = Callable[[ClusterBroker], None]


def roll(cluster: Cluster, change: Change) -> None:
    controller = cluster.controller()
    for broker in sorted(cluster.brokers, key=lambda each: each is controller):
        replace(cluster, broker, change)


def replace(cluster: Cluster, broker: ClusterBroker, change: Change) -> None:
    """Another version of one broker; the next one may go when every replica is in sync again."""
    broker.stop()
    change(broker)
    broker.start()
    cluster.wait_until_whole()


def roll_forward(cluster: Cluster) -> None:
    roll(cluster, make_newer)


def roll_back(cluster: Cluster, sources: Path) -> None:
    roll(cluster, lambda broker: make_older(broker, sources))


def level_of(cluster: Cluster) -> int:
    """As a broker of this version tells it."""
    with cluster.admin() as admin:
        return next(
            item.level for item in describe_features(admin.client).features if item.name == OTTLA_VERSION_FEATURE
        )


def change_level(cluster: Cluster, level: int, kind: UpgradeType = UpgradeType.UPGRADE) -> str:
    """What is refused, as a sentence; empty if it was done."""
    with cluster.admin() as admin:
        refused = update_features(admin.client, {OTTLA_VERSION_FEATURE: level}, kind, validate_only=False)[
            OTTLA_VERSION_FEATURE
        ]
    return "" if refused is None else str(refused)


def check(checker: Checker, cluster: Cluster, gap_seconds_max: float | None = None) -> None:
    """The limit for the longest pause of writes is checked only on a machine without other load."""
    outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations, outcome
    assert not outcome.given_up, outcome
    assert gap_seconds_max is None or outcome.longest_gap_seconds <= gap_seconds_max, outcome
