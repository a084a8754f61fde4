"""As test_faults.py, with clusters of their own: brokers that are paused or disconnected, and a group of clients."""

from collections.abc import Callable
from pathlib import Path

from tests.faults.cluster_faults import CUTS, DEATHS, PAUSES
from tests.faults.cluster_rounds import run_rounds

from ottla.testing.cluster import Cluster

SHORT_SESSION = {"zookeeper.session.timeout.ms": 4000}


def test_pauses_lose_nothing(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    faults = [PAUSES[name] for name in ("pause leader", "pause briefly", "restart ZooKeeper")]
    run_rounds(cluster_factory(3, SHORT_SESSION), tmp_path / "logs", faults)


def test_cuts_lose_nothing(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    faults = [CUTS[name] for name in ("cut controller from brokers", "cut one off", "cut from ZooKeeper")]
    run_rounds(cluster_factory(3, SHORT_SESSION, has_links=True), tmp_path / "logs", faults)


def test_transactions_and_groups_survive_killed_brokers(
    cluster_factory: Callable[..., Cluster], tmp_path: Path
) -> None:
    faults = [DEATHS["kill leader"], DEATHS["kill controller"]]
    run_rounds(cluster_factory(), tmp_path / "logs", faults, has_transactions=True)
