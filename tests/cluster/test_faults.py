"""One round of each fault under load: nothing that was acknowledged is lost, doubled or out of order, and replicas are
equal byte for byte. Pauses and cuts are in test_cuts.py, the long rounds in tests/faults (make faults).
"""

from pathlib import Path

from faults.cluster_faults import DEATHS, Fault, roll
from faults.cluster_rounds import run_rounds
from ottla.testing.cluster import Cluster

# How long writes may stand still: a death is seen at once, a pause costs a session, a restart of all a start. These are
# for a machine that has other things to do as well; tests/faults has the figures that are promised.
DEATH_SECONDS, PAUSE_SECONDS = 10.0, 20.0


def run(cluster: Cluster, folder: Path, topic: str, faults: list[Fault], gap_seconds_max: float) -> None:
    run_rounds(cluster, folder / "logs", faults, topic=topic, gap_seconds_max=gap_seconds_max)


def test_the_death_of_one_broker_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    faults = [DEATHS[name] for name in ("kill leader", "kill controller", "wipe follower", "restart one")]
    run(cluster, tmp_path, "deaths", faults, DEATH_SECONDS)


def test_the_death_of_most_and_of_all_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    run(cluster, tmp_path, "many-deaths", [DEATHS["kill two"], DEATHS["kill everybody"]], PAUSE_SECONDS)


def test_a_rolling_restart_loses_nothing_and_holds_nobody_up(cluster: Cluster, tmp_path: Path) -> None:
    run(cluster, tmp_path, "roll", [roll], DEATH_SECONDS)
