"""Thousands of short lives of the coordinators, each with its own faults; and that the simulation is any good."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from tests.simulation.hunting import PlantedBug
from tests.simulation.planted_bugs import BUGS, hunt

SCENARIOS = {"exactly_once": 200, "classic_members": 200, "consumer_members": 150}
FAULTS_FACTOR = 40  # so many more seeds in `make faults`


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_seed_breaks_a_promise(scenario: str) -> None:
    module = import_module(f"tests.simulation.{scenario}")
    for seed in range(SCENARIOS[scenario]):
        module.simulate(seed)


@pytest.mark.faults
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_seed_of_many_breaks_a_promise(scenario: str) -> None:
    module = import_module(f"tests.simulation.{scenario}")
    for seed in range(SCENARIOS[scenario], FAULTS_FACTOR * SCENARIOS[scenario]):
        module.simulate(seed)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_gives_the_same_trace_twice(scenario: str) -> None:
    module = import_module(f"tests.simulation.{scenario}")
    assert module.simulate(7).hash == module.simulate(7).hash
    assert module.simulate(7).hash != module.simulate(8).hash


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_planted_bug_is_found(bug: PlantedBug, tmp_path: Path) -> None:
    assert hunt(bug, tmp_path) is not None, f"{bug.name}: no seed noticed"
