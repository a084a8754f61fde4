"""One round of each fault under load: nothing that was acknowledged is lost, doubled or out of order, replicas are
equal byte for byte, and every partition takes writes again. Pauses and cuts are in test_cuts.py; the long rounds, and
for how long writes may pause, in tests/faults (make faults): here other tests use the machine as well.
"""

from pathlib import Path

from tests.faults.cluster_faults import DEATHS, roll
from tests.faults.cluster_rounds import run_rounds

from ottla.testing.cluster import Cluster


def test_the_death_of_one_broker_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    faults = [DEATHS[name] for name in ("kill leader", "kill controller", "wipe follower", "restart one")]
    run_rounds(cluster, tmp_path / "logs", faults, topic="deaths")


def test_the_death_of_most_and_of_all_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    run_rounds(cluster, tmp_path / "logs", [DEATHS["kill two"], DEATHS["kill all"]], topic="many-deaths")


def test_a_rolling_restart_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    run_rounds(cluster, tmp_path / "logs", [roll], topic="roll")
