"""Mistakes that simulations must find are still mistakes: the hunts themselves take hours (`make faults`)."""

from __future__ import annotations

import pytest
from tests.simulation import planted_bugs
from tests.simulation.brokers import planted_bugs as of_brokers
from tests.simulation.cluster import planted_bugs as of_cluster
from tests.simulation.hunting import ROOT, PlantedBug

BUGS = [*planted_bugs.BUGS, *of_cluster.BUGS, *of_brokers.BUGS]


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_planted_bug_fits_the_source(bug: PlantedBug) -> None:
    for change in bug.changes:
        assert (ROOT / "src" / "ottla" / change.file).read_text().count(change.right) == 1, change.file
