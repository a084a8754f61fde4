"""Thousands of short lives of a cluster, each with its own faults; and that the simulation is any good."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from tests.simulation.cluster.faults import THEMES
from tests.simulation.cluster.planted_bugs import BUGS, SEEDS_MAX, hunt
from tests.simulation.cluster.play import simulate
from tests.simulation.hunting import ROOT, PlantedBug

SEEDS = 300
SEEDS_OF_FAULTS = 30_000
PIECE = 50


def pieces(first: int, count: int) -> Iterator[range]:
    return (range(start, min(start + PIECE, first + count)) for start in range(first, first + count, PIECE))


def play(seeds: range) -> str | None:
    """What is broken, or None; runs in a process of its own."""
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as broken:  # noqa: BLE001 (whatever it is, its seed must be known)
            return f"seed {seed}: {type(broken).__name__}: {broken}"
    return None


def play_all(first: int, count: int) -> None:
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for found in processes.map(play, pieces(first, count)):
            assert found is None, found


def test_no_seed_breaks_a_promise() -> None:
    play_all(0, SEEDS)


@pytest.mark.faults
def test_no_seed_of_many_breaks_a_promise() -> None:
    play_all(SEEDS, SEEDS_OF_FAULTS)


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_is_played_and_the_cluster_does_something(theme: str) -> None:
    world = simulate(3, theme)
    assert any(" at " in line for line in world.trace), world.report()


def test_a_seed_gives_the_same_trace_twice() -> None:
    assert simulate(7).hash == simulate(7).hash
    assert simulate(7).hash != simulate(8).hash


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    """The order of sets differs from process to process: nothing may depend on it."""
    command = [sys.executable, "-c", "from tests.simulation.cluster.play import simulate; print(simulate(12).hash)"]
    hashes = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert hashes == {f"{simulate(12).hash}\n"}


def test_a_broken_promise_is_reported_with_its_seed_and_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ottla.replication.leader_state.LeaderState.replicated_offset", lambda self, own_offset: own_offset
    )
    with pytest.raises(AssertionError) as broken:
        for seed in range(100):
            simulate(seed)
    lines = str(broken.value).splitlines()
    assert any(line.startswith("seed ") for line in lines[:3])
    assert len(lines) > 5  # the last 60 events, if there were so many


@pytest.fixture(scope="module")
def hunted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[str | None]]]:
    """All hunts at once, as many as there are cores; each is a process of its own."""
    with ThreadPoolExecutor(os.cpu_count()) as hunters:
        yield {bug.name: hunters.submit(hunt, bug, tmp_path_factory.mktemp("planted")) for bug in BUGS}


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_planted_bug_is_found(bug: PlantedBug, hunted: dict[str, Future[str | None]]) -> None:
    assert hunted[bug.name].result() is not None, f"{bug.name}: no seed of {SEEDS_MAX} noticed"
