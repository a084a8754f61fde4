"""Lives of a cluster of real brokers, each with its own faults; and that the simulation is any good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.brokers.faults import THEMES
from tests.simulation.brokers.planted_bugs import BUGS, SEEDS_MAX, hunt
from tests.simulation.brokers.play import play_piece, simulate
from tests.simulation.hunting import ROOT, PlantedBug

PIECE = 15
SEEDS = range(0, 30, PIECE)  # the other half is in a file of its own: files are what processes share out among them
SEEDS_OF_FAULTS = range(60, 3_000, PIECE)


@pytest.mark.parametrize("first", SEEDS)
def test_no_seed_breaks_a_promise(first: int) -> None:
    play_piece(first, PIECE)


@pytest.mark.faults
@pytest.mark.parametrize("first", SEEDS_OF_FAULTS)
def test_no_seed_of_many_breaks_a_promise(first: int) -> None:
    play_piece(first, PIECE)


@pytest.mark.parametrize("seed", range(6))
def test_no_login_breaks_a_promise(seed: int) -> None:
    """With brokers and clients that have to log in: passwords change, logins fail and expire."""
    simulate(seed, "logins" if seed % 3 else "passwords")


@pytest.mark.faults
@pytest.mark.parametrize("first", range(6, 606, PIECE))
def test_no_login_of_many_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + PIECE):
        simulate(seed, "logins" if seed % 3 else "passwords")


@pytest.mark.parametrize("seed", range(4, 8))
def test_no_healing_breaks_a_promise(seed: int) -> None:
    """One of four brokers dies for good: nothing is healed too early, unthrottled or onto a broker that is going."""
    simulate(seed, "healing")


@pytest.mark.parametrize("seed", range(4, 7))
def test_no_failed_folder_breaks_a_promise(seed: int) -> None:
    """One of two folders fails for good: the other one gets its replicas, and no stale replica is elected."""
    simulate(seed, "folders")


@pytest.mark.parametrize("seed", range(5))
def test_no_recreated_topic_breaks_a_promise(seed: int) -> None:
    """Its offsets are forgotten slowly, coordinators move meanwhile."""
    simulate(seed, "renewal")


@pytest.mark.faults
@pytest.mark.parametrize("first", range(5, 305, PIECE))
def test_no_recreated_topic_of_many_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + PIECE):
        simulate(seed, "renewal")


@pytest.mark.faults
@pytest.mark.parametrize("first", range(8, 608, PIECE))
def test_no_healing_of_many_breaks_a_promise(first: int) -> None:
    for seed in range(first, first + PIECE):
        simulate(seed, "folders" if seed % 2 else "healing")


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_is_played(theme: str) -> None:
    assert any(f"theme {theme}" in line for line in simulate(3, theme, lines=None).trace)


def test_a_seed_gives_the_same_trace_twice() -> None:
    assert simulate(7).hash == simulate(7).hash
    assert simulate(7).hash != simulate(8).hash


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    """The order of sets differs from process to process: nothing may depend on it."""
    command = [
        sys.executable,
        "-c",
        "from tests.simulation.brokers.play import play_piece, simulate; print(simulate(12).hash)",
    ]
    hashes = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert hashes == {f"{simulate(12).hash}\n"}


def test_a_broken_promise_is_reported_with_its_seed_and_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ottla.broker.replica_manager.alter_partition_manager.AlterPartitionManager.submit",
        lambda self, partition: None,
    )
    with pytest.raises(AssertionError) as broken:
        for seed in range(5):
            simulate(seed, "kill")
    lines = str(broken.value).splitlines()
    assert lines[1].startswith("seed ")
    assert len(lines) > 5


@pytest.mark.faults
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_planted_bug_is_found(bug: PlantedBug, tmp_path: Path) -> None:
    assert hunt(bug, tmp_path) is not None, f"{bug.name}: no seed of {SEEDS_MAX} noticed"
