"""One round of each fault under load: nothing that was acknowledged is lost, doubled or out of order, and replicas are
equal byte for byte. The long rounds are in tests/faults (make faults).
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from faults.cluster_faults import CUTS, DEATHS, PAUSES, Fault, roll
from faults.cluster_rounds import run_rounds
from ottla.testing.cluster import Cluster

SESSION_SECONDS = 3.0
# How long writes may stand still: a death is seen at once, a pause costs a session, a restart of all a start.
DEATH_SECONDS, PAUSE_SECONDS = 6.0, 2 * SESSION_SECONDS + 6.0


@pytest.mark.parametrize("name", DEATHS)
def test_a_death_loses_nothing(cluster: Cluster, tmp_path: Path, name: str) -> None:
    seconds = DEATH_SECONDS if name not in ("kill two", "kill everybody") else PAUSE_SECONDS
    run(cluster, tmp_path, name, DEATHS[name], seconds)


@pytest.mark.parametrize("name", PAUSES)
def test_a_pause_loses_nothing(cluster: Cluster, tmp_path: Path, name: str) -> None:
    run(cluster, tmp_path, name, PAUSES[name], PAUSE_SECONDS)


def test_a_rolling_restart_loses_nothing_and_holds_nobody_up(cluster: Cluster, tmp_path: Path) -> None:
    run(cluster, tmp_path, "roll", roll, 4.0)


def test_cuts_lose_nothing(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    faults = [CUTS[name] for name in ("cut leader from followers", "cut one off", "cut one way", "cut from ZooKeeper")]
    run_rounds(cluster_factory(has_links=True), tmp_path / "logs", faults, gap_seconds_max=5 * SESSION_SECONDS)


def test_transactions_and_groups_outlive_deaths(cluster_factory: Callable[..., Cluster], tmp_path: Path) -> None:
    faults = [DEATHS["kill leader"], DEATHS["kill controller"], DEATHS["restart one"]]
    run_rounds(cluster_factory(), tmp_path / "logs", faults, gap_seconds_max=2 * DEATH_SECONDS, has_transactions=True)


def run(cluster: Cluster, folder: Path, name: str, fault: Fault, gap_seconds_max: float) -> None:
    topic = f"checked-{name.replace(' ', '-')}"
    run_rounds(cluster, folder / "logs", [fault], topic=topic, gap_seconds_max=gap_seconds_max)
